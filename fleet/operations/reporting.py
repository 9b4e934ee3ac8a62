"""Taking reports: one transaction for a whole batch of deliveries, and every row in the order of its key.

Phases: number the spools, keep the bodies, keep the observations, merge documents that are news, take receipts, fold
the events concerned, relay what follows from that, then what was heard of caches: their locks come last.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import connection, transaction
from drydock_agent import wire

from fleet.domain.documents import UNUSABLE, Document, read_document
from fleet.domain.entries import EntryKind
from fleet.models import DocumentBody, Entry, Machine, Observation, Spool
from fleet.operations import folding, listening, machines, preparing, presence, receipts, redis, relaying, words
from fleet.operations.entries import entry, write

Data = (
    wire.DocumentData
    | wire.ReminderData
    | wire.ReceiptData
    | wire.InstanceData
    | wire.HookData
    | wire.RedisData
    | wire.CoverageData
    | dict[str, Any]
)


@dataclass(frozen=True, slots=True)
class ParsedReport:
    """One report with its data decoded. `at` is corrected, `machine_at` as sent; `flag` says what was not
    understood.
    """

    seq: int
    kind: str
    at: datetime
    machine_at: datetime
    data: Data
    flag: str = ""


@dataclass(slots=True)
class Delivery:
    """What one call of one machine (row id) delivers. `refused` holds (seq, reason) of what could not be decoded."""

    machine_id: int
    spool: str
    agent_version: str = ""
    reports: Sequence[ParsedReport] = field(default_factory=list)
    refused: Sequence[tuple[int, str]] = field(default_factory=list)

    @property
    def highest(self) -> int:
        return max([0, *(report.seq for report in self.reports), *(seq for seq, _ in self.refused)])


@dataclass(frozen=True, slots=True)
class _Row:
    machine_id: int
    epoch: int
    report: ParsedReport
    document_hash: str | None
    incarnation: int | None

    @property
    def key(self) -> tuple[int, int, int]:
        return (self.machine_id, self.epoch, self.report.seq)


def body_of(data: wire.DocumentData) -> bytes:
    """The bytes of a document as the metadata service sent them. Raises ValueError for a broken base64."""
    if data.encoding != "base64":
        return data.body.encode("utf-8", errors="surrogatepass")
    try:
        return base64.b64decode(data.body, validate=True)
    except binascii.Error as error:
        raise ValueError("the document's base64 cannot be read") from error


# The fleet repeats itself: a set's machines send the same bytes.
@lru_cache(maxsize=4096)
def _read(document_hash: str, body: bytes) -> Document:
    return read_document(body)


@transaction.atomic
def record(*, deliveries: Sequence[Delivery], now: datetime) -> dict[tuple[int, str], int]:
    """Commit these deliveries; what is acknowledged now, by (machine row id, spool).

    Raises whatever the database or a broken report raises; then nothing of the batch is kept.
    """
    epochs, acknowledged = _number_spools(deliveries, now)
    documents, new_hashes = _keep_bodies(deliveries, now)
    rows = _rows(deliveries, epochs)
    new = _keep_observations(rows, now)
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
    versions = {delivery.machine_id: delivery.agent_version for delivery in deliveries}
    for row in news:
        if isinstance(row.report.data, wire.InstanceData):
            version = versions[row.machine_id]
            written += machines.take_instance(row.machine_id, row.report.data, now=now, agent_version=version)
    concerned = merged.touched if merged else set()
    concerned = concerned | receipts.events_of(answers) | preparing.events_of(hook_words)
    if concerned:
        events = folding.lock(concerned)
        if merged is not None:
            _note_presence(ahead, merged, now)
            events = folding.settle_sets(events, merged.reporters, now=now)
        written += receipts.take(answers, now=now)
        written += preparing.take(hook_words)
        folding.refold(events, now=now, new_sightings=merged.new_sightings if merged else None)
        relaying.advance_events(events, now=now, via="report")
    elif answers or hook_words:
        written += receipts.take(answers, now=now)
        written += preparing.take(hook_words)
    written += _take_redis(news, now)
    write(written)
    return acknowledged


def _take_redis(news: Sequence[_Row], now: datetime) -> list[Entry]:
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
    return redis.take(lines, heard, now=now)


def _number_spools(
    deliveries: Sequence[Delivery], now: datetime
) -> tuple[dict[tuple[int, str], int], dict[tuple[int, str], int]]:
    highest: dict[tuple[int, str], int] = {}
    for delivery in deliveries:
        key = (delivery.machine_id, delivery.spool)
        highest[key] = max(highest.get(key, 0), delivery.highest)
    keys = sorted(highest)
    epochs: dict[tuple[int, str], int] = {}
    acknowledged: dict[tuple[int, str], int] = {}
    table = Spool._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO {table} AS spool (machine_id, spool, epoch, acknowledged, first_seen_at)
            SELECT given.machine_id, given.spool,
                   (SELECT COALESCE(MAX(known.epoch), 0) + 1 FROM {table} AS known
                    WHERE known.machine_id = given.machine_id),
                   given.highest, %s
            FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS given (machine_id, spool, highest)
            ON CONFLICT (machine_id, spool) DO UPDATE
            SET acknowledged = GREATEST(spool.acknowledged, EXCLUDED.acknowledged)
            RETURNING machine_id, spool, epoch, acknowledged
            """,
            [now, [key[0] for key in keys], [key[1] for key in keys], [highest[key] for key in keys]],
        )
        for machine_id, spool, epoch, upto in cursor.fetchall():
            epochs[machine_id, spool] = epoch
            acknowledged[machine_id, spool] = upto
    return epochs, acknowledged


def _keep_bodies(deliveries: Sequence[Delivery], now: datetime) -> tuple[dict[str, Document], set[str]]:
    bodies: dict[str, bytes] = {}
    wanted: set[str] = set()
    for delivery in deliveries:
        for report in delivery.reports:
            if isinstance(report.data, wire.DocumentData):
                if report.data.hash not in bodies:
                    bodies[report.data.hash] = body_of(report.data)
            elif isinstance(report.data, wire.ReminderData):
                wanted.add(report.data.hash)
    documents = {document_hash: _read(document_hash, body) for document_hash, body in bodies.items()}
    if wanted := wanted - set(bodies):
        for document_hash, body in DocumentBody.objects.filter(pk__any=wanted).values_list("hash", "body"):
            documents[document_hash] = _read(document_hash, bytes(body))
    new: set[str] = set()
    if bodies:
        keys = sorted(bodies)
        with connection.cursor() as cursor:
            cursor.execute(
                f"""
                INSERT INTO {DocumentBody._meta.db_table} (hash, body, readable, flags, first_received_at)
                SELECT given.hash, given.body, given.readable, given.flags::jsonb, %s
                FROM unnest(%s::text[], %s::bytea[], %s::bool[], %s::text[]) AS given (hash, body, readable, flags)
                ON CONFLICT (hash) DO NOTHING RETURNING hash
                """,
                [
                    now,
                    keys,
                    [bodies[key] for key in keys],
                    [documents[key].readable for key in keys],
                    [json.dumps(documents[key].flags) for key in keys],
                ],
            )
            new = {row[0] for row in cursor.fetchall()}
    return documents, new


def _rows(deliveries: Sequence[Delivery], epochs: dict[tuple[int, str], int]) -> list[_Row]:
    rows: dict[tuple[int, int, int], _Row] = {}
    for delivery in deliveries:
        epoch = epochs[delivery.machine_id, delivery.spool]
        for report in delivery.reports:
            data = report.data
            is_word = isinstance(data, wire.DocumentData | wire.ReminderData)
            row = _Row(
                machine_id=delivery.machine_id,
                epoch=epoch,
                report=report,
                document_hash=data.hash if is_word else None,  # type: ignore[union-attr]
                incarnation=data.incarnation if is_word else None,  # type: ignore[union-attr]
            )
            rows.setdefault(row.key, row)
    return [rows[key] for key in sorted(rows)]


def _keep_observations(rows: Sequence[_Row], now: datetime) -> set[tuple[int, int, int]]:
    if not rows:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO {Observation._meta.db_table}
                (machine_id, epoch, seq, kind, at, machine_at, document_id, incarnation, data, flag, received_at)
            SELECT given.*, %s
            FROM unnest(%s::bigint[], %s::int[], %s::bigint[], %s::text[], %s::timestamptz[], %s::timestamptz[],
                        %s::text[], %s::bigint[], %s::jsonb[], %s::text[]) AS given
            ON CONFLICT (machine_id, epoch, seq) DO NOTHING RETURNING machine_id, epoch, seq
            """,
            [
                now,
                [row.machine_id for row in rows],
                [row.epoch for row in rows],
                [row.report.seq for row in rows],
                [row.report.kind for row in rows],
                [row.report.at for row in rows],
                [row.report.machine_at for row in rows],
                [row.document_hash for row in rows],
                [row.incarnation for row in rows],
                [_data_of(row.report.data) for row in rows],
                [row.report.flag for row in rows],
            ],
        )
        return set(cursor.fetchall())


def _data_of(data: Data) -> str | None:
    if isinstance(data, wire.DocumentData | wire.ReminderData):
        return None
    plain = data if isinstance(data, dict) else asdict(data)
    # Postgres keeps no NUL in text, also not inside JSON.
    return json.dumps(plain, default=datetime.isoformat).replace("\\u0000", "\\ufffd")


def _said(
    news: Sequence[_Row], documents: dict[str, Document], written: list[Entry], now: datetime
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
    deliveries: Sequence[Delivery],
    news: Sequence[_Row],
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
