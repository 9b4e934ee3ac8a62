"""Spools: acknowledged positions, lost reports, and new spools."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Q
from drydock_agent import wire

from fleet.domain.actor import DRYDOCK
from fleet.domain.intake import Document, may_restart_spool
from fleet.domain.scheduling import HELD
from fleet.domain.timeline import EntryKind
from fleet.models import Spool, driver
from fleet.models.facts.machines import names_and_sets
from fleet.models.intake import WaitingReport
from fleet.models.machines import Machine
from fleet.operations.intake import presence
from fleet.operations.intake.keep import Delivery, Numbered
from fleet.operations.timeline.entries import tell

SPOOL = Spool._meta.db_table
ASK = f"""
    SELECT EXISTS (SELECT FROM {WaitingReport._meta.db_table} WHERE what = ANY(%s)),
           ARRAY(SELECT id FROM {Machine._meta.db_table} WHERE id = ANY(%s::bigint[]) AND revoked_at IS NOT NULL)
"""
MOVE = f"""
    INSERT INTO {SPOOL} AS spool (machine_id, spool, epoch, acknowledged, first_seen_at)
    SELECT given.machine_id, given.spool,
           (SELECT COALESCE(MAX(known.epoch), 0) + 1 FROM {SPOOL} AS known
            WHERE known.machine_id = given.machine_id),
           given.highest, %s
    FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS given (machine_id, spool, highest)
    ON CONFLICT (machine_id, spool) DO UPDATE
    -- The row as it is now that it is locked: another process may have taken the same reports since this statement
    -- began, and a subquery would not see that.
    SET acknowledged_before = spool.acknowledged,
        acknowledged = GREATEST(spool.acknowledged, EXCLUDED.acknowledged)
    RETURNING machine_id, spool, epoch, acknowledged, acknowledged_before,
        (SELECT MAX(known.epoch) FROM {SPOOL} AS known WHERE known.machine_id = spool.machine_id)
"""
HELD_KINDS = [what.value for what in HELD]


def ask(machine_ids: Sequence[int]) -> tuple[bool, set[int]]:
    """Return whether earlier reports still wait, and which of these machines (row ids) are revoked. Runs one query."""
    with driver.cursor() as cursor:
        waits, revoked = cursor.execute(ASK, [HELD_KINDS, driver.array(machine_ids)]).fetchone() or (False, [])
    return waits, set(revoked)


def number_spools(deliveries: Sequence[Delivery], now: datetime) -> dict[tuple[int, str], Numbered]:
    """Lock the spools of these calls, and return number and acknowledged positions by (machine row id, spool).

    A position that the agent knows is acknowledged even if the reports are not stored, because the agent no longer has
    them. Until the end of the transaction, no other process can store reports of these spools.
    """
    highest: dict[tuple[int, str], int] = {}
    for delivery in deliveries:
        highest[delivery.key] = max(highest.get(delivery.key, 0), delivery.acknowledged or 0, *delivery.numbers, 0)
    if not highest:
        return {}
    given = [now, *driver.arrays([(*key, highest[key]) for key in sorted(highest)])]
    with driver.cursor() as cursor:
        return {
            (machine_id, spool): Numbered(epoch, acknowledged, before, newest or 0)
            for machine_id, spool, epoch, acknowledged, before, newest in cursor.execute(MOVE, given)
        }


# Spools that do not continue at their offset: of lost reports, and spools that newer ones followed.

Key = tuple[int, str]
# Kind, machine (row id), data.
SpoolEntry = tuple[EntryKind, int, dict[str, Any]]
DAY = timedelta(days=1)
# A call without reports repeats nothing.
BEYOND = 2**63
# Hashes in one answer; an agent has one newest document.
MOST_WANTED = 10


@dataclass(slots=True)
class Taken:
    """The answer to one call after the commit.

    `acknowledged` and `before` are the new and the former position. `wanted` are hashes of documents that the agent
    must send. `renumber_spool`: the agent must begin a new spool.
    """

    acknowledged: int
    before: int
    wanted: list[str] = field(default_factory=list)
    renumber_spool: bool = False


def taken(
    deliveries: Sequence[Delivery],
    spools: Mapping[Key, Numbered],
    documents: Mapping[str, Document],
    *,
    fresh: set[int],
    now: datetime,
) -> dict[Key, Taken]:
    """Return the answer to each call, by (machine row id, spool), and record missing documents.

    `documents` are the known ones by hash. `fresh` are machines (row ids) whose newest document is in this batch.
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
        if wanted and delivery.acknowledged is None:
            speechless.add(delivery.key)
    lacking = {machine_id for (machine_id, _), said in found.items() if said.wanted} - fresh
    if lacking:
        presence.note_lacking(machine_ids=lacking, now=now)
    behind = {key for key, numbered in spools.items() if numbered.behind}
    if behind or speechless:
        for key in _allowed(behind | speechless, now):
            found[key].renumber_spool = True
    _record(_gaps(deliveries, spools) + _reused(deliveries, spools, behind), now)
    return found


def _allowed(keys: Iterable[Key], now: datetime) -> list[Key]:
    """Return those of these spools whose machine has not begun new spools too often. Runs one query."""
    spools = Spool.objects.filter(machine__in={machine_id for machine_id, _ in keys}).values("machine_id")
    counted = spools.annotate(newest_at=Max("first_seen_at"), begun=Count("pk", filter=Q(first_seen_at__gt=now - DAY)))
    allowed = {
        row["machine_id"] for row in counted if may_restart_spool(begun=row["begun"], since=now - row["newest_at"])
    }
    return [key for key in keys if key[0] in allowed]


def _gaps(deliveries: Sequence[Delivery], spools: Mapping[Key, Numbered]) -> list[SpoolEntry]:
    """Return a timeline entry for each range of lost reports.

    Reports are lost if the agent knows them to be acknowledged but they are not stored. For an agent that does not
    state this, numbers that it skips are possibly lost.
    """
    lost: dict[Key, tuple[int, bool]] = {}
    for delivery in deliveries:
        before, numbers = spools[delivery.key].before, delivery.numbers
        certain = delivery.acknowledged is not None
        last = delivery.acknowledged if delivery.acknowledged is not None else min(numbers, default=0) - 1
        if last > max(before, lost.get(delivery.key, (0, False))[0]):
            lost[delivery.key] = (last, certain)
    return [
        (EntryKind.REPORTS_LOST, key[0], {"first": spools[key].before + 1, "last": last, "certain": certain})
        for key, (last, certain) in sorted(lost.items())
    ]


def _reused(deliveries: Sequence[Delivery], spools: Mapping[Key, Numbered], behind: set[Key]) -> list[SpoolEntry]:
    """Return a timeline entry for each spool that sends new reports after a newer spool of its machine began."""
    speaking = {
        delivery.key
        for delivery in deliveries
        if delivery.key in behind and max(delivery.numbers, default=BEYOND) > spools[delivery.key].before
    }
    found: list[SpoolEntry] = []
    for machine_id, spool in sorted(speaking):
        newest = spools[machine_id, spool].newest
        rows = Spool.objects.filter(machine=machine_id, spool=spool, reported_epoch__lt=newest)
        if rows.update(reported_epoch=newest):
            found.append((EntryKind.SPOOL_REUSED, machine_id, {"newer": newest - spools[machine_id, spool].epoch}))
    return found


def _record(entries: Sequence[SpoolEntry], now: datetime) -> None:
    machines = names_and_sets({machine_id for _, machine_id, _ in entries})
    for kind, pk, data in entries:
        name, set_id = machines[pk]
        tell(kind, DRYDOCK, at=now, machine_id=pk, set_id=set_id, machine=name, **data)
