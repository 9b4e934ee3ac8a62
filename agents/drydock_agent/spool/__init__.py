"""Reports and orders on disk until the backend has acknowledged them."""
