"""Conversion of database rows to frozen dataclasses whose fields have the names of the columns, and rows by key."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fleet.domain.reasons import Reason, from_json, read_reason

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class InApi(Enum):
    """How API answers show a field or property. Use it as `Annotated[type, InApi…]`.

    By default, answers show every field and no property. If the annotation is a text, it is the description in the
    API's schema, and a property is shown, too.
    """

    SHOWN = "shown"
    OMITTED = "omitted"
    # The fields of a part are shown among those of the whole.
    FLATTENED = "flattened"


_NOTHING = object()


def from_row(shape: type[T], row: object, /, **own: Any) -> T:
    """Build the dataclass `shape` from a row: the fields in `own` as given, every other field from the same name of
    `row`.

    Values are converted to the type of the field: an enum's value to its member, a list to a tuple, a stored reason to
    a `Reason`. An empty text becomes None if the type is an enum or None. A default applies if the row has no such
    name. Runs no query. Raises TypeError for a column that is not loaded, and for a field without a value.
    """
    loaded = getattr(row, "__dict__", None)
    # A class is hashable, whatever it is of.
    for name, read in _plan(shape):  # type: ignore[arg-type]
        if name in own:
            continue
        value = getattr(row, name, _NOTHING) if loaded is None else loaded.get(name, _NOTHING)
        if value is not _NOTHING:
            own[name] = read(value) if read else value
        elif hasattr(type(row), name):
            raise TypeError(f"{shape.__name__}.{name} has to be given: the row has no such value loaded")
    return shape(**own)


def names_of(shape: type[Any]) -> tuple[str, ...]:
    """Return the field names of a dataclass in order: the columns to select for `of_values`."""
    # A class is hashable, whatever it is of.
    return tuple(name for name, _ in _plan(shape))  # type: ignore[arg-type]


def of_values(shape: type[T], values: Sequence[Any]) -> T:
    """Build the dataclass from one value for each name of `names_of`, in that order. It is faster than `from_row`, for
    many rows.
    """
    names, readers = _ways(shape)  # type: ignore[arg-type]
    given = dict(zip(names, values, strict=True))
    for name, read in readers:
        given[name] = read(given[name])
    return shape(**given)


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the values of each key in their order. Any other key has an empty list."""
    found: dict[K, list[T]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found


@cache
def _ways(shape: type[Any]) -> tuple[tuple[str, ...], tuple[tuple[str, Callable[[Any], Any]], ...]]:
    """Return the field names, and a converter for each field whose value must be converted."""
    plan = _plan(shape)  # type: ignore[arg-type]
    return tuple(name for name, _ in plan), tuple((name, read) for name, read in plan if read is not None)


@cache
def _plan(shape: type[Any]) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    """Return each field name with a converter for the value from a row (None: used unchanged)."""
    types = get_type_hints(shape)
    return tuple((field.name, _reader(types[field.name])) for field in fields(shape) if field.init)


def _reader(kind: Any) -> Callable[[Any], Any] | None:
    if get_origin(kind) is tuple:
        return (lambda values: tuple(from_json(list(values)))) if _holds_reasons(get_args(kind)[0]) else tuple
    if _holds_reasons(kind):
        return lambda value: read_reason(value) if isinstance(value, str) else value
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for member in members:
        if isinstance(member, type) and issubclass(member, Enum):
            return _enum(member, or_none=type(None) in members)
    return None


def _holds_reasons(kind: Any) -> bool:
    return kind is Reason or Reason in get_args(kind)


def _enum(members: type[Enum], *, or_none: bool) -> Callable[[Any], Any]:
    return lambda value: None if or_none and not value else members(value)
