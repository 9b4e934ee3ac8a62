"""Publishes on the channel of a cache's stand-in, a real server that speaks Redis' protocol, and cuts its clients."""

from __future__ import annotations

import importlib
from typing import Any

CHANNEL = "AzureRedisEvents"
_TIMEOUT_SECONDS = 5


class NotPublishedError(Exception):
    """The line did not reach a server. The text has the reason."""


async def publish(url: str, raw: str) -> int:
    """Publish one line as it is; returns how many subscribers the server handed it to. Raises NotPublishedError."""
    return await _command(url, "PUBLISH", CHANNEL, raw)


async def cut(url: str, seconds: float) -> int:
    """Close the connections of all subscribers, and answer no client for `seconds`; return how many were closed.

    Other clients of the server are affected as well: give a cache a server of its own. Raises NotPublishedError.
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
    # Loaded when it is needed: without caches the simulator is standard library only.
    try:
        return importlib.import_module("redis.asyncio")
    except ModuleNotFoundError as error:
        raise NotPublishedError("publishing needs the Python package redis") from error
