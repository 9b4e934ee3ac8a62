"""How an operation refuses."""

from typing import Any, TypeVar

from fleet.domain.reason import Reason

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
