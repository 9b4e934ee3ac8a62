"""The calls: each parses, makes one call, and answers."""
