"""Publishes on the channel of a cache's stand-in, a real server that speaks Redis' protocol."""

from __future__ import annotations

import importlib
from typing import Any

CHANNEL = "AzureRedisEvents"
_TIMEOUT_SECONDS = 5


class NotPublishedError(Exception):
    """The line did not reach a server. The text says why."""


async def publish(url: str, raw: str) -> int:
    """Publish one line as it is; returns how many subscribers the server handed it to. Raises NotPublishedError."""
    client_module = _redis()
    client: Any = client_module.from_url(url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS)
    try:
        return int(await client.publish(CHANNEL, raw))
    except (client_module.RedisError, OSError) as error:
        raise NotPublishedError(f"the server of the cache did not take the line: {error}") from error
    finally:
        await client.aclose()


def _redis() -> Any:
    # Loaded when a line is published: without caches the simulator is standard library only.
    try:
        return importlib.import_module("redis.asyncio")
    except ModuleNotFoundError as error:
        raise NotPublishedError("publishing needs the Python package redis") from error
