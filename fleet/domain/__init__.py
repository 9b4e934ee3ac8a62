"""Domain logic in plain Python: states, transitions and decisions. It uses neither Django nor a clock nor a
database.
"""
