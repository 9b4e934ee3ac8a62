"""How an operation refuses."""

from typing import Any

from fleet.domain.reason import Reason


class Refused(Exception):
    """Nothing was written. `code` is a problem type, `reason` what people are told, `details` goes along as JSON."""

    def __init__(self, code: str, reason: Reason | str, /, **details: Any) -> None:
        super().__init__(f"{code}: {reason.code if isinstance(reason, Reason) else reason}")
        self.code = code
        self.reason = reason
        self.details = details
