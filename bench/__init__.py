"""Measurements. `python -m bench` runs all of them, `python -m bench ingest` one; none of them ever fails a build."""
