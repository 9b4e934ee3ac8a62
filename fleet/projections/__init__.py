"""The only code that shapes reads: frozen dataclasses, a fixed number of queries each."""
