"""Messages out: who is told what, when, and through which channel. Pure."""
