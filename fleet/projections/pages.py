"""Keyset pagination: pages continue after the key of the last row, without OFFSET and row counts.

A list consists of one or more segments, each sorted by (one column, id). A cursor contains a segment, a direction and
the key of the last row, so that every page costs the same. It is signed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypedDict, TypeVar, Unpack
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.signing import BadSignature, Signer
from django.db.models import Model, Q, QuerySet

from fleet.models.index_scan import IndexScanRows, first_rows, last_checked_at

M = TypeVar("M", bound=Model)
T = TypeVar("T")
U = TypeVar("U")

MAX_PAGE_SIZE = 500
DEFAULT_PAGE_SIZE = 50


class BadCursorError(ValueError):
    """Raised if a cursor was not issued by Drydock."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list. `next` and `previous` are opaque cursors; None at the end and at the beginning.

    `looked_to` is set if matching rows are rare and the search stopped at this value to limit its cost. The page may
    then be short or empty, and `next` continues the search.
    """

    results: tuple[T, ...]
    next: str | None
    previous: str | None
    looked_to: Any = None

    def map(self, shape: Callable[[Sequence[T]], Sequence[U]]) -> "Page[U]":
        """Return the same page with its rows converted by `shape`, which gets all rows at once."""
        return replace(self, results=tuple(shape(self.results)))  # type: ignore[arg-type, return-value]


@dataclass(frozen=True, slots=True)
class Segment(Generic[M]):
    """A part of a list: `rows` sorted by (`field`, id). No row has null in `field`."""

    rows: QuerySet[M]
    field: str
    descending: bool = False


class At(TypedDict, total=False):
    """Keyword arguments of paged functions: the cursor, and the number of rows (`size`)."""

    cursor: str | None
    size: int | None


class OrderedAt(At, total=False):
    """Keyword arguments of paged functions whose list can be sorted: in addition, the column `order` (`-column`:
    descending).
    """

    order: str


def read_list(
    *own: Segment[M],
    order: str = "",
    rows: QuerySet[M] | None = None,
    may_lack: Sequence[str] = (),
    **at: Unpack[At],
) -> Page[M]:
    """Return a page of a list.

    Without `order`, the list has the order of the segments `own`. With `order`, all `rows` are sorted by that column,
    and rows without a value in a column of `may_lack` come last. `rows` defaults to those of the only segment. Raises
    `BadCursorError`.
    """
    column, descending = order.removeprefix("-"), order.startswith("-")
    if not column:
        return read_page(own, **at)
    rows = own[0].rows if rows is None else rows
    if column not in may_lack:
        return read_page([Segment(rows, column, descending)], **at)
    lack = Q(**{f"{column}__isnull": True})
    return read_page(
        [Segment(rows.exclude(lack), column, descending), Segment(rows.filter(lack), "id", descending)], **at
    )


@dataclass(frozen=True, slots=True)
class _Cursor:
    segment: int
    backwards: bool
    value: Any
    id: int | str


# Unique sort key of a row of a list in memory.
Key = tuple[int | str, ...]


def _encode(cursor: _Cursor) -> str:
    value = {"t": cursor.value.isoformat()} if isinstance(cursor.value, datetime) else cursor.value
    return _signer().sign_object([cursor.segment, int(cursor.backwards), value, cursor.id])


def _decode(text: str, segments: int) -> _Cursor:
    try:
        segment, backwards, value, key = _signer().unsign_object(text)
    except BadSignature as error:
        raise BadCursorError("The cursor cannot be read.") from error
    if segment >= segments:
        raise BadCursorError("The cursor is of another list.")
    value = datetime.fromisoformat(value["t"]) if isinstance(value, dict) else value
    return _Cursor(segment=segment, backwards=bool(backwards), value=value, id=key)


def _signer() -> Signer:
    """Return the signer of cursors. It signs with SECRET_KEY, and accepts keys in SECRET_KEY_FALLBACKS."""
    return Signer(salt="drydock.cursor")


def cursor_before(at: datetime) -> str:
    """Return the cursor of a list by time, the newest first, whose page begins with the last row before this time."""
    return _encode(_Cursor(segment=0, backwards=False, value=at, id=0))


def _beyond(field: str, value: Any, key: int | str, *, descending: bool, itself: bool = False) -> Q:
    """Return the query condition for rows after the row with this value and key, in the direction of the order. With
    `itself`, that row is included.
    """
    # The plain bound lets the index begin at the key; the second condition drops the rows that share its value.
    side = "lt" if descending else "gt"
    also = "e" if itself else ""
    return Q(**{f"{field}__{side}e": value}) & (Q(**{f"{field}__{side}": value}) | Q(**{f"pk__{side}{also}": key}))


def _from(rows: QuerySet[M], beyond: Q) -> QuerySet[M]:
    try:
        return rows.filter(beyond)
    except (ValidationError, ValueError, TypeError) as error:
        raise BadCursorError("The cursor is of another list.") from error


def clamp(size: int | None) -> int:
    """Return the page size limited to 1 to `MAX_PAGE_SIZE`; a default for None."""
    return max(1, min(size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE))


def read_page(segments: Sequence[Segment[M]], *, cursor: str | None = None, size: int | None = None) -> Page[M]:
    """Return at most `size` rows after (or before) `cursor`. One query for each segment that contributes rows. If
    matching rows are rare, one more query searches them, and the page may be shorter.

    Raises `BadCursorError`.
    """
    size = clamp(size)
    start = _decode(cursor, len(segments)) if cursor else None
    backwards = start is not None and start.backwards
    found: list[tuple[int, M]] = []
    numbers = list(range(len(segments)))
    if start is not None:
        numbers = numbers[start.segment :] if not backwards else numbers[: start.segment + 1][::-1]
    end: _Cursor | None = None
    for number in numbers:
        segment = segments[number]
        descending = segment.descending != backwards
        rows, beyond = segment.rows, Q()
        if start is not None and number == start.segment:
            beyond = _beyond(segment.field, start.value, start.id, descending=descending)
            rows = _from(rows, beyond)
        sign = "-" if descending else ""
        wanted = size + 1 - len(found)
        order = (f"{sign}{segment.field}", f"{sign}pk")
        if isinstance(rows, IndexScanRows) and rows.walk is not None:
            last = last_checked_at(rows, order, beyond)
            if last is not None:
                end = _Cursor(number, False, *last)
                rows = rows.filter(_beyond(segment.field, *last, descending=not descending, itself=True))
        found += [(number, row) for row in first_rows(rows, order, wanted)]
        if len(found) > size or end is not None:
            break
    more = len(found) > size
    found = found[:size]
    if backwards:
        found.reverse()
    if end is not None and not more:
        return _cut_short(found, segments, end, start)

    if not found:
        if start is None or backwards or not isinstance(start.id, int):
            # The first row has no predecessor: reading continues from the beginning.
            return Page(results=(), next=None, previous=None)
        # The cursor's own row may not match, as in a search by portions: `previous` includes that row.
        itself = start.id + (-1 if segments[start.segment].descending else 1)
        return Page(results=(), next=None, previous=_encode(replace(start, backwards=True, id=itself)))
    first, final = _place(found[0], segments), _place(found[-1], segments)
    has_previous = more if backwards else start is not None
    return Page(
        results=tuple(row for _, row in found),
        next=_encode(final) if more or backwards else None,
        previous=_encode(replace(first, backwards=True)) if has_previous else None,
    )


def _place(entry: tuple[int, M], segments: Sequence[Segment[M]]) -> _Cursor:
    number, row = entry
    key = str(row.pk) if isinstance(row.pk, UUID) else row.pk
    return _Cursor(number, False, getattr(row, segments[number].field), key)


def _cut_short(
    found: Sequence[tuple[int, M]], segments: Sequence[Segment[M]], end: _Cursor, start: _Cursor | None
) -> Page[M]:
    """Return a page whose search stopped at `end`. No row between its last row and `end` matches."""
    backwards = start is not None and start.backwards
    first, last = (_place(found[0], segments), _place(found[-1], segments)) if found else (end, end)
    onwards, back = (last, end) if backwards else (end, first)
    return Page(
        results=tuple(row for _, row in found),
        next=_encode(replace(onwards, backwards=False)),
        previous=_encode(replace(back, backwards=True)) if start is not None else None,
        looked_to=None if backwards else end.value,
    )


def cut_page(
    rows: Sequence[T], key: Callable[[T], Key], *, cursor: str | None = None, size: int | None = None
) -> Page[T]:
    """Return a page of a list that is computed as a whole; `key` returns a row's sort key. Rows may appear or disappear
    between two pages.

    Raises `BadCursorError`.
    """
    size = clamp(size)
    start = _decode(cursor, 1) if cursor else None
    found = sorted(rows, key=key)
    keys = [key(row) for row in found]
    begin, end = 0, size
    if start is not None:
        if not isinstance(start.value, list):
            raise BadCursorError("The cursor is of another list.")
        try:
            here = (bisect_left if start.backwards else bisect_right)(keys, tuple(start.value))
        except TypeError as error:
            raise BadCursorError("The cursor is of another list.") from error
        begin, end = (max(0, here - size), here) if start.backwards else (here, here + size)

    def at(number: int, *, back: bool) -> str:
        return _encode(_Cursor(segment=0, backwards=back, value=list(keys[number]), id=0))

    shown = found[begin:end]
    return Page(
        results=tuple(shown),
        next=at(begin + len(shown) - 1, back=False) if shown and end < len(found) else None,
        previous=at(begin, back=True) if shown and begin > 0 else None,
    )


# Reads rows by key: those after the key, or the first ones without a key; those up to it with `onwards=False`; bounded
# by a count.
Window = Callable[[Key | None, bool, int], Sequence[T]]


def cut_window(
    in_memory: Sequence[T], window: Window[T], key: Callable[[T], Key], *, like: Key, **at: Unpack[At]
) -> Page[T]:
    """Return a page of a list that is partly in memory and mostly in the database, sorted by the same `key`.
    `window(key, onwards, count)` reads rows from the database. `like` is an example of a key with the right types.

    Raises `BadCursorError`.
    """
    cursor, most = at.get("cursor"), clamp(at.get("size")) + 1
    if not cursor:
        return cut_page([*in_memory, *window(None, True, most)], key, **at)
    start = _decode(cursor, 1)
    there = start.value if isinstance(start.value, list) else []
    if list(map(type, there)) != list(map(type, like)):
        raise BadCursorError("The cursor is of another list.")
    ways = ((True, 1 if start.backwards else most), (False, most if start.backwards else 1))
    found = [row for onwards, count in ways for row in window(tuple(there), onwards, count)]
    return cut_page([*in_memory, *found], key, **at)
