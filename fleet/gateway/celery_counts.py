"""Celery in numbers: what its processes left on Redis, and how many tasks wait there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from fleet.domain import gauges
from fleet.domain.clock import at, seconds_since
from fleet.domain.gauges import BEAT, CELERY_HASH, COUNT, OUTCOMES, SECONDS, Sample
from fleet.operations import clock
from fleet.operations.wake_up import takes_writes

# A scrape waits two seconds in all, and the fleet is counted in the same time.
ANSWER_SECONDS = 0.5
# Whoever may write to Redis makes no more series than that.
MOST_FIELDS = 500

Labels = tuple[str, ...]


def measure() -> Sequence[Sample]:
    """Celery's gauges; `drydock_redis_up` is 0 where Redis takes no writes, and alone where it does not answer."""
    client = redis.Redis.from_url(
        settings.REDIS_URL,
        protocol=2,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        with client.pipeline(transaction=False) as pipe:
            pipe.hgetall(CELERY_HASH)
            pipe.llen(settings.CELERY_TASK_DEFAULT_QUEUE)
            left, waiting = pipe.execute()
        writes = takes_writes()
    except (redis.RedisError, OSError):
        return [Sample(gauges.REDIS_UP, {(): 0.0})]
    finally:
        client.close()
    return [
        Sample(gauges.REDIS_UP, {(): float(writes)}),
        Sample(gauges.QUEUE, {(): float(waiting)}),
        *read(left, clock.now()),
    ]


def read(left: Mapping[bytes, bytes], now: datetime) -> Sequence[Sample]:
    """What the hash says at this time; fields that say something else are passed by."""
    counted: dict[Labels, float] = {}
    seconds: dict[Labels, float] = {}
    beat: dict[Labels, float] = {}
    for field, value in list(left.items())[:MOST_FIELDS]:
        try:
            what, *rest = field.decode("ascii").split(" ")
            number = float(value)
        except ValueError:
            continue
        if not isfinite(number) or number < 0:
            continue
        match what, rest:
            case str(kind), [outcome, task] if kind == COUNT and outcome in OUTCOMES:
                counted[task, outcome] = number
            case str(kind), [task] if kind == SECONDS:
                seconds[task,] = number
            case str(kind), [] if kind == BEAT:
                beat[()] = seconds_since(at(number), now=now)
    # A counter that begins with its first failure has not grown, to Prometheus: so each begins at 0.
    for task in {task for task, _ in counted}:
        counted = {(task, outcome): 0.0 for outcome in OUTCOMES} | counted
    return [Sample(gauges.TASKS, counted), Sample(gauges.TASK_SECONDS, seconds), Sample(gauges.BEAT_AGE, beat)]
