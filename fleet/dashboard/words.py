"""Times and durations in words, as pages write them. The browser's `drydock.js` writes the same."""

from datetime import UTC, datetime

from django.utils.timezone import localtime


def span(seconds: float) -> str:
    """`0:42`, `4:10`, `1 h 04 min`, `2 d 3 h`. Never negative."""
    whole = max(0, int(seconds))
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def ago(seconds: float) -> str:
    """`just now`, `42 s ago`, `5 min ago`, `3 h ago`, `2 d ago`."""
    whole = int(seconds)
    if whole < 2:
        return "just now"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if whole < limit:
            return f"{whole // unit} {name} ago"
    return f"{whole // 86400} d ago"


def duration(seconds: float | None) -> str:
    """A length: `9 s`, `15 min`, `14 min 20 s`, `2 h 5 min`, `3 d 2 h`."""
    if seconds is None:
        return ""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    if whole < 86400:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")
    return f"{whole // 86400} d" + (f" {whole % 86400 // 3600} h" if whole % 86400 // 3600 else "")


def impact(seconds: int | None) -> str:
    """Azure's DurationInSeconds: -1 is unknown, 0 no interruption."""
    if seconds is None:
        return "not stated"
    if seconds < 0:
        return "unknown"
    return "no interruption" if seconds == 0 else duration(seconds)


def clock(at: datetime, now: datetime) -> str:
    """`14:32:10`, with the day where it is not today's, in the reader's time zone."""
    at, now = localtime(at), localtime(now)
    if at.date() == now.date():
        return f"{at:%H:%M:%S}"
    return f"{at.day} {at:%b} {at:%H:%M:%S}" if at.year == now.year else f"{at:%Y-%m-%d %H:%M:%S}"


def zone_name(at: datetime) -> str:
    """What that time zone is called at that time: `UTC`, `CEST`."""
    return localtime(at).tzname() or ""


def hms(at: datetime) -> str:
    """`14:32:10` in the reader's time zone."""
    return f"{localtime(at):%H:%M:%S}"


def at_clock(at: datetime) -> str:
    """`14:32:10 UTC`, in the reader's time zone."""
    return f"{hms(at)} {zone_name(at)}"


def iso(at: datetime) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
