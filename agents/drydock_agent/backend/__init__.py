"""Communication with the backend: sends reports, and receives and carries out orders."""
