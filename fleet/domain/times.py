"""The one way to write a time for programs: RFC 3339 in UTC with `Z`."""

from datetime import UTC, datetime


def iso(at: datetime, timespec: str = "auto") -> str:
    """`2026-03-02T14:32:10.123456Z`; `timespec` as `datetime.isoformat` takes it."""
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
