"""How an operation refuses."""

from collections.abc import Collection
from datetime import datetime
from typing import Any, TypeVar

from fleet.domain.reason import Reason
from fleet.domain.times import iso

T = TypeVar("T")


class Refused(Exception):
    """Nothing was written. `code` is a problem type, `reason` what people are told, `details` goes along as JSON."""

    def __init__(self, code: str, reason: Reason | str, /, **details: Any) -> None:
        super().__init__(f"{code}: {reason.code if isinstance(reason, Reason) else reason}")
        self.code = code
        self.reason = reason
        self.details = details


def or_refuse(found: T | None, code: str, reason: Reason) -> T:
    """What was looked for. Raises Refused where there is none."""
    if found is None:
        raise Refused(code, reason)
    return found


def refuse_other(version: int | datetime, expected: Collection[str] | None) -> None:
    """Raises Refused `precondition-failed` (details `version`) where something is at none of the versions that somebody
    decided on, written as the API writes them; None: at any.
    """
    stands = iso(version) if isinstance(version, datetime) else str(version)
    if expected is not None and stands not in expected:
        raise Refused("precondition-failed", Reason("version-moved"), version=stands)
