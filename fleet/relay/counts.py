"""Celery signal handlers: count tasks, pass on the trace of a decision, and record when beat last sent a task."""

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis
import structlog
from celery import signals

from fleet.domain.gauges import BEAT, CELERY_HASH, CELERY_HASH_SECONDS, COUNT, SECONDS
from fleet.domain.trace import trace_as_kept
from fleet.operations import clock
from fleet.operations.wake_up import redis_client


@signals.beat_init.connect(dispatch_uid="fleet.relay.clock")
def _use_database_clock(sender: Any, **_: Any) -> None:
    sender.app.now = clock.now


# What Celery's processes count: tasks by outcome, and when beat last sent one, left on Redis for `/metrics`.

PAUSE_SECONDS = 2.0
OUTCOME_OF_STATE = {"SUCCESS": "succeeded", "FAILURE": "failed", "RETRY": "retried"}
# Any client that can write to the broker may give a task any name.
UNKNOWN = "unknown"


class Counts:
    """Counts of one process that are not added to Redis yet. A background thread adds them regularly."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._beat = 0.0
        self._process = 0

    def ended(self, task: str, outcome: str, seconds: float) -> None:
        """Count a finished task. `seconds` is the run time."""
        with self._lock:
            self._counted[f"{COUNT} {outcome} {task}"] += 1
            self._seconds[f"{SECONDS} {task}"] += seconds
        self._see_to_it()

    def sent(self, at: float) -> None:
        """Record when beat sent a task, in seconds since 1970 by the database's clock."""
        with self._lock:
            self._beat = at
        self._see_to_it()

    def flush(self, client: redis.Redis) -> None:
        """Add the counts to those in Redis. Raises redis-py's errors; the counts then remain for the next call."""
        with self._lock:
            counted, self._counted = self._counted, Counter()
            seconds, self._seconds = self._seconds, defaultdict(float)
            beat, self._beat = self._beat, 0.0
        if not counted and not beat:
            return
        try:
            with client.pipeline() as pipe:
                for field, count in counted.items():
                    pipe.hincrby(CELERY_HASH, field, count)
                for field, took in seconds.items():
                    pipe.hincrbyfloat(CELERY_HASH, field, took)
                if beat:
                    pipe.hset(CELERY_HASH, BEAT, repr(beat))
                pipe.expire(CELERY_HASH, CELERY_HASH_SECONDS)
                pipe.execute()
        except (redis.RedisError, OSError):
            with self._lock:
                self._counted += counted
                for field, took in seconds.items():
                    self._seconds[field] += took
                self._beat = self._beat or beat
            raise

    def _see_to_it(self) -> None:
        """Start the background thread if this process has none. After a fork, the parent's thread does not exist any
        more.
        """
        if self._process != os.getpid():
            self._process = os.getpid()
            threading.Thread(target=self._run, name="counts", daemon=True).start()

    def _run(self) -> None:
        client = redis_client(2)
        while True:
            time.sleep(PAUSE_SECONDS)
            try:
                self.flush(client)
            except (redis.RedisError, OSError):
                # Callers that need Redis for more than counts report it.
                continue


counts = Counts()
log = structlog.get_logger(__name__)
# When each running task began, and whether it concerns one decision, as its sender stated.
_began: dict[str, tuple[float, bool]] = {}


@signals.task_prerun.connect(dispatch_uid="fleet.relay.counts")
def _begin(task_id: str, task: Any, **_: Any) -> None:
    """Bind the decision that the task concerns to each line that is logged meanwhile."""
    structlog.contextvars.clear_contextvars()
    headers = getattr(task.request, "headers", None)
    words: Mapping[str, Any] = headers if isinstance(headers, dict) else {}
    trace = trace_as_kept(words.get("request_id"), words.get("trace_id"))
    structlog.contextvars.bind_contextvars(**(trace.words if trace else {}))
    _began[task_id] = time.monotonic(), trace is not None


@signals.task_postrun.connect(dispatch_uid="fleet.relay.counts")
def _end(task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
    """Count a finished task, and log one line if it concerns a decision. Beat's regular tasks are logged only if they
    fail.
    """
    ended = time.monotonic()
    began, is_traced = _began.pop(task_id, (ended, False))
    counts.ended(task.name, OUTCOME_OF_STATE.get(state or "", "dropped"), ended - began)
    if is_traced:
        milliseconds = round((ended - began) * 1000, 1)
        log.info("task", task=task.name, task_id=task_id, outcome=(state or "").lower(), ms=milliseconds)
    structlog.contextvars.clear_contextvars()


@signals.task_revoked.connect(dispatch_uid="fleet.relay.counts")
def _drop(request: Any = None, **_: Any) -> None:
    counts.ended(request.task, "dropped", 0.0)


@signals.task_unknown.connect(dispatch_uid="fleet.relay.counts")
def _refuse(**_: Any) -> None:
    counts.ended(UNKNOWN, "dropped", 0.0)


@signals.beat_init.connect(dispatch_uid="fleet.relay.counts")
def _beat_begins(**_: Any) -> None:
    """Begin to record the tasks that this process sends, because it is Celery beat."""
    signals.after_task_publish.connect(_note_sent, dispatch_uid="fleet.relay.counts")


def _note_sent(**_: Any) -> None:
    counts.sent(clock.now().timestamp())


@contextmanager
def each(traces: Iterable[Mapping[str, str]], *, task: str) -> Iterator[None]:
    """Log one line for each decision (by trace) that a task with several decisions has processed."""
    began, outcome = time.monotonic(), "failure"
    try:
        yield
        outcome = "success"
    finally:
        took = round((time.monotonic() - began) * 1000, 1)
        for said in traces:
            known = trace_as_kept(said.get("request_id"), said.get("trace_id"))
            if known is not None:
                log.info("task", task=task, outcome=outcome, ms=took, **known.words)
