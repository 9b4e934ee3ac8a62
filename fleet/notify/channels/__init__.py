"""Channels: one module for each kind, named like it."""
