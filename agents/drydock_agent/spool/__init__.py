"""What waits on the disk until the backend has it."""
