"""Storage of reports as received, with few statements for many reports."""

import base64
import binascii
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

from drydock_agent import wire
from msgspec import convert

from fleet.domain.intake import Document, read_document
from fleet.domain.reasons import as_json
from fleet.models import DocumentBody, Observation, driver
from fleet.models.driver import query

D = TypeVar("D")
TAKEN = f"""
    SELECT machine_id, epoch, seq
    FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) AS given (machine_id, epoch, seq)
    JOIN {Observation._meta.db_table} USING (machine_id, epoch, seq)
"""
# Data classes of reports whose parts may have to wait, by kind; documents have their own table.
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
    """One report with decoded data. `at` is corrected by clock offset, `machine_at` is as sent.

    `flag` describes what could not be decoded. `wrong_clock`: the time could not be right, so `at` is the time of
    arrival.
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
        """The faults of the report, as they are stored with it."""
        return "; ".join(part for part in (self.flag, WRONG_CLOCK if self.wrong_clock else "") if part)


@dataclass(slots=True)
class Delivery:
    """The reports in one call of a machine.

    `machine_id` is its row id. `refused` are (number, reason) of reports that could not be decoded. `acknowledged` is
    the number of the last report whose acknowledgement the agent received; None if the agent did not send it.
    """

    machine_id: int
    spool: str
    agent_version: str = ""
    reports: Sequence[ParsedReport] = field(default_factory=list)
    refused: Sequence[tuple[int, str]] = field(default_factory=list)
    acknowledged: int | None = None
    key: tuple[int, str] = field(init=False)
    numbers: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.key = (self.machine_id, self.spool)
        self.numbers = [*(report.seq for report in self.reports), *(seq for seq, _ in self.refused)]


@dataclass(frozen=True, slots=True)
class Numbered:
    """Number (`epoch`) and acknowledged positions of one spool. `acknowledged` is the new position, `before` the former
    one.

    `newest` is the number of the machine's newest spool before this call (0: none).
    """

    epoch: int
    acknowledged: int
    before: int
    newest: int

    @property
    def behind(self) -> bool:
        """Whether a newer spool of the same machine has already sent reports."""
        return self.epoch < self.newest


@dataclass(frozen=True, slots=True)
class AgentReport(Generic[D]):
    """One report of one machine (row id). `position` is (epoch, seq); `at` is corrected by clock offset."""

    machine_id: int
    position: tuple[int, int]
    at: datetime
    data: D


@dataclass(frozen=True, slots=True)
class KeptReport:
    """A report to store, with hash and incarnation of the document that it contains or refers to."""

    machine_id: int
    epoch: int
    report: ParsedReport
    document_hash: str | None
    incarnation: int | None

    @property
    def key(self) -> tuple[int, int, int]:
        return (self.machine_id, self.epoch, self.report.seq)


def by_kind(reports: Iterable[KeptReport]) -> Mapping[type[Any], list[AgentReport[Any]]]:
    """Return the reports by the class of their data. A class without reports has an empty list."""
    found: dict[type[Any], list[AgentReport[Any]]] = defaultdict(list)
    for row in reports:
        report = row.report
        found[type(report.data)].append(AgentReport(row.machine_id, (row.epoch, report.seq), report.at, report.data))
    return found


def body_of(data: wire.DocumentData) -> bytes:
    """Return the bytes of a document as Azure's metadata service sent them. Raises ValueError for invalid base64."""
    if data.encoding != "base64":
        return data.body.encode("utf-8", errors="surrogatepass")
    try:
        return base64.b64decode(data.body, validate=True)
    except binascii.Error as error:
        raise ValueError("the document's base64 cannot be read") from error


# The fleet repeats itself: a set's machines send the same bytes. A body much longer than Azure's is not kept in memory.
REMEMBERED_BYTES = 64 * 1024


@lru_cache(maxsize=4096)
def _read_once(document_hash: str, body: bytes) -> Document:
    return read_document(body)


def _read(document_hash: str, body: bytes) -> Document:
    return _read_once(document_hash, body) if len(body) <= REMEMBERED_BYTES else read_document(body)


def read_bodies(deliveries: Sequence[Delivery]) -> tuple[dict[str, Document], dict[str, bytes]]:
    """Return the parsed documents that these calls contain or refer to, by hash, and the received bodies, by hash."""
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


def news_among(rows: Sequence[KeptReport], spools: Iterable[tuple[int, Numbered]]) -> list[KeptReport]:
    """Return the reports that are not stored yet. `spools` are the machines (row ids) with spools locked by this
    transaction.

    An agent sends reports in order, so reports after the acknowledged position are new. Earlier ones are looked up,
    because they may have arrived late. Runs no query if nothing is sent again.
    """
    offsets = {(machine_id, spool.epoch): spool.before for machine_id, spool in spools}
    behind = [row.key for row in rows if row.report.seq <= offsets[row.machine_id, row.epoch]]
    if not behind:
        return list(rows)
    with driver.cursor() as cursor:
        taken = set(cursor.execute(TAKEN, driver.arrays(behind)))
    return [row for row in rows if row.key not in taken]


def rows_of(deliveries: Sequence[Delivery], spools: Mapping[tuple[int, str], Numbered]) -> list[KeptReport]:
    """Return one row for each report, sorted by key. Duplicates within the batch are merged."""
    rows: dict[tuple[int, int, int], KeptReport] = {}
    for delivery in deliveries:
        epoch = spools[delivery.key].epoch
        for report in delivery.reports:
            data = report.data
            named = isinstance(data, wire.DocumentData | wire.ReminderData)
            document = (data.hash, data.incarnation) if named else (None, None)  # type: ignore[union-attr]
            row = KeptReport(delivery.machine_id, epoch, report, *document)
            rows.setdefault(row.key, row)
    return [rows[key] for key in sorted(rows)]


def load_kept(keys: Collection[tuple[int, int, int]]) -> list[KeptReport]:
    """Return stored reports by (machine row id, epoch, seq), as they were when they arrived."""
    rows = query(
        f"""
        SELECT row.machine_id, row.epoch, row.seq, row.kind, row.at, row.machine_at, row.data,
               row.document_id, row.incarnation
        FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) AS given (machine_id, epoch, seq)
        JOIN {Observation._meta.db_table} AS row USING (machine_id, epoch, seq)
        ORDER BY row.machine_id, row.epoch, row.seq
        """,
        *map(list, zip(*keys, strict=True)),
    )
    return [
        KeptReport(machine_id, epoch, ParsedReport(seq, kind, at, machine_at, _data_again(kind, data)), *document)
        for machine_id, epoch, seq, kind, at, machine_at, data, *document in rows
    ]


def read_again(hashes: Collection[str]) -> dict[str, Document]:
    """Return stored documents by hash, parsed again."""
    bodies = DocumentBody.objects.filter(pk__any=hashes).values_list("hash", "body")
    return {document_hash: _read(document_hash, bytes(body)) for document_hash, body in bodies}


def _data_again(kind: str, data: str | None) -> Data:
    plain: dict[str, Any] = json.loads(data) if data else {}
    return convert(plain, KINDS[kind]) if kind in KINDS else plain


def data_of(data: Data) -> str | None:
    """Return a report's data without its document, as JSON; None if there is no other data."""
    if isinstance(data, wire.DocumentData | wire.ReminderData):
        return None
    plain = data if isinstance(data, dict) else asdict(data)
    # Postgres keeps no NUL in text, also not inside JSON.
    return json.dumps(plain, default=datetime.isoformat).replace("\\u0000", "\\ufffd")


# A batch as it is written down: its bodies and observations in one statement, whatever its size.


# In the order in which rows are put down here. A body stands with the first of the rows that point to it.
COLUMNS = {
    "machine_id": "int8",
    "epoch": "int4",
    "seq": "int8",
    "kind": "text",
    "at": "timestamptz",
    "machine_at": "timestamptz",
    "document_id": "text",
    "incarnation": "int8",
    "data": "text",
    "flag": "text",
    "body": "bytea",
    "readable": "bool",
    "flags": "text",
}
NAMES, TYPES = ", ".join(COLUMNS), tuple(COLUMNS.values())
# From this many rows on they are copied: measured with `python -m bench ingest`.
COPIED = 80

MAKE = f"""
    CREATE TEMPORARY TABLE IF NOT EXISTS drydock_stage
        ({", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())}) ON COMMIT DELETE ROWS
"""
COPY = f"COPY pg_temp.drydock_stage ({NAMES}) FROM STDIN (FORMAT BINARY)"
# Bodies in the order of their hashes: two processes that keep the same ones wait for each other, never in a circle.
MERGE = f"""
    WITH stage ({NAMES}) AS MATERIALIZED ({{rows}}),
    bodies AS (
        INSERT INTO {DocumentBody._meta.db_table} (hash, body, readable, flags, first_received_at)
        SELECT document_id, body, readable, flags::jsonb, %s FROM stage
        WHERE body IS NOT NULL
              AND NOT EXISTS (SELECT FROM {DocumentBody._meta.db_table} AS known WHERE known.hash = document_id)
        ORDER BY document_id COLLATE "C"
        ON CONFLICT DO NOTHING RETURNING hash
    ), observations AS (
        INSERT INTO {Observation._meta.db_table}
            (machine_id, epoch, seq, kind, at, machine_at, document_id, incarnation, data, flag, received_at)
        SELECT machine_id, epoch, seq, kind, at, machine_at, document_id, incarnation, data::jsonb, flag, %s FROM stage
        ON CONFLICT DO NOTHING RETURNING machine_id, epoch, seq
    )
    SELECT (SELECT array_agg(hash) FROM bodies),
           (SELECT CASE WHEN count(*) < %s THEN array_agg(ARRAY[machine_id, epoch, seq]) END FROM observations),
           (SELECT count(*) FROM observations)
"""
MERGE_COPIED = MERGE.format(rows="SELECT * FROM pg_temp.drydock_stage")
MERGE_GIVEN = MERGE.format(rows=f"SELECT * FROM unnest({', '.join(f'%s::{kind}[]' for kind in TYPES)})")


def keep(
    rows: Sequence[KeptReport], bodies: Mapping[str, bytes], documents: Mapping[str, Document], now: datetime
) -> tuple[list[KeptReport], set[str]]:
    """Store these reports, which are sorted by key, and each new document body once.

    Return the stored reports and the hashes of new bodies. All reports are stored, unless another process wrote the
    same key without locking the spool: keys are unique in a partition, but not in the whole table.
    """
    if not rows:
        return [], set()
    staged = list(_staged(rows, bodies, documents))
    with driver.cursor() as cursor:
        if len(staged) < COPIED:
            cursor.execute(MERGE_GIVEN, [*driver.arrays(staged), now, now, len(rows)])
        else:
            cursor.execute(MAKE)
            with cursor.copy(COPY) as copy:
                copy.set_types(TYPES)
                for row in staged:
                    copy.write_row(row)
            cursor.execute(MERGE_COPIED, [now, now, len(rows)])
        new_hashes, written, count = cursor.fetchone() or (None, None, 0)
    keys = {tuple(key) for key in written or ()}
    stored = list(rows) if count == len(rows) else [row for row in rows if row.key in keys]
    return stored, set(new_hashes or ())


def _staged(
    rows: Sequence[KeptReport], bodies: Mapping[str, bytes], documents: Mapping[str, Document]
) -> Iterable[tuple[Any, ...]]:
    put: set[str] = set()
    for row in rows:
        report, named = row.report, row.document_hash
        body, readable, flags = None, None, None
        if named is not None and named in bodies and named not in put:
            put.add(named)
            document = documents[named]
            body, readable, flags = bodies[named], document.readable, json.dumps(as_json(document.flags))
        when = (report.kind, report.at, report.machine_at)
        said = (named, row.incarnation, data_of(report.data), report.kept_flag)
        yield *row.key, *when, *said, body, readable, flags
