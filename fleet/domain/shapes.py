"""Shaping a row: a frozen dataclass out of whatever the row has under the same names."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fleet.domain.reasons import Reason, from_json, read_reason

T = TypeVar("T")


class InApi(Enum):
    """The way in which API answers show a field or property, as `Annotated[type, InApi…]`. Without it, answers show
    every field and no property; an annotated text is the description, and shows a property too.
    """

    SHOWN = "shown"
    OMITTED = "omitted"
    # The fields of a part are shown among those of the whole.
    FLATTENED = "flattened"


_NOTHING = object()


def from_row(shape: type[T], row: object, /, **own: Any) -> T:
    """Build the dataclass `shape`: the fields in `own` as given, every other one from `row`.

    Values are converted to the field's type: an enum's value to its member, a list to a tuple, a stored reason to a
    reason. An empty text becomes None where an enum may be None. A field with a default keeps it where the row has no
    such name.

    Runs no query: raises TypeError for a relation or column that the row has not loaded, and for a field without a
    value.
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
    """The fields of a dataclass, in order: what to ask for where `of_values` makes it of the answer."""
    # A class is hashable, whatever it is of.
    return tuple(name for name, _ in _plan(shape))  # type: ignore[arg-type]


def of_values(shape: type[T], values: Sequence[Any]) -> T:
    """Build the dataclass from one value of each of `names_of`, in that order, as `like` does: for many thousands of
    rows."""
    names, readers = _ways(shape)  # type: ignore[arg-type]
    given = dict(zip(names, values, strict=True))
    for name, read in readers:
        given[name] = read(given[name])
    return shape(**given)


@cache
def _ways(shape: type[Any]) -> tuple[tuple[str, ...], tuple[tuple[str, Callable[[Any], Any]], ...]]:
    """The names of the fields, and what reads the values of some of them."""
    plan = _plan(shape)  # type: ignore[arg-type]
    return tuple(name for name, _ in plan), tuple((name, read) for name, read in plan if read is not None)


@cache
def _plan(shape: type[Any]) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    """The names of the fields, each with what reads a row's value of it (None: it is taken as it is)."""
    types = get_type_hints(shape)
    return tuple((field.name, _reader(types[field.name])) for field in fields(shape) if field.init)


def _reader(kind: Any) -> Callable[[Any], Any] | None:
    if get_origin(kind) is tuple:
        return _reasons if _holds_reasons(get_args(kind)[0]) else tuple
    if _holds_reasons(kind):
        return _reason
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for member in members:
        if isinstance(member, type) and issubclass(member, Enum):
            return _enum(member, or_none=type(None) in members)
    return None


def _holds_reasons(kind: Any) -> bool:
    return kind is Reason or Reason in get_args(kind)


def _reasons(values: Any) -> tuple[Any, ...]:
    return tuple(from_json(list(values)))


def _reason(value: Any) -> Any:
    return read_reason(value) if isinstance(value, str) else value


def _enum(members: type[Enum], *, or_none: bool) -> Callable[[Any], Any]:
    return lambda value: None if or_none and not value else members(value)
