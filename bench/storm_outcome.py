"""The parameters of a storm, and its outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Storm:
    """One event a set, all announced within this many seconds. `approvals` are approved in bulk. The same calls request
    `refused` held events, which a guard refuses. `clicks` are approved one by one on their page meanwhile. `probes`
    have the shortest notice, so that a browser paints them on top. After the first bulk call of `chosen` events
    `worker_dies`, and is started again. Of several web processes machines have the first and people the last.
    """

    events: int = 5_000
    machines: int = 20
    within: float = 60.0
    approvals: int = 1_000
    refused: int = 100
    clicks: int = 30
    probes: int = 60
    loads: int = 2
    web_processes: int = 2
    chosen: int = 100
    browser: bool = True
    worker_dies: bool = False


@dataclass(slots=True)
class Outcome:
    """The outcome of a storm; times in seconds. `painted` and `clicks` one value each, `bulk` those of the calls.

    `asked` are the decided events, `starts` the number of requests to Azure for each, `states` the approvals of the
    fleet by state, `waiting` reports that were never acknowledged.
    """

    announced: int = 0
    known: int = 0
    sent: int = 0
    waiting: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    asked: list[str] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    results: Counter[int] = field(default_factory=Counter)
    bulk: list[float] = field(default_factory=list)
    last_start: float = 0.0
    clicks: list[float] = field(default_factory=list)
    painted: list[float] = field(default_factory=list)
    listed_after: float = 0.0
    paints_a_second: float = 0.0
    processor: dict[str, float] = field(default_factory=dict)
