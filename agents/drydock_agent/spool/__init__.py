"""Data on disk until the backend has acknowledged it."""
