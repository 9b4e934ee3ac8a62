"""The one way to write a time for programs: RFC 3339 in UTC with `Z`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def iso(at: datetime, timespec: str = "auto") -> str:
    """`2026-03-02T14:32:10.123456Z`; `timespec` as `datetime.isoformat` takes it."""
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """The same as JSON values: times in text, tuples as lists."""
    match value:
        case datetime():
            return iso(value)
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return value
