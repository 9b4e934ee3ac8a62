"""The Drydock agent: it watches what Azure announces to one machine and carries approvals back to Azure."""
