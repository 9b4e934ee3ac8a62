"""Plain Python: states and moves, what is computed, what is judged. No Django, no clock, no database."""
