"""Processes reports one by one if they cannot all be processed together.

Reports about a row that another session has locked wait, with all later ones about it; all others are processed. The
next report about the row, or reconciliation, processes them in order. So no report about an event is processed before
an earlier one. It takes 1.6 to 1.9 times as long as `fast_path` for documents without events, otherwise 1.1 to 1.5
times.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db import transaction
from drydock_agent import wire

from fleet.domain.db_timeouts import is_timeout
from fleet.domain.intake import PERIOD
from fleet.domain.scheduling import HELD, QuarantineKind
from fleet.models import Approval, Instruction, ScheduledEvent, Sighting, WaitingReport
from fleet.operations import wake_up
from fleet.operations.events import compute
from fleet.operations.intake import bounds, keep, oddities
from fleet.operations.intake.keep import AgentReport, KeptReport, by_kind
from fleet.operations.intake.listings import MachineDocument
from fleet.operations.orders import queue
from fleet.operations.quarantine import Quarantine, bisect_failures, is_quarantined
from fleet.operations.reports.fast_path import (
    CacheReports,
    EventReports,
    TakenEvents,
    event_reports,
    follow,
    place,
    readable,
    take_of_events,
)

logger = logging.getLogger(__name__)
# This many documents with many events are processed further by one tick, each of another machine.
DOCUMENTS = 5


def take(
    rows: Sequence[KeptReport], ahead: list[MachineDocument], versions: Mapping[int, str], *, now: datetime
) -> None:
    """Process reports as `fast_path.take` does, but quarantine failing rows, and let reports about locked rows wait."""

    def fail(one: AgentReport[wire.InstanceData], _: Exception) -> None:
        oddities.add(QuarantineKind.MACHINE, str(one.machine_id), [(one.machine_id, *one.position)], now=now)

    def place_one(some: Sequence[AgentReport[wire.InstanceData]]) -> list[None]:
        place(some[0], versions, now)
        return []

    reports = by_kind(rows)
    for report in reports[wire.InstanceData]:
        bisect_failures([report], place_one, fail, splits=is_timeout, hurried=True)
    if said := event_reports(reports, ahead):
        _take_events(said, now)
    _take_caches(CacheReports.among(reports), now)


def _take_events(said: EventReports, now: datetime, *, also: Collection[str] = ()) -> None:
    """Process reports about events, with the waiting reports about the same events and those in `also` (EventIds)."""
    machines = {one.machine_id for one in said.documents}
    by_event = _by_event(said, oddities.waiting(QuarantineKind.EVENT, also, machines))
    by_event |= {event_id: EventReports() for event_id in also if event_id not in by_event}
    pks = dict(ScheduledEvent.objects.filter(event_id__any=list(by_event)).values_list("event_id", "pk"))
    free = {event.event_id for event in compute.lock(pks.values(), pass_by=True)}
    held = [event_id for event_id in pks if event_id not in free]
    older: set[str] = set()

    def take_these(event_ids: Sequence[str]) -> list[TakenEvents]:
        rows = oddities.claim(QuarantineKind.EVENT, event_ids)
        older.update(row.about for row in rows)
        found = []
        for part in (_load(rows), EventReports.together(by_event[event_id] for event_id in event_ids)):
            if part:
                taken = take_of_events(part, now=now, only=event_ids)
                found.append(taken)
        oddities.taken(rows)
        return found

    def fail(event_id: str, error: Exception) -> None:
        if not is_timeout(error):
            # An error of an earlier waiting report must not be attributed to the present one.
            if event_id not in older:
                raise error
            if event_id in pks:
                Quarantine(QuarantineKind.EVENT, now=now).quarantine(pks[event_id], error)
        held.append(event_id)

    chosen = sorted(by_event.keys() - set(held))

    def splits(error: Exception) -> bool:
        return is_timeout(error) or (bool(older) and not is_quarantined(error))

    found = bisect_failures(chosen, take_these, fail, splits=splits, hurried=True) if chosen else []
    taken = _all(found)
    for event_id in held:
        oddities.add(QuarantineKind.EVENT, event_id, by_event[event_id].positions(), now=now)
    with Quarantine(QuarantineKind.EVENT, now=now) as apart:
        touched = apart.look(sorted(taken.events), partial(_follow, taken, now))
    transaction.on_commit(lambda: wake_up.hint_events(touched))


def _follow(taken: TakenEvents, now: datetime, event_pks: Sequence[int]) -> list[int]:
    return follow(taken, now, compute.lock(event_pks))


def _all(found: Sequence[TakenEvents]) -> TakenEvents:
    every = TakenEvents()
    for one in found:
        every.events |= one.events
        for pk, machine_ids in one.reporters.items():
            every.reporters[pk] = every.reporters.get(pk, set()) | machine_ids
        for pk, seen in one.new_sightings.items():
            every.new_sightings[pk] = [*every.new_sightings.get(pk, ()), *seen]
    return every


def _by_event(said: EventReports, waits: Mapping[str, Sequence[WaitingReport]]) -> dict[str, EventReports]:
    """Return the reports by EventId; an empty EventId for those about no event.

    A document is about the events that it lists, and about those that its machine listed before.
    """
    found: dict[str, EventReports] = defaultdict(EventReports)
    about: dict[int, set[str]] = defaultdict(set)
    for one in said.documents:
        about[one.machine_id] |= {listing.event_id for listing in one.listings}
    listed = Sighting.objects.filter(machine_id__any=list(about), gone_at__isnull=True, event__drill=False)
    for machine_id, event_id in listed.values_list("machine_id", "event__event_id") if about else ():
        about[machine_id].add(event_id)
    for event_id, rows in waits.items():
        for row in rows:
            if row.machine_id in about:
                about[row.machine_id].add(event_id)
    for one in said.documents:
        for event_id in about[one.machine_id]:
            found[event_id].documents.append(one)
    orders = {order_id for one in said.receipts if (order_id := queue.order_id_of(one.data.order_id))}
    instructions = orders | {UUID(one.data.rehearsal) for one in said.rehearsals}
    asked: dict[str, str] = {}
    for order_id, event_id in Approval.objects.filter(orders__in=orders).values_list("orders", "event__event_id"):
        asked[str(order_id)] = event_id
    drilled = Instruction.objects.filter(pk__in=instructions).values_list("pk", "rehearsal__drill__event__event_id")
    for order_id, event_id in drilled:
        asked[str(order_id)] = event_id
    for receipt in said.receipts:
        found[asked.get(receipt.data.order_id, "")].receipts.append(receipt)
    for rehearsal in said.rehearsals:
        found[asked.get(rehearsal.data.rehearsal, "")].rehearsals.append(rehearsal)
    for hook in said.hooks:
        found[hook.data.event_id.strip().upper()].hooks.append(hook)
    return dict(found)


def _take_caches(said: CacheReports, now: datetime, *, also: Collection[str] = ()) -> None:
    positions = said.positions()
    hosts = {*positions, *also}
    if not hosts:
        return
    older: set[str] = set()

    def take_these(some: Sequence[str]) -> list[None]:
        rows = oddities.claim(QuarantineKind.CACHE, some)
        older.update(row.about for row in rows)
        if rows:
            CacheReports.among(by_kind(oddities.load(rows))).of(some).take(now, careful=True)
        said.of(some).take(now, careful=True)
        oddities.taken(rows)
        return []

    def fail(host: str, error: Exception) -> None:
        if not is_timeout(error):
            if host not in older:
                raise error
            logger.error("what waits of %s cannot be taken", host, exc_info=error)
        oddities.add(QuarantineKind.CACHE, host, positions.get(host, ()), now=now)

    def splits(error: Exception) -> bool:
        return is_timeout(error) or (bool(older) and not is_quarantined(error))

    bisect_failures(sorted(hosts), take_these, fail, splits=splits, hurried=True)


def _load(rows: Sequence[WaitingReport]) -> EventReports:
    kept = oddities.load(rows)
    hashes = {row.document_hash for row in kept if row.document_hash is not None}
    documents = keep.read_again(hashes) if hashes else {}
    return event_reports(by_kind(kept), readable(kept, documents))


# Of what waits


def catch_up(*, now: datetime) -> None:
    """Process waiting reports whose locks are released, and those of machines that sent many. Runs one query if none
    waits.

    Reports of each machine have their own transaction. Otherwise the machine's next report would wait for those of
    others.
    """
    kinds = oddities.kinds()
    if kinds & set(HELD):
        _catch_up_held(now)
    if QuarantineKind.DOCUMENT in kinds:
        for row in oddities.documents(DOCUMENTS):
            bisect_failures([row], partial(_take_portion, now=now), _give_up_rest, splits=lambda _: True, hurried=True)
    if QuarantineKind.BEYOND in kinds:
        _try_again(now)


@transaction.atomic
def _catch_up_held(now: datetime) -> None:
    waits = oddities.oldest(now=now)
    for machine_id in sorted(waits[QuarantineKind.MACHINE]):
        bisect_failures([machine_id], partial(_place_again, now=now), _give_up)
    if events := waits[QuarantineKind.EVENT]:
        _take_events(EventReports(), now, also=events)
    if hosts := waits[QuarantineKind.CACHE]:
        _take_caches(CacheReports([], [], []), now, also=hosts)
    if waits:
        oddities.show(now=now)


@transaction.atomic
def _try_again(now: datetime) -> None:
    """Retry reports that exceeded a machine's limit in an earlier hour. Of instance metadata only the newest is
    retried.
    """
    rows = oddities.over_limit(before=now - PERIOD)
    if not rows:
        return
    # They may be beyond the bounds once more, and wait again then.
    oddities.taken(rows)
    reports = by_kind(oddities.load(rows))
    newest = {one.machine_id: one for one in reports[wire.InstanceData]}
    calls: list[Callable[[], None]] = [partial(place, stated, {}, now) for stated in newest.values()]
    calls.append(partial(CacheReports.among(reports).take, now, careful=True))

    def make(some: Sequence[Callable[[], None]]) -> list[None]:
        return [call() for call in some]

    def fail(_: object, error: Exception) -> None:
        logger.error("what was beyond the bounds of a machine cannot be taken", exc_info=error)

    for call in calls:
        bisect_failures([call], make, fail, hurried=True)


def _take_portion(rows: Sequence[WaitingReport], now: datetime) -> list[None]:
    for row in rows:
        kept = oddities.load([row])
        found = readable(kept, keep.read_again({one.document_hash for one in kept if one.document_hash}))
        documents, portion, is_all = bounds.rest_of(found[0]) if found else ([], frozenset(), True)
        if portion:
            taken = take_of_events(EventReports(documents=documents), now=now, only=portion)
            touched = follow(taken, now, taken.locked)
            transaction.on_commit(partial(wake_up.hint_events, touched))
        if is_all:
            oddities.taken([row])
        else:
            waiting = WaitingReport.objects.filter(what=QuarantineKind.DOCUMENT.value, machine_id=row.machine_id)
            waiting.update(since=now)
    return []


def _give_up_rest(row: WaitingReport, error: Exception) -> None:
    if not is_timeout(error) and not is_quarantined(error):
        logger.error("the rest of a document of machine %s cannot be taken", row.machine_id, exc_info=error)
        oddities.taken([row])


def _place_again(machine_ids: Sequence[str], *, now: datetime) -> list[None]:
    rows = oddities.claim(QuarantineKind.MACHINE, machine_ids)
    for one in by_kind(oddities.load(rows))[wire.InstanceData]:
        place(one, {}, now)
    oddities.taken(rows)
    return []


def _give_up(machine_id: str, error: Exception) -> None:
    if not is_timeout(error):
        logger.error("what machine %s said of itself cannot be taken", machine_id, exc_info=error)
        oddities.taken(oddities.claim(QuarantineKind.MACHINE, [machine_id]))
