"""Messages out: channels, routes, and the log of what was sent."""
