"""Azure's Instance Metadata Service: its address, its requests, and its announcements."""
