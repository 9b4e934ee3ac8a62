"""Decisions on the pages."""
