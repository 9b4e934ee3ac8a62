"""A simulated Azure: the metadata service of a whole fleet in one process, controlled over HTTP. Standard library
only.
"""
