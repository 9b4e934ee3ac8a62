"""Pseudonyms: names of people in records that cannot change, and the replacement of an erased name.

The names of people are stored in one table only, the accounts. A line of the timeline names an account by its number.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from fleet.domain.secrets import hash_of
from fleet.domain.timeline import EntryKind

# No name of a person has a blank.
FORMER = "former person "
PSEUDONYM = re.compile(r"person ([1-9][0-9]{0,17})", re.ASCII)
NOTHING: frozenset[str] = frozenset()


def pseudonym(number: int) -> str:
    """Return the pseudonym of the account with this row id; while the row exists, people see its name instead."""
    return f"person {number}"


def number_of(text: str) -> int | None:
    """The row id in a pseudonym; None for every other text."""
    found = PSEUDONYM.fullmatch(text)
    return int(found[1]) if found else None


def erased_name(number: int) -> str:
    """Return the text that replaces an erased name. It is not a valid username."""
    return f"{FORMER}{number}"


def hash_of_name(name: str) -> str:
    """Return the hash that identifies an erased name in entries that contain it. A guessed name can be checked against
    it."""
    return hash_of(f"name\n{name}")


def may_be_username(text: str) -> bool:
    """Whether the text may be a username: rules, `the command line` and pseudonyms have a blank."""
    return bool(text) and " " not in text


def rename_in_entry(kind: str, parts: Sequence[Any], change: Callable[[str], str]) -> list[Any]:
    """Return parts of an entry (`data`, `before` or `after`, in JSON values) with every name of a person changed."""
    fields = EntryKind(kind).naming
    return [value if fields is None or not value else _renamed(value, fields, change) for value in parts]


def rename_in_reasons(value: Any, change: Callable[[str], str]) -> Any:
    """Return the JSON value with the names of people in its reasons changed."""
    return _renamed(value, NOTHING, change)


def _renamed(value: Any, fields: frozenset[str], change: Callable[[str], str]) -> Any:
    match value:
        case {"code": str(code), "values": dict(values), **others} if not others:
            return {"code": code, "values": _renamed(values, frozenset({"by"}), change)}
        case dict():
            return {
                name: change(item) if name in fields and isinstance(item, str) else _renamed(item, NOTHING, change)
                for name, item in value.items()
            }
        case list():
            return [_renamed(item, NOTHING, change) for item in value]
    return value
