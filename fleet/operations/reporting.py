"""Taking reports: one transaction for a whole batch of deliveries.

Phases: number the spools, keep the bodies, keep the observations, merge documents that are news, take receipts, fold
the events concerned, relay what follows from that, then what was heard of caches: their locks come last.
"""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from drydock_agent import wire

from fleet.domain.documents import UNUSABLE, Document
from fleet.domain.entries import EntryKind
from fleet.models import Entry, Machine
from fleet.operations import (
    folding,
    judging,
    keeping,
    listening,
    machines,
    preparing,
    presence,
    receipts,
    redis,
    redis_hooks,
    rehearsing,
    relaying,
    words,
)
from fleet.operations.entries import entry, write


@transaction.atomic
def record(*, deliveries: Sequence[keeping.Delivery], now: datetime) -> dict[tuple[int, str], int]:
    """Commit these deliveries; what is acknowledged now, by (machine row id, spool).

    Raises whatever the database or a broken report raises; then nothing of the batch is kept.
    """
    epochs, acknowledged = keeping.number_spools(deliveries, now)
    documents, new_hashes = keeping.keep_bodies(deliveries, now)
    rows = keeping.rows_of(deliveries, epochs)
    new = keeping.keep_observations(rows, now)
    news = [row for row in rows if row.key in new]
    written = _oddities(deliveries, news, documents, new_hashes, now)
    said = _said(news, documents, written, now)
    ahead = words.ahead_of_heads(said) if said else []
    merged = words.merge(ahead, now=now) if ahead else None
    answers = [
        receipts.Receipt(row.machine_id, row.report.data)
        for row in news
        if isinstance(row.report.data, wire.ReceiptData)
    ]
    hook_words = [
        preparing.HookWord(row.machine_id, (row.epoch, row.report.seq), row.report.at, row.report.data)
        for row in news
        if isinstance(row.report.data, wire.HookData)
    ]
    rehearsed = [
        rehearsing.RehearsalWord(row.machine_id, (row.epoch, row.report.seq), row.report.at, row.report.data)
        for row in news
        if isinstance(row.report.data, wire.RehearsalData)
    ]
    versions = {delivery.machine_id: delivery.agent_version for delivery in deliveries}
    for row in news:
        if isinstance(row.report.data, wire.InstanceData):
            version = versions[row.machine_id]
            written += machines.take_instance(row.machine_id, row.report.data, now=now, agent_version=version)
    concerned = merged.touched if merged else set()
    concerned = (
        concerned | receipts.events_of(answers) | preparing.events_of(hook_words) | rehearsing.events_of(rehearsed)
    )
    if concerned:
        events = folding.lock(concerned)
        if merged is not None:
            _note_presence(ahead, merged, now)
            events = folding.settle_sets(events, merged.reporters, now=now)
        written += receipts.take(answers, now=now)
        written += preparing.take(hook_words)
        pretended, odd = rehearsing.take(rehearsed, now=now)
        written += odd
        new_sightings = {**(merged.new_sightings if merged else {}), **pretended}
        folding.refold(events, now=now, new_sightings=new_sightings)
        relaying.advance_events(events, now=now, via="report")
        touched = [event.pk for event in events]
        # What was reported is safe by then: nothing that goes wrong in deciding may undo it.
        transaction.on_commit(lambda: judging.follow(touched, now=now), robust=True)
    elif answers or hook_words or rehearsed:
        written += receipts.take(answers, now=now)
        written += preparing.take(hook_words)
        written += rehearsing.take(rehearsed, now=now)[1]
    written += _take_redis(news, now)
    write(written)
    return acknowledged


def _take_redis(news: Sequence[keeping.Row], now: datetime) -> list[Entry]:
    lines = [
        redis.Line(row.machine_id, row.report.at, row.report.data)
        for row in news
        if isinstance(row.report.data, wire.RedisData)
    ]
    heard = [
        listening.Word(row.machine_id, (row.epoch, row.report.seq), row.report.at, row.report.data)
        for row in news
        if isinstance(row.report.data, wire.CoverageData)
    ]
    hook_words = [
        redis_hooks.HookWord(row.machine_id, row.report.at, row.report.data)
        for row in news
        if isinstance(row.report.data, wire.RedisHookData)
    ]
    return redis.take(lines, heard, hook_words, now=now)


def _said(
    news: Sequence[keeping.Row], documents: dict[str, Document], written: list[Entry], now: datetime
) -> list[words.Said]:
    said = []
    for row in news:
        if row.document_hash is None:
            continue
        document = documents.get(row.document_hash)
        if document is None:
            text = "A reminder names a document that was never received here."
            written.append(entry(EntryKind.REPORT_UNKNOWN, text, at=now, machine_id=row.machine_id, via="agent"))
        elif document.readable:
            said.append(
                words.Said(
                    machine_id=row.machine_id,
                    position=(row.epoch, row.report.seq),
                    at=row.report.at,
                    document_hash=row.document_hash,
                    incarnation=document.incarnation,
                    document=document,
                )
            )
    return said


def _oddities(
    deliveries: Sequence[keeping.Delivery],
    news: Sequence[keeping.Row],
    documents: dict[str, Document],
    new_hashes: set[str],
    now: datetime,
) -> list[Entry]:
    found: list[Entry] = []
    told: set[str] = set()
    for row in news:
        document = documents.get(row.document_hash or "")
        # Once for each such body: an answer that stays empty for hours is one piece of news.
        odd = document is not None and (not document.readable or UNUSABLE in document.flags)
        if document is not None and odd and row.document_hash in new_hashes - told:
            told.add(row.document_hash or "")
            reasons = ", ".join(document.flags if not document.readable else [UNUSABLE])
            text = f"A document could not be read ({reasons}); it is kept as received."
            found.append(
                entry(EntryKind.DOCUMENT_UNREADABLE, text, at=row.report.at, machine_id=row.machine_id, via="agent")
            )
        if row.report.flag:
            text = f"A report of kind “{row.report.kind}” was kept as received: {row.report.flag}."
            found.append(
                entry(EntryKind.REPORT_UNKNOWN, text, at=row.report.at, machine_id=row.machine_id, via="agent")
            )
    for delivery in deliveries:
        for seq, reason in delivery.refused:
            text = f"Report {seq} was refused: {reason}."
            found.append(entry(EntryKind.REPORT_REFUSED, text, at=now, machine_id=delivery.machine_id, via="agent"))
    if found:
        homes = dict(
            Machine.objects.filter(pk__any={one.machine_id for one in found}).values_list("pk", "availability_set_id")
        )
        for one in found:
            one.availability_set_id = homes.get(one.machine_id or 0)
    return found


def _note_presence(ahead: Sequence[words.Said], merged: words.Merged, now: datetime) -> None:
    # The fold asks who is live: who speaks in this very batch is.
    speaking = {machine_id for machine_ids in merged.reporters.values() for machine_id in machine_ids}
    presence.flush(
        contacts=[
            presence.Contact(machine_id=one.machine_id, heard_at=now, poll_at=one.at)
            for one in ahead
            if one.machine_id in speaking
        ]
    )
