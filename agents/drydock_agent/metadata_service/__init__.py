"""Azure's Instance Metadata Service: where it is, how it is asked, and what it announces."""
