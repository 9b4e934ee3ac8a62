"""Wake-ups: messages on Redis and Celery tasks that only contain ids.

They only make processing faster: everything is found in the database anyway, so it also works without Redis. Other
modules call this one after their commit; it imports none of them.
"""

import json
import queue
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import redis
import structlog
from celery import current_app
from django.conf import settings
from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.retry import Retry

from fleet.domain.trace import Trace

CHANNEL = "drydock:wake-ups"
# Written to learn whether Redis takes anything.
PROBE_KEY, PROBE_SECONDS = "drydock:ready", 60
# By name: operations know nothing of the edges.
RELAY_TASK = "fleet.relay.tasks.relay_approval"
RELAY_TASK_OF_MANY = "fleet.relay.tasks.relay_approvals"
FOLLOW_TASK = "fleet.relay.tasks.follow"
TELL_TASK = "fleet.notifications.tasks.tell"
# In a storm, news arrives faster than a worker can follow it. Hints within this time after another are merged. A hint
# that no worker has taken in time expires, since the tick has followed it by then.
FOLLOW_PAUSE_SECONDS = 0.1
# The same for approvals: bulk approvals are sent in portions of limited size.
RELAY_PAUSE_SECONDS = 0.1
RELAYED_AT_ONCE = 50
FOLLOW_EXPIRES_SECONDS = 5

log = structlog.get_logger(__name__)

Hint = tuple[str, int, Trace | None]

_local = threading.local()
# Hints that wait for the broker: task, row id, and the decision behind it. Those that find no room are as good as lost,
# which hints may be.
_hints: queue.Queue[Hint] = queue.Queue(maxsize=10_000)
_starting = threading.Lock()
_sender = threading.Thread(name="hints, not started")


REST_SECONDS = 2.0


def redis_client(seconds: float, **options: Any) -> redis.Redis:
    """Return a client of the configured Redis that waits this long for an answer and does not try again."""
    timeouts = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
    return redis.Redis.from_url(settings.REDIS_URL, protocol=2, retry=Retry(NoBackoff(), 0), **timeouts | options)


class _Line:
    """This thread's connection to Redis. After a failure it is not used for two seconds, so that callers do
    not wait.
    """

    def __init__(self) -> None:
        self.client = redis_client(0.5)
        self.rests_until: float | None = None


def _publish(message: dict[str, object]) -> bool:
    line = getattr(_local, "line", None)
    if line is None:
        line = _local.line = _Line()
    now = time.monotonic()
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
            log.warning("redis is unavailable: processes poll instead of being woken", error=str(error))
        line.rests_until = now + REST_SECONDS
        return False
    line.rests_until = None
    return True


def takes_writes() -> bool:
    """Return whether Redis accepts writes. A full server or a replica answers pings but does not.

    Raises redis-py's errors if Redis does not answer.
    """
    with redis_client(0.5) as client:
        try:
            client.set(PROBE_KEY, 1, ex=PROBE_SECONDS)
        except redis.ResponseError:
            return False
    return True


def wake_machines(machine_ids: Iterable[int], *, via: str) -> bool:
    """Notify the gateways that orders wait for these machines (row ids). Return False if Redis did not accept the
    message.
    """
    ids = sorted(set(machine_ids))
    return _publish({"orders": ids, "via": via}) if ids else True


def wake_streams() -> bool:
    """Notify the event streams of new timeline entries. Return False if Redis did not accept the message."""
    return _publish({"entries": True})


def forget_credentials(machine_ids: Iterable[int]) -> bool:
    """Tell the gateways to drop the cached credentials of these machines (row ids). Return False if Redis did not
    accept it.
    """
    return _publish({"revoked": sorted(set(machine_ids))})


def hint_approval(approval_id: int, trace: Trace | None = None) -> None:
    """Queue a Celery task that sends this approval (row id) now."""
    _hint([(RELAY_TASK, approval_id, trace)])


def hint_events(event_pks: Iterable[int]) -> None:
    """Queue Celery tasks that process the consequences of changed events (row ids): drills, waves, conditions,
    rules.
    """
    _hint([(FOLLOW_TASK, event_pk, None) for event_pk in event_pks])


def hint_messages() -> None:
    """Queue a Celery task that sends new notifications."""
    _hint([(TELL_TASK, 0, None)])


def _hint(hints: Iterable[Hint]) -> None:
    """Pass tasks to the background thread that sends them to the broker. Celery beat finds the work of a lost task.

    A broker that accepts connections but does not answer would block the caller for many seconds.
    """
    with suppress(queue.Full):
        for hint in hints:
            _hints.put_nowait(hint)
    prepare_hints()


def prepare_hints() -> None:
    """Start connecting to the broker in the background, if there is no connection yet. Returns at once.

    If this is not called, the first task of a process is sent some hundred milliseconds later than others.
    """
    global _sender  # noqa: PLW0603 - one thread for this process, made when it is first needed
    with _starting:
        if not _sender.is_alive():
            _sender = threading.Thread(target=_send_hints, name="hints", daemon=True)
            _sender.start()


def _connect_to_broker() -> None:
    """Prepare for sending without sending anything: load Celery's modules, connect, and declare the queue."""
    amqp = current_app.amqp
    _ = amqp.send_task_message, current_app.backend
    with current_app.producer_or_acquire() as producer:
        producer.maybe_declare(amqp.queues[current_app.conf.task_default_queue])


def _send_hints() -> None:
    # A failure is not reported yet: the first hint connects again and logs it.
    with suppress(OperationalError, redis.RedisError, OSError):
        _connect_to_broker()
    line = _Broker()
    approvals: dict[int, Trace | None] = {}
    events: set[int] = set()
    tell = False
    next_relay = next_follow = next_tell = 0.0
    while True:
        waiting = ((next_relay, approvals), (next_follow, events), (next_tell, tell))
        pauses = [until - time.monotonic() for until, wanted in waiting if wanted]
        hints = _waiting_hints(max(0.0, min(pauses)) if pauses else None)
        approvals |= {row_id: trace for task, row_id, trace in hints if task == RELAY_TASK}
        if approvals and time.monotonic() >= next_relay:
            _send_approvals(line, approvals)
            approvals.clear()
            next_relay = time.monotonic() + RELAY_PAUSE_SECONDS
        events |= {row_id for task, row_id, _ in hints if task == FOLLOW_TASK}
        if events and time.monotonic() >= next_follow:
            line.send(FOLLOW_TASK, sorted(events), expires=FOLLOW_EXPIRES_SECONDS)
            events.clear()
            next_follow = time.monotonic() + FOLLOW_PAUSE_SECONDS
        tell = tell or any(task == TELL_TASK for task, *_ in hints)
        if tell and time.monotonic() >= next_tell:
            line.send(TELL_TASK, expires=FOLLOW_EXPIRES_SECONDS)
            tell, next_tell = False, time.monotonic() + FOLLOW_PAUSE_SECONDS


def _send_approvals(line: "_Broker", approvals: Mapping[int, Trace | None]) -> None:
    """Send one approval as the task that release 0.1.0 knows, several as one newer task.

    A worker of 0.1.0 drops the newer task, and the next reconciliation finds the approvals.
    """
    if len(approvals) == 1:
        for approval_id, trace in approvals.items():
            line.send(RELAY_TASK, approval_id, headers=trace.words if trace else None)
        return
    pairs = [[approval_id, trace.words if trace else {}] for approval_id, trace in approvals.items()]
    for at in range(0, len(pairs), RELAYED_AT_ONCE):
        line.send(RELAY_TASK_OF_MANY, pairs[at : at + RELAYED_AT_ONCE])


def _waiting_hints(seconds: float | None) -> list[Hint]:
    """Wait up to `seconds` for a task (None: without limit), and return it with all others that wait by then."""
    hints = []
    with suppress(queue.Empty):
        hints.append(_hints.get(timeout=seconds))
        while True:
            hints.append(_hints.get_nowait())
    return hints


class _Broker:
    """The connection to Celery's broker. A task that it does not accept is lost, and it is not used for two seconds."""

    def __init__(self) -> None:
        self.rests_until = 0.0

    def send(self, task: str, *arguments: Any, **options: Any) -> None:
        if time.monotonic() < self.rests_until:
            return
        try:
            current_app.send_task(task, args=list(arguments), retry=False, ignore_result=True, **options)
        except (OperationalError, redis.RedisError, OSError) as error:
            self.rests_until = time.monotonic() + 2
            log.warning("the broker is unavailable: the relay continues without hints", error=str(error))
