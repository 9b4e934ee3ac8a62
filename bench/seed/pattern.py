"""Rows that were written once, as a pattern for any number of others like them."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

from django.db import models
from django.db.models import Max

from fleet.models import DocumentBody, Entry, JoinToken, Machine

ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"
HTTP_DATE = r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
# The database fills them in as it does for everybody.
LEFT_TO_THE_DATABASE: Mapping[type[models.Model], set[str]] = {Entry: {"era", "xid"}}
# Numbered by each machine for itself: by the column that says whose numbers they are.
COUNTED = {"seq", "listed_seq", "gone_seq", "acknowledged"}
NOTHING = r"\N"


@dataclass(slots=True)
class Copy:
    """The target of one copy of a pattern: the time of its story, its names, and the rows that exist already.

    `refs` are row ids by the pattern's names for them (`machine 0`, `set`, `cache`); `numbers` are the last numbers of
    each machine's reports; `ids` counts the rows of each table.
    """

    at: datetime
    names: Mapping[str, str]
    refs: Mapping[str, int]
    numbers: Sequence[int]
    ids: Counter[type[models.Model]]


Value = Callable[[Copy, list[str]], str]
# The rows that are there already, by table.
Marks = dict[type[models.Model], set[Any]]


@dataclass(slots=True)
class Table:
    """The rows of one table: a line of COPY's text form for each, with the values that go into it."""

    model: type[models.Model]
    columns: tuple[str, ...]
    lines: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)


def escaped(text: str) -> str:
    """For COPY's text form."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


class Pattern:
    """The rows that a story wrote, by table. The values that differ between copies are found automatically: ids, times
    and names.

    `names` are the story's placeholders, by what they stand for; `refs` are the earlier rows, by (table, id). `at` is
    when the story began, and `took` its length. `counted` is how many reports each machine (row id) had sent before it,
    `numbers` how many it sent in it.
    """

    def __init__(
        self,
        rows: Mapping[type[models.Model], Sequence[Mapping[str, Any]]],
        *,
        at: datetime,
        took: timedelta,
        names: Mapping[str, str],
        refs: Mapping[tuple[type[models.Model], int], str],
        counted: Mapping[int, int],
        numbers: Sequence[int],
    ) -> None:
        self.at, self.took, self.refs, self.counted, self.numbers = at, took, refs, counted, tuple(numbers)
        self.placeholders = {placeholder: name for name, placeholder in names.items()}
        longest = sorted(map(re.escape, self.placeholders), key=len, reverse=True)
        self.changing = re.compile("|".join([*longest, ISO, HTTP_DATE]))
        self.values: list[Value] = []
        self.known: dict[tuple[Any, ...], int] = {}
        self.hashes: dict[str, int] = {}
        self.bodies: dict[str, bytes] = {}
        self.ids: dict[tuple[type[models.Model], Any], int] = {}
        self.tables: list[Table] = []
        for model, found in rows.items():
            for row in found:
                self._number(model, row)
        for model, found in rows.items():
            if lines := [self._line(model, row) for row in found if row.get("hash") not in self.bodies]:
                self.tables.append(Table(model, tuple(name for name, _ in _columns(model)), lines))

    def lines(self, copy: Copy) -> Iterator[tuple[Table, str]]:
        """One copy's lines, each with its table."""
        values: list[str] = []
        for value in self.values:
            values.append(value(copy, values))
        for table in self.tables:
            for line, places in table.lines:
                yield table, line % tuple([values[place] for place in places])

    def _number(self, model: type[models.Model], row: Mapping[str, Any]) -> None:
        """Give the row's own id a value. A body is named by its hash, an order by a UUID."""
        if model is DocumentBody:
            self._body(row)
        elif isinstance(model._meta.pk, models.UUIDField):
            place = self._value(("uuid", row["id"]), lambda copy, values: str(uuid.uuid4()))
            self.ids[model, row["id"]] = place
            self.placeholders[str(row["id"])] = f"uuid {place}"
            self.changing = re.compile(f"{re.escape(str(row['id']))}|{self.changing.pattern}")
        elif model._meta.pk is not None and not model._meta.pk.is_relation:

            def next_id(copy: Copy, values: list[str]) -> str:
                copy.ids[model] += 1
                return str(copy.ids[model])

            self.ids[model, row["id"]] = self._value(("id", model, row["id"]), next_id)

    def _body(self, row: Mapping[str, Any]) -> None:
        line, places = self._text(bytes(row["body"]).decode())
        if not places:
            # The same for everybody: it is there once.
            self.bodies[row["hash"]] = bytes(row["body"])
            return

        def body(copy: Copy, values: list[str]) -> str:
            return line % tuple([values[place] for place in places])

        text = self._value(("body", row["hash"]), body)
        self._value(("hex", row["hash"]), lambda copy, values: "\\\\x" + values[text].encode().hex())
        self.hashes[row["hash"]] = self._value(
            ("hash", row["hash"]), lambda copy, values: hashlib.sha256(values[text].encode()).hexdigest()
        )

    def _line(self, model: type[models.Model], row: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
        cells: list[str] = []
        places: list[int] = []
        for name, column in _columns(model):
            cell, more = self._cell(model, column, row, name)
            cells.append(cell)
            places += more
        return "\t".join(cells) + "\n", tuple(places)

    def _cell(
        self, model: type[models.Model], column: models.Field[Any, Any], row: Mapping[str, Any], name: str
    ) -> tuple[str, list[int]]:
        value = row[name]
        related = _related(model, column)
        if related is JoinToken:
            # It was the story's own.
            return NOTHING, []
        if value is None:
            return NOTHING, []
        if name == "body":
            return "%s", [self.known["hex", row["hash"]]]
        if isinstance(value, str) and value in self.hashes:
            return "%s", [self.hashes[value]]
        if related is not None and (related, value) in self.ids:
            return "%s", [self.ids[related, value]]
        if related is not None and (related, value) in self.refs:
            return "%s", [self._ref(self.refs[related, value])]
        if name in COUNTED and row.get("machine_id") in self.counted:
            return "%s", [self._counted(row["machine_id"], value)]
        if isinstance(value, datetime):
            # When a row was written is not when its story was played.
            moment = row["at"] + timedelta(seconds=0.25) if name == "recorded_at" else value
            return "%s", [self._moment(moment, "iso")]
        if isinstance(column, models.JSONField):
            return self._escaped(json.dumps(value))
        if isinstance(value, bool):
            return "t" if value else "f", []
        return self._escaped(str(value))

    def _escaped(self, text: str) -> tuple[str, list[int]]:
        # What changes has nothing to escape.
        return self._text(escaped(text))

    def _text(self, text: str) -> tuple[str, list[int]]:
        pieces: list[str] = []
        places: list[int] = []
        end = 0
        for match in self.changing.finditer(text):
            pieces += [text[end : match.start()].replace("%", "%%"), "%s"]
            places.append(self._changing(match[0]))
            end = match.end()
        return "".join([*pieces, text[end:].replace("%", "%%")]), places

    def _changing(self, text: str) -> int:
        if name := self.placeholders.get(text):
            if name.startswith("uuid "):
                return int(name.removeprefix("uuid "))
            return self._value(("name", name), lambda copy, values: copy.names[name])
        if "GMT" in text:
            return self._moment(parsedate_to_datetime(text), "http")
        return self._moment(datetime.fromisoformat(text), "z" if text.endswith("Z") else "iso")

    def _moment(self, moment: datetime, style: str) -> int:
        later = moment - self.at
        styles: dict[str, Value] = {
            "iso": lambda copy, values: (copy.at + later).isoformat(),
            "z": lambda copy, values: (copy.at + later).isoformat().replace("+00:00", "Z"),
            "http": lambda copy, values: format_datetime((copy.at + later).astimezone(UTC), usegmt=True),
        }
        return self._value(("moment", later, style), styles[style])

    def _ref(self, name: str) -> int:
        return self._value(("ref", name), lambda copy, values: str(copy.refs[name]))

    def _counted(self, machine_id: int, value: int) -> int:
        number = int(self.refs[Machine, machine_id].split()[1]) if (Machine, machine_id) in self.refs else 0
        later = value - self.counted[machine_id]
        return self._value(("number", number, later), lambda copy, values: str(copy.numbers[number] + later))

    def _value(self, key: tuple[Any, ...], value: Value) -> int:
        if key not in self.known:
            self.known[key] = len(self.values)
            self.values.append(value)
        return self.known[key]


def _related(model: type[models.Model], column: models.Field[Any, Any]) -> type[models.Model] | None:
    """Return the model whose row ids a column contains."""
    if column.remote_field is not None:
        related: type[models.Model] = column.remote_field.model
        return related
    return model if column.primary_key else None


def _columns(model: type[models.Model]) -> list[tuple[str, models.Field[Any, Any]]]:
    left = LEFT_TO_THE_DATABASE.get(model, set())
    return [(column.attname, column) for column in model._meta.concrete_fields if column.attname not in left]


def marks(written: Iterable[type[models.Model]]) -> Marks:
    """Which rows there are before a story."""
    return {model: set(model._default_manager.values_list("pk", flat=True)) for model in written}


def since(before: Marks) -> dict[type[models.Model], list[dict[str, Any]]]:
    """The rows that a story wrote, by table."""
    return {
        model: [
            {name: getattr(row, name) for name, _ in _columns(model)}
            for row in model._default_manager.exclude(pk__in=known).order_by("pk")
        ]
        for model, known in before.items()
    }


def largest_ids(tables: Iterable[type[models.Model]]) -> Counter[type[models.Model]]:
    """Return the largest id of each table."""
    return Counter({model: model._default_manager.aggregate(most=Max("pk"))["most"] or 0 for model in tables})
