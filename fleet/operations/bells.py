"""Bells on Redis: they make things fast and carry ids only. Rows make things true, so a missing Redis is no failure."""

import json
import queue
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

import redis
import structlog
from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.retry import Retry

CHANNEL = "drydock:bells"
# By name: operations know nothing of the edges.
RELAY_TASK = "fleet.relay.tasks.relay_approval"

log = structlog.get_logger(__name__)

_local = threading.local()
# Hints that wait for the broker. Those that find no room are as good as lost, which hints may be.
_hints: queue.Queue[int] = queue.Queue(maxsize=1000)
_starting = threading.Lock()
_sender = threading.Thread(name="hints, not started")


class _Line:
    """A connection of this thread; after a failure it rests for two seconds, so that nobody waits for a dead Redis."""

    def __init__(self) -> None:
        self.client = redis.Redis.from_url(
            settings.REDIS_URL,
            protocol=2,
            socket_timeout=0.5,
            socket_connect_timeout=0.5,
            retry=Retry(NoBackoff(), 0),
        )
        self.rests_until: datetime | None = None


def _ring(message: dict[str, object]) -> bool:
    line = getattr(_local, "line", None)
    if line is None:
        line = _local.line = _Line()
    now = datetime.now().astimezone()
    if line.rests_until is not None and now < line.rests_until:
        return False
    try:
        try:
            line.client.publish(CHANNEL, json.dumps(message))
        except redis.ConnectionError:
            # A kept connection may have died in the meantime: once more, on a new one.
            line.client.publish(CHANNEL, json.dumps(message))
    except (redis.RedisError, OSError) as error:
        if line.rests_until is None:
            log.warning("redis is away: bells stay silent, looks go on", error=str(error))
        line.rests_until = now + timedelta(seconds=2)
        return False
    line.rests_until = None
    return True


def ring_orders(machine_ids: Iterable[int], *, via: str) -> bool:
    """Tell the gateways that these machines (row ids) have orders waiting; False when Redis did not take it."""
    ids = sorted(set(machine_ids))
    return _ring({"orders": ids, "via": via}) if ids else True


def ring_entries() -> bool:
    """Tell the streams that there are new entries."""
    return _ring({"entries": True})


def ring_revoked(machine_ids: Iterable[int]) -> bool:
    """Tell the gateways to forget the cached credentials of these machines."""
    return _ring({"revoked": sorted(set(machine_ids))})


def hint_relay(approval_id: int) -> None:
    """Ask Celery to relay this approval now. Beat finds it anyway, so nobody waits for the broker's answer: one that
    is there and says nothing would keep a person waiting for many seconds.
    """
    with suppress(queue.Full):
        _hints.put_nowait(approval_id)
    prepare_hints()


def prepare_hints() -> None:
    """Have the connection to the broker made beside everything else, if it is not there yet: the first message of a
    process would otherwise take some hundred milliseconds more than those after it. Returns at once.
    """
    global _sender  # noqa: PLW0603 - one thread for this process, made when it is first needed
    with _starting:
        if not _sender.is_alive():
            _sender = threading.Thread(target=_send_hints, name="hints", daemon=True)
            _sender.start()


def _connect_to_broker() -> None:
    """Everything that sending does, without a message: load what Celery loads late, connect, declare the queue."""
    amqp = current_app.amqp
    _ = amqp.send_task_message, current_app.backend
    with current_app.producer_or_acquire() as producer:
        producer.maybe_declare(amqp.queues[current_app.conf.task_default_queue])


def _send_hints() -> None:
    rests_until = 0.0
    # Failing is no news yet: the first hint tries again, and says so.
    with suppress(OperationalError, redis.RedisError, OSError):
        _connect_to_broker()
    while True:
        approval_id = _hints.get()
        if time.monotonic() < rests_until:
            continue
        try:
            current_app.send_task(RELAY_TASK, args=[approval_id], retry=False, ignore_result=True)
        except (OperationalError, redis.RedisError, OSError) as error:
            rests_until = time.monotonic() + 2
            log.warning("the broker is away: the relay goes on without hints", error=str(error))
