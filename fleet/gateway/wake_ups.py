"""Listens to the wake-ups on Redis. They carry ids only; without them everything still happens, a second later."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import redis
import structlog
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from fleet.gateway.loops import Loop
from fleet.operations.wake_up import CHANNEL

log = structlog.get_logger(__name__)

PING_SECONDS = 3
# Pings that may wait for their answer.
PINGS = 2


class WakeUps:
    """One subscription in one thread; it comes back by itself. `on_wake_up` gets each message, in that thread."""

    def __init__(self, on_wake_up: Callable[[dict[str, Any]], None]) -> None:
        self.on_wake_up = on_wake_up
        self.heard = False
        self.loop = Loop("wake-ups", self.listen, pause=0.0)

    def listen(self) -> None:
        """Subscribe and listen until stopped. Raises what redis-py raises; the loop subscribes anew."""
        client = redis.Redis.from_url(
            settings.REDIS_URL,
            protocol=2,
            socket_timeout=2 * PING_SECONDS,
            socket_connect_timeout=2,
            health_check_interval=PING_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            with client.pubsub() as subscription:  # type: ignore[no-untyped-call]
                subscription.subscribe(CHANNEL)
                while not self.loop.stopped:
                    message = subscription.get_message(timeout=1.0)
                    if message is None:
                        self._check(subscription)
                    elif message["type"] == "subscribe":
                        self.heard = True
                    elif message["type"] == "message":
                        self._tell(message["data"])
        finally:
            self.heard = False
            client.close()

    @staticmethod
    def _check(subscription: redis.client.PubSub) -> None:
        """A network that drops packets in silence shows by pings without an answer."""
        subscription.check_health()
        if subscription.health_check_response_counter > PINGS:
            raise redis.ConnectionError("Redis no longer answers pings.")

    def _tell(self, data: bytes) -> None:
        try:
            message = json.loads(data)
        except ValueError:
            message = None
        if isinstance(message, dict):
            self.on_wake_up(message)
        else:
            log.warning("wake_up.unreadable", data=data[:100])
