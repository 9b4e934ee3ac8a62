"""Large tables in partitions: made in time, guarded, and taken out as a whole."""
