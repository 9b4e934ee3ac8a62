"""Azure's Instance Metadata Service: address, client, and scheduled events."""
