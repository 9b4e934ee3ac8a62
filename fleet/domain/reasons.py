"""Reasons as codes with values, and the exception for refused operations. `fleet.wording` turns reasons into text."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from fleet.domain.times import iso


@dataclass(frozen=True, slots=True, init=False)
class Reason:
    """A reason: the code of a sentence in `fleet.wording`, and the values in the sentence.

    Values are JSON values, times, and other reasons.
    """

    code: str
    values: Mapping[str, Any] = field(hash=False)

    def __init__(self, code: str, /, **values: Any) -> None:
        object.__setattr__(self, "code", code)
        object.__setattr__(self, "values", values)

    @property
    def stored(self) -> str:
        """The reason as JSON text for a text column."""
        return json.dumps(as_json(self))


def as_json(value: Any) -> Any:
    """Convert a value to JSON values: a time to RFC 3339, a tuple to a list, a reason to its `code` and `values`."""
    match value:
        case Reason():
            return {"code": value.code, "values": as_json(value.values)}
        case datetime():
            return iso(value)
        case Mapping():
            return {str(name): as_json(item) for name, item in value.items()}
        case list() | tuple():
            return [as_json(item) for item in value]
    return value


def from_json(value: Any) -> Any:
    """Return a JSON value with each `{"code": …, "values": …}` in it converted to a `Reason`."""
    match value:
        case {"code": str(code), "values": dict(values), **others} if not others:
            return Reason(code, **from_json(values))
        case dict():
            return {name: from_json(item) for name, item in value.items()}
        case list():
            return [from_json(item) for item in value]
    return value


def stored_text(reason: Reason | str) -> str:
    """Return a reason as text for a text column. A plain sentence is returned unchanged."""
    return reason.stored if isinstance(reason, Reason) else reason


def read_reason(stored: str) -> Reason | str:
    """Return the reason from a text column; or the text itself, if it is a sentence from before reasons had codes."""
    if not stored.startswith('{"code": '):
        return stored
    try:
        reason = from_json(json.loads(stored))
    except (ValueError, TypeError, RecursionError):
        return stored
    return reason if isinstance(reason, Reason) else stored


# How an operation refuses.

T = TypeVar("T")


class Refused(Exception):
    """An operation was refused and nothing was written.

    `code` is a problem type, `reason` the text for people. `details` are further values of the API's problem document.
    """

    def __init__(self, code: str, reason: Reason | str, /, **details: Any) -> None:
        super().__init__(f"{code}: {reason.code if isinstance(reason, Reason) else reason}")
        self.code = code
        self.reason = reason
        self.details = details


def require_found(found: T | None, code: str, reason: Reason) -> T:
    """Return `found` if it is not None. Raises Refused with this code and reason otherwise."""
    if found is None:
        raise Refused(code, reason)
    return found


def require_version(version: int | datetime, expected: Collection[str] | None) -> None:
    """Raise Refused `precondition-failed` (details `version`) if the version is not one of the expected ones.

    `expected` are versions as the API writes them; None accepts any version.
    """
    stands = iso(version) if isinstance(version, datetime) else str(version)
    if expected is not None and stands not in expected:
        raise Refused("precondition-failed", Reason("version-moved"), version=stands)
