"""Agents' reports: a whole batch is stored and processed in one transaction.

Steps: lock and number the spools, store new reports and documents, then process them all together: machines, then
events, then caches. If this fails, which is rare, they are processed one by one on the slow path.

Reports about a row that another session has locked then wait, with all later ones about it; all others are processed.
The next report about the row, or reconciliation, processes them in order. So no report about an event is processed
before an earlier one. It takes 1.6 to 1.9 times as long for documents without events, otherwise 1.1 to 1.5 times.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from drydock_agent import wire

from fleet.domain.db_timeouts import is_timeout
from fleet.domain.intake import PERIOD, Document
from fleet.domain.scheduling import HELD, QuarantineKind
from fleet.models import Approval, Instruction, Machine, ScheduledEvent, Sighting, WaitingReport
from fleet.operations import drills, wake_up
from fleet.operations.caches import take_notifications
from fleet.operations.events import compute
from fleet.operations.intake import keep, listings, oddities, preparations, presence, spools
from fleet.operations.intake.keep import AgentReport, KeptReport, by_kind
from fleet.operations.intake.listings import MachineDocument, TakenEvents
from fleet.operations.locks import short_lock_timeout
from fleet.operations.machines import instance
from fleet.operations.orders import advance, queue
from fleet.operations.quarantine import Quarantine, bisect_failures, is_quarantined
from fleet.operations.sets import join
from fleet.operations.timeline.entries import gathered

logger = logging.getLogger(__name__)


def record(
    *, deliveries: Sequence[keep.Delivery], now: datetime, careful: bool = False
) -> dict[spools.Key, spools.Taken]:
    """Store and process these deliveries. Return the answer to each call, by (machine row id, spool).

    Reports of a machine that was revoked since the call began are not stored, and the answer is missing. If processing
    fails, the batch is processed on the slow path: a failing event or cache is quarantined, and reports about locked
    rows wait. `careful`, or earlier waiting reports, select the slow path at once. Raises database errors and errors of
    invalid reports, also if a machine's row is locked; then nothing is stored.
    """
    if not careful:
        try:
            return _record(deliveries, now, careful=False)
        except Exception as error:
            if is_quarantined(error):
                raise
    return _record(deliveries, now, careful=True)


@gathered()
def _record(deliveries: Sequence[keep.Delivery], now: datetime, *, careful: bool) -> dict[spools.Key, spools.Taken]:
    is_lock_awaited, revoked = spools.ask([delivery.machine_id for delivery in deliveries])
    careful = careful or is_lock_awaited
    with short_lock_timeout() if careful else nullcontext():
        deliveries = [delivery for delivery in deliveries if delivery.machine_id not in revoked]
        numbered = spools.number_spools(deliveries, now)
        documents, bodies = keep.read_bodies(deliveries)
        beyond = oddities.over_measure(deliveries, bodies, documents, now=now)
        if beyond.reports:
            deliveries = oddities.without(deliveries, beyond, bodies, documents)
        places = [(machine_id, spool) for (machine_id, _), spool in numbered.items()]
        rows = keep.news_among(keep.rows_of(deliveries, numbered), places)
        news, new_hashes = keep.keep(rows, bodies, documents, now)
        oddities.record_oddities(deliveries, news, documents, new_hashes, beyond, numbered, now=now)
        found = readable(news, documents)
        ahead = oddities.bound(listings.ahead_of_latest(found) if found else [], now=now)
        if unreadable := listings.newest_unreadable(news, documents):
            presence.note_unreadable(polls=unreadable)
        # The computation needs presence: a machine that reports an event in this very batch is live.
        heard = [one for one in ahead if one.document.listings]
        presence.flush(contacts=[presence.Contact(one.machine_id, heard_at=now, poll_at=one.at) for one in heard])
        fresh = {one.machine_id for one in ahead}
        answers = spools.taken(deliveries, numbered, documents, fresh=fresh, now=now)
        versions = {delivery.machine_id: delivery.agent_version for delivery in deliveries}
        if careful:
            _take_one_by_one(news, ahead, versions, now=now)
        else:
            _take_together(news, ahead, versions, now=now)
    return answers


# By the class of their data, as `by_kind` returns them.
Reports = Mapping[type[Any], list[AgentReport[Any]]]


@dataclass(slots=True)
class EventReports:
    """Reports about events: documents, receipts of orders, hook reports, drill reports."""

    documents: list[MachineDocument] = field(default_factory=list)
    others: list[AgentReport[Any]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.documents or self.others)

    @classmethod
    def together(cls, parts: Iterable["EventReports"]) -> "EventReports":
        """Merge several objects into one. A document that is in several of them is included once."""
        parts = list(parts)
        documents = {(one.machine_id, one.position): one for part in parts for one in part.documents}
        return cls([documents[key] for key in sorted(documents)], [one for part in parts for one in part.others])

    def positions(self) -> set[tuple[int, int, int]]:
        """The positions of these reports: (machine row id, epoch, seq)."""
        said: list[MachineDocument | AgentReport[Any]] = [*self.documents, *self.others]
        return {(one.machine_id, *one.position) for one in said}


def cache_reports(reports: Reports) -> list[AgentReport[Any]]:
    """Return the reports that are about caches: messages, coverage changes, hook results."""
    return [*reports[wire.RedisData], *reports[wire.CoverageData], *reports[wire.RedisHookData]]


def readable(rows: Sequence[KeptReport], documents: Mapping[str, Document]) -> list[MachineDocument]:
    """Return the readable documents that these reports contain or refer to."""
    found = []
    for row in rows:
        document = documents.get(row.document_hash) if row.document_hash is not None else None
        if row.document_hash is not None and document is not None and document.readable:
            said = (row.report.at, row.document_hash, document.incarnation, document)
            found.append(MachineDocument(row.machine_id, (row.epoch, row.report.seq), *said))
    return found


def event_reports(reports: Reports, documents: list[MachineDocument]) -> EventReports:
    """Return the reports and documents that are about events."""
    others = [*reports[wire.ReceiptData], *reports[wire.HookData], *reports[wire.RehearsalData]]
    return EventReports(documents, others)


def _take_together(
    rows: Sequence[KeptReport], ahead: list[MachineDocument], versions: Mapping[int, str], *, now: datetime
) -> None:
    """Process new reports. `ahead` are the documents that are newer than their machine's latest one.

    `versions` are the agents' versions, by machine (row id). Locks events before approvals, and caches last.
    """
    reports = by_kind(rows)
    for one in reports[wire.InstanceData]:
        place(one, versions, now)
    if said := event_reports(reports, ahead):
        taken = take_of_events(said, now=now)
        if taken.locked:
            touched = follow(taken, now, taken.locked)
            # Commit, answer, then decide: a slow or failing decision delays no report.
            transaction.on_commit(lambda: wake_up.hint_events(touched))
    take_notifications(cache_reports(reports), now=now, careful=False)


def place(one: AgentReport[wire.InstanceData], versions: Mapping[int, str], now: datetime) -> None:
    """Process a machine's instance metadata. Beyond the hourly limit of changes it is quarantined.

    The newest quarantined one is retried after the hour.
    """
    machine = Machine.every.select_related("availability_set__merged_into").get(pk=one.machine_id)
    claim = instance.claim_of(machine, one.data)
    known = (machine.called or machine.resource_name, machine.stated_set, machine.compute, machine.node_name)
    if (claim.name, claim.stated, claim.compute, one.data.node_name) != known and not oddities.may_state(
        machine.pk, now=now
    ):
        oddities.add(QuarantineKind.BEYOND, str(machine.pk), [(machine.pk, *one.position)], now=now)
        return
    version = versions.get(machine.pk, "")
    instance.take_instance(machine, claim, node_name=one.data.node_name, now=now, agent_version=version)


def take_of_events(said: EventReports, *, now: datetime, only: Collection[str] | None = None) -> TakenEvents:
    """Merge reports about events, or only about those in `only` (EventIds). Events remain locked."""
    found = listings.merge(said.documents, now=now, only=only) if said.documents else TakenEvents()
    kinds = (wire.ReceiptData, wire.HookData, wire.RehearsalData)
    receipts, hooks, rehearsals = ([one for one in said.others if isinstance(one.data, kind)] for kind in kinds)
    found.events |= queue.events_of(receipts) | preparations.events_of(hooks) | drills.events_of(rehearsals)
    found.locked = compute.lock(found.events) if found.events else []
    listings.store(found.sightings)
    if receipts:
        queue.take(receipts, now=now)
    if hooks:
        preparations.take(hooks)
    found.new_sightings.update(drills.take(rehearsals, now=now))
    return found


def follow(taken: TakenEvents, now: datetime, events: list[ScheduledEvent]) -> list[int]:
    """Join sets, compute the state of these locked events, and advance their approvals. Return their row ids."""
    locked = {event.pk for event in events}
    events = join.settle_sets(events, {pk: who for pk, who in taken.reporters.items() if pk in locked}, now=now)
    compute.compute_state(events, now=now, new_sightings=taken.new_sightings)
    advance.advance_events(events, now=now, via="report")
    return [event.pk for event in events]


# What cannot be processed together.

# This many documents with many events are processed further by one tick, each of another machine.
DOCUMENTS = 5


def _take_one_by_one(
    rows: Sequence[KeptReport], ahead: list[MachineDocument], versions: Mapping[int, str], *, now: datetime
) -> None:
    """Process reports as `_take_together` does, but quarantine failing rows, and let reports about locked rows wait."""

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
    _take_caches(cache_reports(reports), now)


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
        touched = apart.look(sorted(taken.events), lambda pks: follow(taken, now, compute.lock(pks)))
    transaction.on_commit(lambda: wake_up.hint_events(touched))


def _all(found: Sequence[TakenEvents]) -> TakenEvents:
    every = TakenEvents()
    for one in found:
        every.events |= one.events
        for pk, machine_ids in one.reporters.items():
            every.reporters[pk] |= machine_ids
        for pk, seen in one.new_sightings.items():
            every.new_sightings[pk] += seen
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
    named = [one.data.order_id for one in said.others if isinstance(one.data, wire.ReceiptData)]
    orders = {order_id for text in named if (order_id := queue.order_id_of(text))}
    drilled = orders | {UUID(one.data.rehearsal) for one in said.others if isinstance(one.data, wire.RehearsalData)}
    asked = list(Approval.objects.filter(orders__in=orders).values_list("orders", "event__event_id"))
    asked += Instruction.objects.filter(pk__in=drilled).values_list("pk", "rehearsal__drill__event__event_id")
    events = {str(order_id): event_id for order_id, event_id in asked}
    for report in said.others:
        match report.data:
            case wire.ReceiptData():
                event_id = events.get(report.data.order_id, "")
            case wire.RehearsalData():
                event_id = events.get(report.data.rehearsal, "")
            case _:
                event_id = report.data.event_id.strip().upper()
        found[event_id].others.append(report)
    return dict(found)


def _take_caches(said: Sequence[AgentReport[Any]], now: datetime, *, also: Collection[str] = ()) -> None:
    positions: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
    for one in said:
        positions[one.data.cache].add((one.machine_id, *one.position))
    hosts = {*positions, *also}
    if not hosts:
        return
    older: set[str] = set()

    def take_these(some: Sequence[str]) -> list[None]:
        rows = oddities.claim(QuarantineKind.CACHE, some)
        older.update(row.about for row in rows)
        for part in (cache_reports(by_kind(oddities.load(rows))), said):
            take_notifications([one for one in part if one.data.cache in some], now=now, careful=True)
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
        _take_caches((), now, also=hosts)
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
    calls.append(partial(take_notifications, cache_reports(reports), now=now, careful=True))

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
        documents, portion, is_all = oddities.rest_of(found[0]) if found else ([], frozenset(), True)
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
