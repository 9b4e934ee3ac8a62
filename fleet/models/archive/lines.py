"""Rows as lines of the archive, and back: every value is the text of its column, as the seals have it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection, models

from fleet.domain.archive import FORM, ArchiveKind
from fleet.models.caches import Notification, Reporter
from fleet.models.intake import DocumentBody, Observation
from fleet.models.messages import Message
from fleet.models.timeline import Entry

# Who heard a notification leaves with it.
HEARD = f"""(SELECT coalesce(json_agg(json_build_object(
    'machine_id', heard.machine_id::text, 'first_at', extract(epoch from heard.first_at)::text,
    'copies', heard.copies::text) ORDER BY heard.machine_id), '[]')::text
    FROM {Reporter._meta.db_table} AS heard WHERE heard.notification_id = row.id)"""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# In what comes out of Postgres as JSON there is neither of these, so that nothing is quoted a second time.
RAW = "(FORMAT csv, DELIMITER e'\\x02', QUOTE e'\\x01', ESCAPE e'\\x01')"


@dataclass(frozen=True, slots=True)
class Table:
    """A table that leaves: its model, the column that says how old a row is, and in which order files hold it."""

    model: type[models.Model]
    age: str
    order: str = "row.id"

    @property
    def name(self) -> str:
        return self.model._meta.db_table


TABLES: dict[ArchiveKind, Table] = {
    ArchiveKind.ENTRIES: Table(Entry, "recorded_at", "row.era, row.xid, row.id"),
    ArchiveKind.OBSERVATIONS: Table(Observation, "received_at"),
    ArchiveKind.NOTIFICATIONS: Table(Notification, "received_at"),
    ArchiveKind.MESSAGES: Table(Message, "created_at"),
}


def fields_of(model: type[models.Model]) -> list[models.Field[Any, Any]]:
    return [field for field in model._meta.concrete_fields if field.column]


def _as_text(field: models.Field[Any, Any]) -> str:
    column = f'row."{field.column}"'
    if isinstance(field, models.DateTimeField):
        return f"extract(epoch from {column})::text"
    if isinstance(field, models.BinaryField):
        return f"replace(encode({column}, 'base64'), e'\\n', '')"
    return f"{column}::text"


def _line(model: type[models.Model], *, as_body: bool) -> str:
    """The SQL of a row's line."""
    values = ", ".join(f"'{field.column}', {_as_text(field)}" for field in fields_of(model))
    if model is Notification:
        values += f", 'reporters', {HEARD}"
    if as_body:
        return f"json_build_object('v', {FORM}, 'body', json_build_object({values}))::text"
    return f"json_build_object('v', {FORM}, {values})::text"


def rows_as_lines(kind: ArchiveKind, condition: str, values: Sequence[Any]) -> Iterator[bytes]:
    """The lines of these rows (SQL of our own over `row`), streamed in pieces."""
    table = TABLES[kind]
    yield from _copied(
        f"SELECT {_line(table.model, as_body=False)} FROM {table.name} AS row WHERE {condition} ORDER BY {table.order}",
        values,
    )


def bodies_as_lines(condition: str, values: Sequence[Any]) -> Iterator[bytes]:
    """The bodies that these observations name, each once."""
    named = f"SELECT document_id FROM {Observation._meta.db_table} AS row WHERE {condition}"
    table = DocumentBody._meta.db_table
    line = _line(DocumentBody, as_body=True)
    yield from _copied(f"SELECT {line} FROM {table} AS row WHERE hash IN ({named}) ORDER BY hash", values)


def _copied(statement: str, values: Sequence[Any]) -> Iterator[bytes]:
    with connection.cursor() as cursor, cursor.copy(f"COPY ({statement}) TO STDOUT {RAW}", values) as copy:
        for block in copy:
            yield bytes(block)


def instance_of(model: type[models.Model], row: dict[str, str | None]) -> Any:
    """The row as it was, not to be saved. Columns that there were not yet have their defaults."""
    given: dict[str, Any] = {}
    for field in fields_of(model):
        if field.column in row:
            given[field.attname] = _value(field, row[field.column])
    return model(**given)


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
    """Seconds since 1970 with six decimals, to the microsecond."""
    return EPOCH + timedelta(microseconds=int(Decimal(text) * 1_000_000))
