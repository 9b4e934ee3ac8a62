"""Publishes notifications on the Redis server that simulates a cache, and disconnects its clients."""

from __future__ import annotations

import importlib
from typing import Any

CHANNEL = "AzureRedisEvents"
_TIMEOUT_SECONDS = 5


class NotPublishedError(Exception):
    """The Redis server could not be reached. The message states the reason."""


async def publish(url: str, raw: str) -> int:
    """Publish one unchanged line. Return the number of subscribers that received it. Raises NotPublishedError."""
    return await _command(url, "PUBLISH", CHANNEL, raw)


async def cut(url: str, seconds: float) -> int:
    """Close the connections of all subscribers and let the server answer no client for `seconds`. Return the number of
    closed connections.

    This also affects other clients of the server: use a separate server for each cache. Raises NotPublishedError.
    """
    closed = await _command(url, "CLIENT", "KILL", "TYPE", "pubsub")
    if milliseconds := round(seconds * 1000):
        await _command(url, "CLIENT", "PAUSE", str(milliseconds), "ALL")
    return closed


async def _command(url: str, *words: str) -> int:
    client_module = _redis()
    client: Any = client_module.from_url(url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS)
    try:
        answer = await client.execute_command(*words)
        return answer if isinstance(answer, int) else 0
    except (client_module.RedisError, OSError) as error:
        raise NotPublishedError(f"the server of the cache did not take it: {error}") from error
    finally:
        await client.aclose()


def _redis() -> Any:
    # Imported here, because without caches the simulator needs only the standard library.
    try:
        return importlib.import_module("redis.asyncio")
    except ModuleNotFoundError as error:
        raise NotPublishedError("publishing needs the Python package redis") from error
