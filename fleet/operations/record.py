"""Taking reports: one transaction for a whole batch of deliveries.

Phases: number the spools, keep the bodies, keep the observations, merge documents that are news, take receipts, compute
the events concerned, relay what follows from that, then what was heard of caches: their locks come last.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.aside import What
from fleet.domain.intake.documents import UNUSABLE, Document
from fleet.domain.reason import Reason
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, Machine, ScheduledEvent
from fleet.operations import wake_up
from fleet.operations.aside import Apart, is_away
from fleet.operations.caches import notifications
from fleet.operations.drills import sightings
from fleet.operations.events import compute
from fleet.operations.intake import keep, listings, preparations, presence, spools
from fleet.operations.intake.keep import of_kind
from fleet.operations.machines import instance
from fleet.operations.orders import advance, receipts
from fleet.operations.sets import join
from fleet.operations.timeline.entries import entry, write


def record(*, deliveries: Sequence[keep.Delivery], now: datetime) -> dict[spools.Key, spools.Taken]:
    """Commit these deliveries; what each is answered, by (machine row id, spool).

    Nothing is taken from a machine that was revoked since its call began: it is not among the answers. What fails is
    done once more with care: an event or a cache that cannot be computed is set aside, and what was said of it is kept.
    Raises whatever the database or a broken report raises; then nothing of the batch is kept.
    """
    try:
        return _record(deliveries, now, careful=False)
    except Exception as error:
        if is_away(error):
            raise
    return _record(deliveries, now, careful=True)


@transaction.atomic
def _record(deliveries: Sequence[keep.Delivery], now: datetime, *, careful: bool) -> dict[spools.Key, spools.Taken]:
    named = [delivery.machine_id for delivery in deliveries]
    revoked = set(Machine.objects.filter(pk__any=named, revoked_at__isnull=False).values_list("pk", flat=True))
    deliveries = [delivery for delivery in deliveries if delivery.machine_id not in revoked]
    numbered = keep.number_spools(deliveries, now)
    documents, new_hashes = keep.keep_bodies(deliveries, now)
    rows = keep.rows_of(deliveries, numbered)
    new = keep.keep_observations(rows, now)
    news = [row for row in rows if row.key in new]
    written = _oddities(deliveries, news, documents, new_hashes, now)
    readable = _readable(news, documents)
    ahead = listings.ahead_of_latest(readable) if readable else []
    merged = listings.merge(ahead, now=now) if ahead else None
    fresh = {one.machine_id for one in ahead}
    answers, missing = spools.taken(deliveries, numbered, documents, fresh=fresh, now=now)
    written += missing
    answered = of_kind(news, wire.ReceiptData)
    hooks = of_kind(news, wire.HookData)
    rehearsed = of_kind(news, wire.RehearsalData)
    versions = {delivery.machine_id: delivery.agent_version for delivery in deliveries}
    for one in of_kind(news, wire.InstanceData):
        version = versions[one.machine_id]
        written += instance.take_instance(one.machine_id, one.data, now=now, agent_version=version)
    concerned = merged.touched if merged else set()
    concerned = (
        concerned | receipts.events_of(answered) | preparations.events_of(hooks) | sightings.events_of(rehearsed)
    )
    if concerned:
        events = compute.lock(concerned)
        if merged is not None:
            _note_presence(ahead, merged, now)
    written += receipts.take(answered, now=now)
    written += preparations.take(hooks)
    pretended, odd = sightings.take(rehearsed, now=now)
    written += odd
    if concerned:
        new_sightings = {**(merged.new_sightings if merged else {}), **pretended}
        follow = partial(_follow, merged.reporters if merged else {}, new_sightings, now)
        with Apart(What.EVENT, now=now) as apart:
            touched = (
                apart.look(sorted(concerned), lambda pks: follow(compute.lock(pks))) if careful else follow(events)
            )
        # Commit, answer, then decide: nothing that is slow or goes wrong in deciding holds up a report.
        transaction.on_commit(lambda: wake_up.hint_events(touched))
    written += notifications.take(
        of_kind(news, wire.RedisData),
        of_kind(news, wire.CoverageData),
        of_kind(news, wire.RedisHookData),
        now=now,
        careful=careful,
    )
    write(written)
    return answers


def _follow(
    reporters: Mapping[int, set[int]],
    new_sightings: Mapping[int, Sequence[int]],
    now: datetime,
    events: list[ScheduledEvent],
) -> list[int]:
    """Settle the sets of these locked events, compute them and go on with their approvals; their row ids."""
    locked = {event.pk for event in events}
    events = join.settle_sets(events, {pk: who for pk, who in reporters.items() if pk in locked}, now=now)
    compute.compute_state(events, now=now, new_sightings=new_sightings)
    advance.advance_events(events, now=now, via="report")
    return [event.pk for event in events]


def _readable(news: Sequence[keep.KeptReport], documents: dict[str, Document]) -> list[listings.MachineDocument]:
    return [
        listings.MachineDocument(
            machine_id=row.machine_id,
            position=(row.epoch, row.report.seq),
            at=row.report.at,
            document_hash=row.document_hash,
            incarnation=document.incarnation,
            document=document,
        )
        for row in news
        if row.document_hash is not None
        and (document := documents.get(row.document_hash)) is not None
        and document.readable
    ]


def _oddities(
    deliveries: Sequence[keep.Delivery],
    news: Sequence[keep.KeptReport],
    documents: dict[str, Document],
    new_hashes: set[str],
    now: datetime,
) -> list[Entry]:
    """What was not understood, and what was refused."""
    # By kind, machine, time, data.
    found: list[tuple[EntryKind, int, datetime, dict[str, Any]]] = []
    told: set[str] = set()
    for row in news:
        document = documents.get(row.document_hash or "")
        if row.document_hash is not None and document is None:
            unknown: dict[str, Any] = {"reason": Reason("document-unknown")}
            found.append((EntryKind.REPORT_UNKNOWN, row.machine_id, now, unknown))
        # Once for each such body: an answer that stays empty for hours is one piece of news.
        odd = document is not None and (not document.readable or UNUSABLE in document.flags)
        if document is not None and odd and row.document_hash in new_hashes - told:
            told.add(row.document_hash or "")
            flags = document.flags if not document.readable else (UNUSABLE,)
            found.append((EntryKind.DOCUMENT_UNREADABLE, row.machine_id, row.report.at, {"flags": flags}))
        if row.report.flag:
            reason = Reason("report-kept", kind=row.report.kind, flag=row.report.flag)
            found.append((EntryKind.REPORT_UNKNOWN, row.machine_id, row.report.at, {"reason": reason}))
    for delivery in deliveries:
        for seq, why in delivery.refused:
            found.append((EntryKind.REPORT_REFUSED, delivery.machine_id, now, {"seq": seq, "reason": why}))
    if not found:
        return []
    concerned = Machine.objects.filter(pk__any={machine_id for _, machine_id, _, _ in found}).defer("compute")
    machines = {machine.pk: machine for machine in concerned}
    return [
        entry(
            kind,
            machine_actor(machines[machine_id].resource_name),
            at=at,
            machine_id=machine_id,
            set_id=machines[machine_id].availability_set_id,
            **data,
        )
        for kind, machine_id, at, data in found
    ]


def _note_presence(ahead: Sequence[listings.MachineDocument], merged: listings.Merged, now: datetime) -> None:
    # Computing asks who is live: who speaks in this very batch is.
    speaking = {machine_id for machine_ids in merged.reporters.values() for machine_id in machine_ids}
    presence.flush(
        contacts=[
            presence.Contact(machine_id=one.machine_id, heard_at=now, poll_at=one.at)
            for one in ahead
            if one.machine_id in speaking
        ]
    )
