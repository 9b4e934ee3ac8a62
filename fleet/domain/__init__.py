"""The domain in plain Python: states, transitions, computations and judgements. No Django, no clock, no database."""
