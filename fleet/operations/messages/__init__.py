"""Messages out: channels and routes as people make them, what happened routed to them, and what became of each."""
