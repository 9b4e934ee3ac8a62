"""Agents' reports: a batch is stored and processed in one transaction, by a driver that no room imports."""
