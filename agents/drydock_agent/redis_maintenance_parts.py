"""The parts that listen to the configured caches, and what `check` says of them. Imported only where there are any."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from .clock import Clock
from .config import Settings
from .late import Late
from .quiet import Quiet
from .redis_maintenance import RedisMaintenance
from .redis_maintenance_caches import Cache, Lost, Refused
from .redis_maintenance_hooks import RedisHooks
from .redis_maintenance_token import Tokens
from .spool import Spool

if TYPE_CHECKING:
    from . import redis_maintenance_connection as connection
else:
    connection = Late(f"{__package__}.redis_maintenance_connection")

log = logging.getLogger("drydock_agent")


def listeners(
    settings: Settings,
    *,
    machine_id: str,
    resource_name: Callable[[], str],
    user_agent: str,
    spool: Spool,
    clock: Clock,
    quiet: Quiet,
    random: Random,
    reported: Callable[[], None],
) -> tuple[list[RedisMaintenance], list[RedisHooks]]:
    """Two parts for each cache: one that listens, one that runs hooks."""
    listening, hooks = [], []
    for cache in settings.redis_caches:
        if not cache.publishes:
            log.warning("%s", unsupported(cache))
        tokens = Tokens(settings.imds_url, user_agent=user_agent)
        own = RedisHooks(
            cache=cache,
            folder=Path(settings.hooks_dir),
            timeout=settings.hook_timeout_seconds,
            machine_id=machine_id,
            resource_name=resource_name,
            spool=spool,
            clock=clock,
            quiet=quiet,
            reported=reported,
        )
        hooks.append(own)
        listening.append(
            RedisMaintenance(
                cache=cache,
                token=tokens.fetch,
                interrupt_token=tokens.interrupt,
                spool=spool,
                clock=clock,
                quiet=quiet,
                random=random,
                reported=reported,
                heard=own.heard,
                lost=own.lost,
                restored=own.restored,
            )
        )
    return listening, hooks


def unsupported(cache: Cache) -> str:
    """What is wrong with configuring this cache."""
    return (
        f"{cache.host} is no Azure Cache for Redis of the tiers Basic, Standard or Premium: Azure publishes no "
        "maintenance notifications for it, and nobody listens."
    )


def look(cache: Cache, settings: Settings, *, user_agent: str) -> tuple[bool, str]:
    """Whether this machine can listen to the cache, and a sentence; connects once."""
    if not cache.publishes:
        return False, unsupported(cache)
    try:
        username, password = cache.username, "" if cache.entra else cache.secret()
        if cache.entra:
            token = Tokens(settings.imds_url, user_agent=user_agent).fetch(cache)
            username, password = username or token.username, token.secret
        with closing(connection.Subscription(cache, username=username, password=password)):
            return True, f"The notifications of {cache.host} can be heard."
    except ModuleNotFoundError:
        return False, f"{cache.host} is not listened to: the Python package redis is missing (drydock-agent[redis])."
    except Refused as error:
        return False, f"{cache.host} refuses this machine: {error}."
    except Lost as error:
        return False, f"The notifications of {cache.host} cannot be heard: {error}."
