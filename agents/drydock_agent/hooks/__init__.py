"""Hooks: programs of the machine's owner that run before and after events."""
