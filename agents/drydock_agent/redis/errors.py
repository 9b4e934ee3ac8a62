"""How a connection to a cache ends."""


class Lost(Exception):
    """The connection ended, or could not be made; the sentence says why."""


class Stale(Lost):
    """The connection gave no sign of life and was closed here."""


class RefusedByCache(Lost):
    """The cache answered, and does not let this machine listen."""
