"""Plain Python: states, the fold of sightings, guards, relaying. No Django, no clock, no database."""
