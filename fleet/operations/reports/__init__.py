"""What agents report: a batch is kept and taken in one transaction, by a driver that no room imports."""
