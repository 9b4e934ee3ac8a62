"""Kill -9 at named moments, by a seeded schedule; and what plain Celery loses in the same places."""
