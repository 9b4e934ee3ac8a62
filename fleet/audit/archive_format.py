"""Format of archive files: the lines of rows, the manifests, and the hash chain over the manifests.

A file is JSON lines, compressed with gzip. The first line identifies the file. Each other line is one row; files of
observations also have lines with the document bodies that rows refer to. Each value is the text of a column, or null:
times are seconds since 1970 UTC with six decimals, JSON is as Postgres writes it, bytes are base64. From the rows of
the timeline, exactly the lines can be computed over which the seals were made (`fleet.domain.timeline.Chain`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import chain
from typing import Any

from django.db import connection, models

from fleet.domain.timeline import FIRST_ERA, NO_HASH, Place
from fleet.models.caches import Notification, Reporter
from fleet.models.intake import DocumentBody, Observation
from fleet.models.partitions import ARCHIVED

# Version of the files and of each line; readers reject other versions.
FORM = 1
FORM_OF_FILE = "drydock-archive"
# Maximum size of an unpacked file, which bounds the memory of readers.
MOST_PLAIN_BYTES = 256 * 1024**2
PIECE = 1024 * 1024
STEM = r"[0-9]{8,18}-[a-z]{3,20}-[0-9]{1,18}-[0-9]{1,18}-[0-9a-f]{12}"
# Name of an archive file or of its manifest.
NAME = re.compile(rf"{STEM}\.(jsonl\.gz|manifest\.json)", re.ASCII)


class ArchiveKind(StrEnum):
    """Kinds of archived rows. Each kind is in its own table."""

    ENTRIES = "entries"
    OBSERVATIONS = "observations"
    NOTIFICATIONS = "notifications"
    MESSAGES = "messages"


class ArchiveFault(StrEnum):
    """Fault of an archive file or of the store."""

    MISSING = "archive-missing"
    ALTERED = "archive-altered"
    UNREADABLE = "archive-unreadable"
    REORDERED = "archive-reordered"
    MANIFEST = "archive-manifest"


class StoreFault(StrEnum):
    """Reason why the archive store failed."""

    AWAY = "store-away"
    SLOW = "store-slow"
    FULL = "store-full"
    REFUSED = "store-refused"
    ELSEWHERE = "store-elsewhere"
    MISSING = "store-missing"
    # The content that was read back differs from the written content.
    DIFFERS = "store-differs"
    BAD_NAME = "store-bad-name"


class ArchiveError(Exception):
    """Failure of the archive: of the store or of a file. The message contains no address."""

    def __init__(self, fault: StoreFault | ArchiveFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class StoreError(ArchiveError):
    """Failure of the archive store."""


class BadArchiveError(ArchiveError):
    """An archive file does not match its manifest."""


class Held(StrEnum):
    """Reason why rows are retained although they are older than their retention."""

    OPEN_EVENT = "held-open-event"
    OPEN_MAINTENANCE = "held-open-maintenance"
    UNSENT = "held-unsent"
    UNSEALED = "held-unsealed"
    NEEDED = "held-needed"
    # The table is locked, or is being detached.
    BUSY = "held-busy"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Description of an archive file. `first_at` and `last_at` are seconds since 1970 as text. `seals` are the first
    and last seal of the rows (None for kinds without seals). Places are (era, xid, id) of the first and last row.
    `hash` is computed over all other fields; `previous` is the hash of the preceding file.
    """

    number: int
    kind: str
    form: int
    rows: int
    first_id: int
    last_id: int
    first_at: str
    last_at: str
    seals: tuple[int, int] | None
    first_place: Place | None
    last_place: Place | None
    plain_bytes: int
    content_sha256: str
    packed_bytes: int
    file_sha256: str
    previous: str

    @property
    def name(self) -> str:
        """The name of the file. It contains a hash of the content, so that an incomplete file never blocks a new
        one.
        """
        return f"{self.stem}.jsonl.gz"

    @property
    def manifest_name(self) -> str:
        return f"{self.stem}.manifest.json"

    @property
    def stem(self) -> str:
        return f"{self.number:08d}-{self.kind}-{self.first_id}-{self.last_id}-{self.content_sha256[:12]}"

    @property
    def hash(self) -> str:
        plain = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(plain.encode()).hexdigest()

    def as_file(self) -> bytes:
        """Return the manifest as the content of a file, which is stored next to the archive file for readers without
        the database.
        """
        values = {"name": self.name, **asdict(self), "hash": self.hash}
        return json.dumps(values, sort_keys=True, indent=1).encode() + b"\n"

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Manifest:
        """Create a manifest from a dictionary of values."""
        given = {name: value for name, value in values.items() if name not in ("name", "hash")}
        for name in ("seals", "first_place", "last_place"):
            given[name] = tuple(given[name]) if given[name] is not None else None
        return cls(**given)

    @classmethod
    def from_file(cls, text: bytes) -> Manifest:
        """Parse the manifest file of an archive file. Object names are computed from the content. Raises
        BadArchiveError if the file is invalid or a stated name differs.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            manifest = cls.from_values(values)
            matches = (manifest.name, manifest.hash) == (values["name"], values["hash"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadArchiveError(ArchiveFault.MANIFEST) from error
        if not matches or not NAME.fullmatch(manifest.name):
            raise BadArchiveError(ArchiveFault.MANIFEST)
        return manifest


def first_line(number: int, kind: str, previous: str) -> bytes:
    """Return the first line of an archive file: number, kind and hash of the preceding file. It is part of the
    content's hash, so that no file can be exchanged for another.
    """
    return json.dumps({FORM_OF_FILE: FORM, "number": number, "kind": kind, "previous": previous}).encode() + b"\n"


def unpacked(pieces: Iterable[bytes], *, most: int) -> Iterator[bytes]:
    """Decompress gzip data piece by piece, up to `most` bytes in total. Raises BadArchiveError."""
    if most > MOST_PLAIN_BYTES:
        raise BadArchiveError(ArchiveFault.UNREADABLE)
    unpack = zlib.decompressobj(wbits=31)
    left = most
    try:
        # An additional empty piece at the end, because the decompressor may still hold data.
        for piece in chain(pieces, [b""]):
            waiting = piece
            while not unpack.eof:
                plain = unpack.decompress(waiting, PIECE)
                waiting = unpack.unconsumed_tail
                left -= len(plain)
                if left < 0:
                    raise BadArchiveError(ArchiveFault.ALTERED)
                if plain:
                    yield plain
                if not waiting and len(plain) < PIECE:
                    break
            if unpack.eof and (waiting or unpack.unused_data):
                # No data may follow the end.
                raise BadArchiveError(ArchiveFault.ALTERED)
    except zlib.error as error:
        raise BadArchiveError(ArchiveFault.ALTERED) from error
    if not unpack.eof:
        raise BadArchiveError(ArchiveFault.ALTERED)


def lines_of(manifest: Manifest, packed: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a compressed file, except for the first. Sizes and hashes are compared with the manifest at
    the end, so only a complete read proves that the file is unchanged. Raises BadArchiveError.
    """
    outside, inside, sizes = hashlib.sha256(), hashlib.sha256(), [0, 0]

    def counted() -> Iterator[bytes]:
        for piece in packed:
            outside.update(piece)
            sizes[0] += len(piece)
            if sizes[0] > manifest.packed_bytes:
                raise BadArchiveError(ArchiveFault.ALTERED)
            yield piece

    first, rest = first_line(manifest.number, manifest.kind, manifest.previous), b""
    for plain in unpacked(counted(), most=manifest.plain_bytes):
        inside.update(plain)
        sizes[1] += len(plain)
        *lines, rest = (rest + plain).split(b"\n")
        if first and lines:
            if lines.pop(0) + b"\n" != first:
                raise BadArchiveError(ArchiveFault.ALTERED)
            first = b""
        yield from lines
    found = (*sizes, outside.hexdigest(), inside.hexdigest())
    if rest or found != (manifest.packed_bytes, manifest.plain_bytes, manifest.file_sha256, manifest.content_sha256):
        raise BadArchiveError(ArchiveFault.ALTERED)


def row_of(line: bytes) -> dict[str, str | None]:
    """Parse one line. Return the values by column, as text or None. Raises BadArchiveError."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadArchiveError(ArchiveFault.UNREADABLE) from error
    if not isinstance(found, dict) or found.pop("v", None) != FORM:
        raise BadArchiveError(ArchiveFault.UNREADABLE)
    return found


# Escapes of Postgres' COPY.
ESCAPES = str.maketrans({"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"})


def sealed_line(row: dict[str, str | None], columns: Iterable[str], *, era: int) -> bytes:
    """Return the line of a timeline row over which the seals of this era were computed."""
    values = (row[name] for name in columns if not (name == "era" and era == FIRST_ERA))
    return "\t".join("\\N" if value is None else value.translate(ESCAPES) for value in values).encode() + b"\n"


def entry_of(line: bytes, columns: Set[str]) -> tuple[Place, dict[str, str | None]]:
    """Parse the line of a timeline row. Return the place (era, xid, id) and the values by column. Raises
    BadArchiveError.
    """
    row = row_of(line)
    if not columns <= row.keys() or not all(isinstance(value, str | None) for value in row.values()):
        raise BadArchiveError(ArchiveFault.UNREADABLE)
    try:
        return (int(row["era"] or ""), int(row["xid"] or ""), int(row["id"] or "")), row
    except ValueError as error:
        raise BadArchiveError(ArchiveFault.UNREADABLE) from error


def out_of_order(files: Iterable[Manifest]) -> Iterator[tuple[int, ArchiveFault]]:
    """Yield the number of each file that does not follow the file before it in the hash chain, with the fault."""
    number, previous = 0, NO_HASH
    for one in files:
        if one.number != number + 1 or one.previous != previous:
            yield one.number, ArchiveFault.REORDERED
        number, previous = one.number, one.hash


# Conversion of rows to lines of the archive and back: every value is the text of its column, as in the seals.

# Machines that heard a notification are archived with it.
HEARD = f"""(SELECT coalesce(json_agg(json_build_object(
    'machine_id', heard.machine_id::text, 'first_at', extract(epoch from heard.first_at)::text,
    'copies', heard.copies::text) ORDER BY heard.machine_id), '[]')::text
    FROM {Reporter._meta.db_table} AS heard WHERE heard.notification_id = row.id)"""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Postgres' JSON contains neither character, so nothing is quoted a second time.
RAW = "(FORMAT csv, DELIMITER e'\\x02', QUOTE e'\\x01', ESCAPE e'\\x01')"


def fields_of(model: type[models.Model]) -> list[models.Field[Any, Any]]:
    return [field for field in model._meta.concrete_fields if field.column]


def _as_text(field: models.Field[Any, Any]) -> str:
    column = f'row."{field.column}"'
    if isinstance(field, models.DateTimeField):
        return f"extract(epoch from {column})::text"
    if isinstance(field, models.BinaryField):
        return f"replace(encode({column}, 'base64'), e'\\n', '')"
    return f"{column}::text"


def _line(model: type[models.Model]) -> str:
    """Return the SQL expression that produces the line of a row."""
    values = ", ".join(f"'{field.column}', {_as_text(field)}" for field in fields_of(model))
    if model is Notification:
        values += f", 'reporters', {HEARD}"
    if model is DocumentBody:
        return f"json_build_object('v', {FORM}, 'body', json_build_object({values}))::text"
    return f"json_build_object('v', {FORM}, {values})::text"


def rows_as_lines(kind: ArchiveKind, condition: str, values: Sequence[Any]) -> Iterator[bytes]:
    """Yield the lines of the rows that match `condition`, in pieces. `condition` is trusted SQL on `row`."""
    model = ARCHIVED[kind].model
    order = "row.era, row.xid, row.id" if kind is ArchiveKind.ENTRIES else "row.id"
    rows = f"SELECT {_line(model)} FROM {model._meta.db_table} AS row"
    yield from _copied(f"{rows} WHERE {condition} ORDER BY {order}", values)


def bodies_as_lines(condition: str, values: Sequence[Any]) -> Iterator[bytes]:
    """Yield lines with the document bodies to which these observations refer, each body once."""
    named = f"SELECT document_id FROM {Observation._meta.db_table} AS row WHERE {condition}"
    bodies = f"SELECT {_line(DocumentBody)} FROM {DocumentBody._meta.db_table} AS row"
    yield from _copied(f"{bodies} WHERE hash IN ({named}) ORDER BY hash", values)


def _copied(statement: str, values: Sequence[Any]) -> Iterator[bytes]:
    with connection.cursor() as cursor, cursor.copy(f"COPY ({statement}) TO STDOUT {RAW}", values) as copy:
        for block in copy:
            yield bytes(block)


def instance_of(model: type[models.Model], row: dict[str, str | None]) -> Any:
    """Return an archived row as a model instance, which must not be saved. Columns that did not exist at that time have
    their default values.
    """
    return model(
        **{field.attname: _value(field, row[field.column]) for field in fields_of(model) if field.column in row}
    )


def _value(field: models.Field[Any, Any], text: str | None) -> Any:
    if text is None:
        return None
    if isinstance(field, models.DateTimeField):
        return time_of(text)
    if isinstance(field, models.JSONField):
        return json.loads(text)
    if isinstance(field, models.BinaryField):
        return base64.b64decode(text)
    if isinstance(field, models.BooleanField):
        return text == "true"
    if isinstance(field, models.ForeignKey):
        return field.target_field.to_python(text)
    return field.to_python(text)


def time_of(text: str) -> datetime:
    """Parse a time that is stored as seconds since 1970 with six decimals."""
    return EPOCH + timedelta(microseconds=int(Decimal(text) * 1_000_000))
