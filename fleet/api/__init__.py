"""REST API of the backend."""
