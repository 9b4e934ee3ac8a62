"""Listeners of a cache that are cut off and come back together, as one line: each leaves two entries."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from fleet.domain.orders.series import Series
from fleet.domain.reason import Reason
from fleet.domain.timeline import EntryKind
from fleet.domain.times import close_together

LOST = (EntryKind.CACHE_LOST, EntryKind.CACHE_LOST_UNANNOUNCED)
KINDS = (*LOST, EntryKind.CACHE_LISTENED)
# What happens so soon after the last is of one outage.
TOGETHER = timedelta(seconds=60)
# Fewer machines are told one by one.
LEAST = 2


class ToldLine(Protocol):
    """An entry of the timeline, as far as it matters here."""

    @property
    def id(self) -> int: ...
    @property
    def at(self) -> datetime: ...
    @property
    def kind(self) -> EntryKind: ...
    @property
    def actor(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


def outages_of(lines: Sequence[ToldLine]) -> dict[int, Series]:
    """By the id of each entry that tells of a listener: what it belongs to, where others belong to it, too."""
    by_host: dict[str, list[ToldLine]] = defaultdict(list)
    for line in lines:
        if line.kind in KINDS and "host" in line.data:
            by_host[str(line.data["host"])].append(line)
    told: dict[int, Series] = {}
    for host, found in by_host.items():
        for group in close_together(found, at=lambda line: line.at, within=TOGETHER):
            if len({line.actor for line in group}) >= LEAST:
                # `found` stands as the lines are listed: the first of the group begins the series.
                members = {line.id for line in group}
                first = next(line.id for line in found if line.id in members)
                series = _series(first, host, group)
                told |= dict.fromkeys(members, series)
    return told


def _series(first: int, host: str, group: Sequence[ToldLine]) -> Series:
    lost: dict[str, datetime] = {}
    back: dict[str, datetime] = {}
    for line in group:
        (lost if line.kind in LOST else back)[line.actor] = line.at
    away = sorted(name for name, at in lost.items() if name not in back or back[name] < at)
    longest = _longest(lost, back)
    text = Reason(
        "listeners-cut-off" if lost else "listeners-came",
        host=host,
        count=len(lost or back),
        away=away,
        seconds=longest,
        unannounced=any(line.kind is EntryKind.CACHE_LOST_UNANNOUNCED for line in group),
    )
    return Series(id=first, count=len(group), first_at=group[0].at, last_at=group[-1].at, text=text)


def _longest(lost: Mapping[str, datetime], back: Mapping[str, datetime]) -> float | None:
    spans: Iterable[float] = ((back[name] - at).total_seconds() for name, at in lost.items() if name in back)
    return max((seconds for seconds in spans if seconds >= 0), default=None)
