"""Agents' reports: a whole batch is stored and processed in one transaction."""
