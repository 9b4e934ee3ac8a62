"""Parts of the agent for the configured caches, and their check. Imported only if a cache is configured."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from drydock_agent.context import Context
from drydock_agent.lazy_import import LazyImport
from drydock_agent.redis.errors import CacheConnectionLost, RefusedByCache
from drydock_agent.redis.hooks import CacheHooks
from drydock_agent.redis.listener import CacheListener
from drydock_agent.redis.login import TokenClient, login_for
from drydock_agent.settings.caches import Cache
from drydock_agent.settings.load import Settings

if TYPE_CHECKING:
    from drydock_agent.redis import subscription as connection
else:
    connection = LazyImport("drydock_agent.redis.subscription")

log = logging.getLogger("drydock_agent")


def parts(context: Context, *, resource_name: Callable[[], str]) -> tuple[list[CacheListener], list[CacheHooks]]:
    """Return two parts for each cache: one that listens to it, and one that runs its hooks."""
    listeners, hooks = [], []
    for cache in context.settings.redis_caches:
        if not cache.publishes:
            log.warning("%s", _unsupported(cache))
        own = CacheHooks(context, cache, resource_name=resource_name)
        hooks.append(own)
        tokens = TokenClient(context.settings.imds_url)
        listeners.append(CacheListener(context, cache, tokens=tokens, hooks=own))
    return listeners, hooks


def check(cache: Cache, settings: Settings) -> tuple[bool, str]:
    """Connect to the cache once. Return whether this machine can listen to it, and a sentence for the user."""
    if not cache.publishes:
        return False, _unsupported(cache)
    try:
        with closing(connection.Subscription(cache, login_for(cache, TokenClient(settings.imds_url)))) as opened:
            if opened.replacement:
                return False, f"No notifications will come from {cache.host}: {opened.replacement}."
            return True, f"The notifications of {cache.host} can be heard."
    except ModuleNotFoundError:
        return False, f"{cache.host} is not listened to: the Python package redis is missing (drydock-agent[redis])."
    except RefusedByCache as error:
        return False, f"{cache.host} refuses this machine: {error}."
    except CacheConnectionLost as error:
        return False, f"The notifications of {cache.host} cannot be heard: {error}."


def _unsupported(cache: Cache) -> str:
    return (
        f"{cache.host} is no Azure Cache for Redis of the tiers Basic, Standard or Premium: Azure publishes no "
        "maintenance notifications for it, and the agent does not monitor it."
    )
