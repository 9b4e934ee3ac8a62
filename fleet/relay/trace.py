"""Which decision a task is about, as whoever sent it said: bound for each line that is logged meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import structlog
from celery import signals

from fleet.domain.trace import trace_as_kept

log = structlog.get_logger(__name__)

_began: dict[str, float] = {}


@signals.task_prerun.connect(dispatch_uid="fleet.relay.trace")
def _bind(task_id: str = "", task: Any = None, **_: Any) -> None:
    structlog.contextvars.clear_contextvars()
    headers = getattr(task.request, "headers", None)
    said: Mapping[str, Any] = headers if isinstance(headers, dict) else {}
    trace = trace_as_kept(said.get("request_id"), said.get("trace_id"))
    if trace is not None:
        structlog.contextvars.bind_contextvars(**trace.words)
        _began[task_id] = time.monotonic()


@signals.task_postrun.connect(dispatch_uid="fleet.relay.trace")
def _say(task_id: str = "", task: Any = None, state: str | None = None, **_: Any) -> None:
    """One line for what a decision sent; what beat sends every two seconds is counted, and said when it fails."""
    began = _began.pop(task_id, None)
    if began is not None:
        took = round((time.monotonic() - began) * 1000, 1)
        log.info("task", task=task.name, task_id=task_id, outcome=(state or "").lower(), ms=took)
    structlog.contextvars.clear_contextvars()


@contextmanager
def each(traces: Iterable[Mapping[str, str]], *, task: str) -> Iterator[None]:
    """The same line for each of several decisions that one task is about."""
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
