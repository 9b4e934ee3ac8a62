"""Read models: frozen dataclasses, each loaded with a fixed number of queries."""
