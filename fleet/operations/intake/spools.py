"""Spools that do not go on where they were: reports that are here no longer, and spools that newer ones followed.

After a backup was restored, an agent says that it was told of acknowledgements which the database knows nothing of. And
a state folder that was put back brings a spool that speaks after a newer one. Its word would count as old for ever, so
its agent is told to begin anew. A delivery that was only late on its way has nobody who hears that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Q
from drydock_agent import wire

from fleet.domain.actor import DRYDOCK
from fleet.domain.intake.documents import Document
from fleet.domain.intake.spools import may_begin_anew
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, Machine, Spool
from fleet.operations.intake import presence
from fleet.operations.intake.keep import Delivery, Numbered
from fleet.operations.timeline.entries import entry

Key = tuple[int, str]
# Kind, machine (row id), data.
Told = tuple[EntryKind, int, dict[str, Any]]
DAY = timedelta(days=1)
# A call without reports repeats nothing.
BEYOND = 2**63
# Hashes in one answer; an agent has one newest document.
MOST_WANTED = 10


@dataclass(slots=True)
class Taken:
    """What one call is answered, by what was committed: up to where it is acknowledged now and was before, documents
    that reminders name and nobody has sent (hashes), and whether the agent is to begin a new spool.
    """

    acknowledged: int
    before: int
    wanted: list[str] = field(default_factory=list)
    begin_anew: bool = False


def taken(
    deliveries: Sequence[Delivery],
    spools: Mapping[Key, Numbered],
    documents: Mapping[str, Document],
    *,
    fresh: set[int],
    now: datetime,
) -> tuple[dict[Key, Taken], list[Entry]]:
    """What each call is answered, by (machine row id, spool), and the entries of what is missing.

    `documents` are those known by hash, `fresh` the machines (row ids) whose newest document came in this batch.
    """
    found = {key: Taken(numbered.acknowledged, numbered.before) for key, numbered in spools.items()}
    speechless: set[Key] = set()
    for delivery in deliveries:
        said = found[delivery.key]
        wanted = {
            report.data.hash
            for report in delivery.reports
            if isinstance(report.data, wire.ReminderData) and report.data.hash not in documents
        }
        said.wanted = sorted({*said.wanted, *wanted})[:MOST_WANTED]
        if wanted and delivery.told is None:
            speechless.add(delivery.key)
    lacking = {machine_id for (machine_id, _), said in found.items() if said.wanted} - fresh
    if lacking:
        presence.note_lacking(machine_ids=lacking, now=now)
    behind = {key for key, numbered in spools.items() if numbered.behind}
    if behind or speechless:
        for key in _allowed(behind | speechless, now):
            found[key].begin_anew = True
    return found, _entries(_gaps(deliveries, spools) + _reused(deliveries, spools, behind), now)


def _allowed(keys: Iterable[Key], now: datetime) -> list[Key]:
    """Of these spools, those whose machine has not begun anew too often. One query."""
    spools = Spool.objects.filter(machine__in={machine_id for machine_id, _ in keys}).values("machine_id")
    counted = spools.annotate(newest_at=Max("first_seen_at"), begun=Count("pk", filter=Q(first_seen_at__gt=now - DAY)))
    allowed = {row["machine_id"] for row in counted if may_begin_anew(begun=row["begun"], since=now - row["newest_at"])}
    return [key for key in keys if key[0] in allowed]


def _gaps(deliveries: Sequence[Delivery], spools: Mapping[Key, Numbered]) -> list[Told]:
    """Reports that never come any more: acknowledged and not here, or, of an agent that does not say, left out."""
    lost: dict[Key, tuple[int, bool]] = {}
    for delivery in deliveries:
        before, numbers = spools[delivery.key].before, delivery.numbers
        if delivery.told is not None:
            last, certain = delivery.told, True
        else:
            last, certain = min(numbers, default=0) - 1, False
        if last > max(before, lost.get(delivery.key, (0, False))[0]):
            lost[delivery.key] = (last, certain)
    return [
        (EntryKind.REPORTS_LOST, key[0], {"first": spools[key].before + 1, "last": last, "certain": certain})
        for key, (last, certain) in sorted(lost.items())
    ]


def _reused(deliveries: Sequence[Delivery], spools: Mapping[Key, Numbered], behind: set[Key]) -> list[Told]:
    """Spools that speak after newer ones, each told once; what only repeats what is known says nothing of it."""
    speaking = {
        delivery.key
        for delivery in deliveries
        if delivery.key in behind and max(delivery.numbers, default=BEYOND) > spools[delivery.key].before
    }
    found: list[Told] = []
    for machine_id, spool in sorted(speaking):
        newest = spools[machine_id, spool].newest
        rows = Spool.objects.filter(machine=machine_id, spool=spool, told_epoch__lt=newest)
        if rows.update(told_epoch=newest):
            found.append((EntryKind.SPOOL_REUSED, machine_id, {"newer": newest - spools[machine_id, spool].epoch}))
    return found


def _entries(told: Sequence[Told], now: datetime) -> list[Entry]:
    if not told:
        return []
    rows = Machine.objects.filter(pk__in={machine_id for _, machine_id, _ in told})
    places = {pk: (name, home) for pk, name, home in rows.values_list("pk", "resource_name", "availability_set_id")}
    return [
        entry(kind, DRYDOCK, at=now, machine_id=pk, set_id=places[pk][1], machine=places[pk][0], **data)
        for kind, pk, data in told
    ]
