"""What has left the database: its files, where they lie, and their lines."""
