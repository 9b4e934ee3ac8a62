"""Keeping reports as received, before anything is understood: spools are numbered, bodies and observations written.

Every row in the order of its key, so that two processes never wait for each other in a circle.
"""

import base64
import binascii
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

from django.db import connection
from drydock_agent import wire
from msgspec import convert

from fleet.domain.intake.documents import Document, read_document
from fleet.domain.reason import as_json
from fleet.models import DocumentBody, Observation, Spool

D = TypeVar("D")
# What reports hold whose parts may have to wait, by their kind; documents stand in a table of their own.
KINDS: dict[str, type[Any]] = {
    wire.RECEIPT: wire.ReceiptData,
    wire.INSTANCE: wire.InstanceData,
    wire.HOOK: wire.HookData,
    wire.REDIS: wire.RedisData,
    wire.COVERAGE: wire.CoverageData,
    wire.REDIS_HOOK: wire.RedisHookData,
    wire.REHEARSAL: wire.RehearsalData,
}
Data = (
    wire.DocumentData
    | wire.ReminderData
    | wire.ReceiptData
    | wire.InstanceData
    | wire.HookData
    | wire.RedisData
    | wire.CoverageData
    | wire.RedisHookData
    | wire.RehearsalData
    | dict[str, Any]
)


WRONG_CLOCK = "its time cannot be right: counted as received then"


@dataclass(frozen=True, slots=True)
class ParsedReport:
    """One report with its data decoded. `at` is corrected, `machine_at` as sent; `flag` says what was not
    understood. With a `wrong_clock` its time could not be right, and `at` is when it was received.
    """

    seq: int
    kind: str
    at: datetime
    machine_at: datetime
    data: Data
    flag: str = ""
    wrong_clock: bool = False

    @property
    def kept_flag(self) -> str:
        """What is odd about it, as it is kept with it."""
        return "; ".join(part for part in (self.flag, WRONG_CLOCK if self.wrong_clock else "") if part)


@dataclass(slots=True)
class Delivery:
    """What one call of one machine (row id) delivers. `refused` holds (seq, reason) of what could not be decoded.

    `told` is up to where the agent says that its reports were acknowledged; None where it does not say.
    """

    machine_id: int
    spool: str
    agent_version: str = ""
    reports: Sequence[ParsedReport] = field(default_factory=list)
    refused: Sequence[tuple[int, str]] = field(default_factory=list)
    told: int | None = None

    @property
    def key(self) -> tuple[int, str]:
        return (self.machine_id, self.spool)

    @property
    def numbers(self) -> list[int]:
        return [*(report.seq for report in self.reports), *(seq for seq, _ in self.refused)]


@dataclass(frozen=True, slots=True)
class Numbered:
    """One spool: its number (epoch), up to where it is acknowledged now and was before, and the number of the machine's
    newest spool before (0 for none).
    """

    epoch: int
    acknowledged: int
    before: int
    newest: int

    @property
    def behind(self) -> bool:
        """A newer spool of the same machine has spoken already."""
        return self.epoch < self.newest


@dataclass(frozen=True, slots=True)
class AgentReport(Generic[D]):
    """One report of one machine (row id) with its place in the machine's own sequence; `at` is corrected."""

    machine_id: int
    position: tuple[int, int]
    at: datetime
    data: D


@dataclass(frozen=True, slots=True)
class KeptReport:
    """A report as it is written down, with the document that it brings or points to."""

    machine_id: int
    epoch: int
    report: ParsedReport
    document_hash: str | None
    incarnation: int | None

    @property
    def key(self) -> tuple[int, int, int]:
        return (self.machine_id, self.epoch, self.report.seq)


def of_kind(reports: Iterable[KeptReport], kind: type[D]) -> list[AgentReport[D]]:
    """Those that hold data of this class."""
    return [
        AgentReport(row.machine_id, (row.epoch, row.report.seq), row.report.at, row.report.data)
        for row in reports
        if isinstance(row.report.data, kind)
    ]


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


def number_spools(deliveries: Sequence[Delivery], now: datetime) -> dict[tuple[int, str], Numbered]:
    """The number (epoch) of each spool, and up to where it is acknowledged, by (machine row id, spool).

    What an agent was told is acknowledged even where it is not here: it does not have it either. The rows stay locked:
    until the end of this transaction nobody else takes reports of these spools.
    """
    highest: dict[tuple[int, str], int] = {}
    for delivery in deliveries:
        highest[delivery.key] = max(highest.get(delivery.key, 0), delivery.told or 0, *delivery.numbers, 0)
    keys = sorted(highest)
    found: dict[tuple[int, str], Numbered] = {}
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
            -- The row as it is now that it is locked: another process may have taken the same reports since this
            -- statement began, and a subquery would not see that.
            SET acknowledged_before = spool.acknowledged,
                acknowledged = GREATEST(spool.acknowledged, EXCLUDED.acknowledged)
            RETURNING machine_id, spool, epoch, acknowledged, acknowledged_before,
                (SELECT MAX(known.epoch) FROM {table} AS known WHERE known.machine_id = spool.machine_id)
            """,
            [now, [key[0] for key in keys], [key[1] for key in keys], [highest[key] for key in keys]],
        )
        for machine_id, spool, epoch, acknowledged, before, newest in cursor.fetchall():
            found[machine_id, spool] = Numbered(epoch, acknowledged, before, newest or 0)
    return found


def read_bodies(deliveries: Sequence[Delivery]) -> tuple[dict[str, Document], dict[str, bytes]]:
    """Each document by its hash, read; and the bodies that came."""
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
        documents |= read_again(wanted)
    return documents, bodies


def keep_bodies(bodies: Mapping[str, bytes], documents: Mapping[str, Document], now: datetime) -> set[str]:
    """Keep each body once; the hashes that were never kept before."""
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
                    [json.dumps(as_json(documents[key].flags)) for key in keys],
                ],
            )
            new = {row[0] for row in cursor.fetchall()}
    return new


def rows_of(deliveries: Sequence[Delivery], spools: Mapping[tuple[int, str], Numbered]) -> list[KeptReport]:
    """One row for each report, in the order of their keys; repeats within the batch fall together."""
    rows: dict[tuple[int, int, int], KeptReport] = {}
    for delivery in deliveries:
        epoch = spools[delivery.key].epoch
        for report in delivery.reports:
            data = report.data
            is_document = isinstance(data, wire.DocumentData | wire.ReminderData)
            row = KeptReport(
                machine_id=delivery.machine_id,
                epoch=epoch,
                report=report,
                document_hash=data.hash if is_document else None,  # type: ignore[union-attr]
                incarnation=data.incarnation if is_document else None,  # type: ignore[union-attr]
            )
            rows.setdefault(row.key, row)
    return [rows[key] for key in sorted(rows)]


def news_among(rows: Sequence[KeptReport], spools: Iterable[tuple[int, Numbered]]) -> list[KeptReport]:
    """Those that are not here yet; `spools` are their machines (row ids) and spools, locked by this transaction.

    An agent sends in order, so what lies beyond the mark of its spool is new. What lies behind it was taken, or was
    late on its way: that is asked for, and only that. No query where nothing comes again.
    """
    marks = {(machine_id, spool.epoch): spool.before for machine_id, spool in spools}
    behind = [row.key for row in rows if row.report.seq <= marks[row.machine_id, row.epoch]]
    taken = _taken_among(behind) if behind else set()
    return [row for row in rows if row.key not in taken]


def _taken_among(keys: Sequence[tuple[int, int, int]]) -> set[tuple[int, int, int]]:
    machines, epochs, seqs = zip(*keys, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT machine_id, epoch, seq
            FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) AS given (machine_id, epoch, seq)
            JOIN {Observation._meta.db_table} USING (machine_id, epoch, seq)
            """,
            [list(machines), list(epochs), list(seqs)],
        )
        return set(cursor.fetchall())


def keep_observations(rows: Sequence[KeptReport], now: datetime) -> set[tuple[int, int, int]]:
    """Write the observations; the keys of those that were written, which are all, unless somebody went past the spools.

    The table has its rows' keys once in each of its parts, and not once in all of them: see `news_among`.
    """
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
            ON CONFLICT DO NOTHING RETURNING machine_id, epoch, seq
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
                [row.report.kept_flag for row in rows],
            ],
        )
        return set(cursor.fetchall())


def load_kept(keys: Collection[tuple[int, int, int]]) -> list[KeptReport]:
    """Reports that were kept, by (machine row id, epoch, seq), as they were when they came."""
    machines, epochs, seqs = zip(*keys, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT row.machine_id, row.epoch, row.seq, row.kind, row.at, row.machine_at, row.data, row.document_id,
                   row.incarnation
            FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) AS given (machine_id, epoch, seq)
            JOIN {Observation._meta.db_table} AS row USING (machine_id, epoch, seq)
            ORDER BY row.machine_id, row.epoch, row.seq
            """,
            [list(machines), list(epochs), list(seqs)],
        )
        return [
            KeptReport(
                machine_id=machine_id,
                epoch=epoch,
                report=ParsedReport(seq, kind, at, machine_at, _data_again(kind, data)),
                document_hash=document_hash,
                incarnation=incarnation,
            )
            for machine_id, epoch, seq, kind, at, machine_at, data, document_hash, incarnation in cursor.fetchall()
        ]


def read_again(hashes: Collection[str]) -> dict[str, Document]:
    """Documents that were kept, by their hashes."""
    bodies = DocumentBody.objects.filter(pk__any=hashes).values_list("hash", "body")
    return {document_hash: _read(document_hash, bytes(body)) for document_hash, body in bodies}


def _data_again(kind: str, data: str | None) -> Data:
    plain: dict[str, Any] = json.loads(data) if data else {}
    return convert(plain, KINDS[kind]) if kind in KINDS else plain


def _data_of(data: Data) -> str | None:
    if isinstance(data, wire.DocumentData | wire.ReminderData):
        return None
    plain = data if isinstance(data, dict) else asdict(data)
    # Postgres keeps no NUL in text, also not inside JSON.
    return json.dumps(plain, default=datetime.isoformat).replace("\\u0000", "\\ufffd")
