"""Reasons as codes with values, and refusal of an operation. `fleet.wording` turns them into text."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from fleet.domain.times import iso


@dataclass(frozen=True, slots=True, init=False)
class Reason:
    """A reason: a code of `fleet.wording`, and the values in its sentence.

    Values are JSON values, times, and reasons.
    """

    code: str
    values: Mapping[str, Any] = field(hash=False)

    def __init__(self, code: str, /, **values: Any) -> None:
        object.__setattr__(self, "code", code)
        object.__setattr__(self, "values", values)

    @property
    def stored(self) -> str:
        """The form in which a text column stores it."""
        return json.dumps(as_json(self))


def as_json(value: Any) -> Any:
    """Return the value as JSON values: times in RFC 3339, lists for tuples, a reason as its `code` and `values`."""
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
    """Return the JSON value with every reason in it read."""
    match value:
        case {"code": str(code), "values": dict(values), **others} if not others:
            return Reason(code, **from_json(values))
        case dict():
            return {name: from_json(item) for name, item in value.items()}
        case list():
            return [from_json(item) for item in value]
    return value


def stored_text(reason: Reason | str) -> str:
    """Return the form in which a text column stores a reason."""
    return reason.stored if isinstance(reason, Reason) else reason


def read_reason(stored: str) -> Reason | str:
    """Return the stored reason; or the sentence itself, as it was recorded before reasons had codes."""
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
    """A refused operation; nothing was written.

    `code` is a problem type, `reason` the text for people, `details` are added as JSON."""

    def __init__(self, code: str, reason: Reason | str, /, **details: Any) -> None:
        super().__init__(f"{code}: {reason.code if isinstance(reason, Reason) else reason}")
        self.code = code
        self.reason = reason
        self.details = details


def require_found(found: T | None, code: str, reason: Reason) -> T:
    """Return the object. Raises Refused where there is none."""
    if found is None:
        raise Refused(code, reason)
    return found


def require_version(version: int | datetime, expected: Collection[str] | None) -> None:
    """Raise Refused `precondition-failed` (details `version`) where the version is none of the expected ones.

    `expected` has versions as the API writes them; None accepts any.
    """
    stands = iso(version) if isinstance(version, datetime) else str(version)
    if expected is not None and stands not in expected:
        raise Refused("precondition-failed", Reason("version-moved"), version=stands)
