"""Exceptions that end a connection to a cache."""


class CacheConnectionLost(Exception):
    """The connection failed or ended. The message states the reason."""


class CacheConnectionStale(CacheConnectionLost):
    """The agent closed the connection because the cache no longer responded."""


class RefusedByCache(CacheConnectionLost):
    """The cache responded, but does not permit this machine to listen."""
