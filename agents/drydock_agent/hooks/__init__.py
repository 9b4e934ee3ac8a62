"""The programs of the machine's owner."""
