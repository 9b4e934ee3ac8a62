"""A simulated Azure: the metadata service of a whole fleet in one process, steered over HTTP. Standard library only."""
