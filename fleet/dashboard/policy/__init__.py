"""Rules and no-approval windows on the pages."""
