"""Reading back: reports of an event and of a month, and handing over."""
