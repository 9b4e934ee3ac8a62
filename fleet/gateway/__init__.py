"""Gateway: HTTP interface for agents (reports, orders) and event streams for browsers."""
