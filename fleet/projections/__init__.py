"""Read models for pages and API: frozen dataclasses, each loaded with a fixed number of database queries."""
