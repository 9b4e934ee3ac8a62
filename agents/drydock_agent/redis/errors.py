"""Errors that end a connection to a cache."""


class CacheConnectionLost(Exception):
    """The connection ended, or could not be made; the sentence has the reason."""


class CacheConnectionStale(CacheConnectionLost):
    """The connection gave no sign of life and was closed here."""


class RefusedByCache(CacheConnectionLost):
    """The cache answered, and does not let this machine listen."""
