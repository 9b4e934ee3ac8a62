"""Machines that enrol together, as one line."""

from collections.abc import Sequence
from datetime import timedelta

from fleet.domain.caches.outages import ToldLine
from fleet.domain.orders.series import Series
from fleet.domain.reason import Reason
from fleet.domain.timeline import EntryKind
from fleet.domain.times import close_together

TOGETHER = timedelta(seconds=60)
LEAST = 3


def arrivals_of(lines: Sequence[ToldLine]) -> dict[int, Series]:
    """By the id of each entry that tells of an enrolment: what it belongs to, where others belong to it, too."""
    told: dict[int, Series] = {}
    found = [line for line in lines if line.kind is EntryKind.MACHINE_ENROLLED]
    for group in close_together(found, at=lambda line: line.at, within=TOGETHER):
        if len(group) >= LEAST:
            members = {line.id for line in group}
            first = next(line.id for line in found if line.id in members)
            names = sorted({line.actor for line in group})
            text = Reason("machines-came", names=names, count=len(names))
            series = Series(id=first, count=len(group), first_at=group[0].at, last_at=group[-1].at, text=text)
            told |= dict.fromkeys(members, series)
    return told
