"""Pseudonyms that replace usernames in records that cannot change, and the texts that replace erased names.

Usernames are stored only in the table of accounts. A timeline entry contains the row id of the account instead.
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
    """Return the pseudonym of the account with this row id. Pages show the username instead while the account
    exists.
    """
    return f"person {number}"


def number_of(text: str) -> int | None:
    """Return the row id of the account in a pseudonym; None for any other text."""
    found = PSEUDONYM.fullmatch(text)
    return int(found[1]) if found else None


def erased_name(number: int) -> str:
    """Return the text that replaces the name of an erased user. It is not a valid username."""
    return f"{FORMER}{number}"


def hash_of_name(name: str) -> str:
    """Return the hash by which entries with an erased name are found. It does not protect names that can be guessed."""
    return hash_of(f"name\n{name}")


def may_be_username(text: str) -> bool:
    """Return whether the text may be a username: it has no space, unlike rules, `the command line` and pseudonyms."""
    return bool(text) and " " not in text


def rename_in_entry(kind: str, parts: Sequence[Any], change: Callable[[str], str]) -> list[Any]:
    """Return parts of a timeline entry (`data`, `before`, `after`) with `change` applied to every name of a person.

    `kind` is the kind of the entry, which determines the fields that contain names.
    """
    fields = EntryKind(kind).naming
    return [value if fields is None or not value else _renamed(value, fields, change) for value in parts]


def rename_in_reasons(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with `change` applied to the names of people in the reasons that it contains."""
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
