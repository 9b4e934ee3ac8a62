"""A storm: thousands of events announced within a minute, then a thousand approvals in bulk.

STORM_SHARE plays a part of it, and STORM_PROCESSES=1 has one web process for machines and people. Time is measured
outside. Seen: the first machine of a set has read the event. Painted: a browser's queue shows the row. Azure: the
simulator got `StartRequests`.
"""

from __future__ import annotations

import os

from bench.stage import Stage
from bench.storm_outcome import Outcome, Storm
from bench.storm_play import play
from bench.table import Line, at_most, number

SHARE = float(os.environ.get("STORM_SHARE", "1"))
PROCESSES = int(os.environ.get("STORM_PROCESSES", "2"))


def measure(stage: Stage) -> list[Line]:
    whole = Storm()
    storm = Storm(
        events=round(whole.events * SHARE),
        within=whole.within * SHARE,
        approvals=round(whole.approvals * SHARE),
        refused=round(whole.refused * SHARE),
        clicks=max(5, round(whole.clicks * SHARE)),
        probes=max(5, round(whole.probes * SHARE)),
        web_processes=PROCESSES,
    )
    return lines(storm, play(stage, storm))


def lines(storm: Storm, outcome: Outcome) -> list[Line]:
    documents = f"{number(outcome.sent)} documents of {number(storm.events * storm.machines)} machines"
    lost = outcome.announced - outcome.known + outcome.waiting
    wrong = sum(outcome.starts.get(event_id, 0) != 1 for event_id in outcome.asked)
    wrong += sum(event_id not in set(outcome.asked) for event_id in outcome.starts)
    made = [
        Line(
            f"storm: {number(outcome.announced)} events, all listed",
            f"{outcome.listed_after:.1f} s",
            f"{documents}; announced within {storm.within:.0f} s; answers {dict(outcome.answers)}",
        ),
        _p99("storm: seen → painted", "storm-painted", outcome.painted, 5.0),
        Line(
            "storm: bulk → last StartRequests",
            f"{outcome.last_start:.1f} s",
            f"{len(outcome.bulk)} calls, {sum(outcome.bulk):.1f} s; answers {dict(outcome.results)}",
            key="storm-bulk",
            ratio=outcome.last_start,
            aim=at_most(60),
        ),
        _p99("storm: click → StartRequests", "storm-click", outcome.clicks, 1.0),
        Line("storm: lost", f"{lost}", "events or reports", key="storm-lost", ratio=lost, aim=at_most(0)),
        Line(
            "storm: not exactly once at Azure",
            f"{wrong}",
            f"of {len(outcome.asked)}; approvals {outcome.states}",
            key="storm-not-once",
            ratio=wrong,
            aim=at_most(0),
        ),
        Line("storm: paintings of an open queue", f"{outcome.paints_a_second:.1f}/s"),
    ]
    share = ", ".join(f"{name} {seconds:.1f}" for name, seconds in outcome.processor.items())
    made.append(Line("storm: processor", f"{sum(outcome.processor.values()):.0f} s", share))
    return made


def _p99(what: str, key: str, times: list[float], most: float) -> Line:
    if not times:
        return Line(what, "not measured")
    ordered = sorted(times)
    p50, p99 = (ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.99))
    note = f"p99 of {len(ordered)}; p50 {p50:.2f} s"
    return Line(what, f"{p99:.2f} s", note, key=key, ratio=p99, aim=at_most(most))
