"""Formatting of times, durations and single lines of text."""

import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

from django.utils.timezone import get_current_timezone

from fleet.domain import times
from fleet.domain.texts import UNSEEN

# Line and paragraph separators, signs that reverse the direction of a text, and unassigned code points.
BREAKING = UNSEEN | {"Cn"}
MORE = "..."


def one_line(text: str, most: int) -> str:
    """Return the text as one line of at most `most` characters, without invisible characters."""
    # A longer text is cut before it is examined: it may have any length.
    plain = "".join(" " if unicodedata.category(sign) in BREAKING else sign for sign in text[: 4 * most + 16])
    return clipped(" ".join(plain.split()), most)


def clipped(text: str, most: int) -> str:
    """Return the first `most` characters of the text, which end with `...` if the text was cut."""
    return text if len(text) <= most else text[: max(0, most - len(MORE))].rstrip() + MORE[:most]


def share_length(texts: tuple[str, str], most: int) -> tuple[str, str]:
    """Shorten two texts to `most` characters in total. One may use what the other does not need; the first gets the
    larger share.
    """
    first, second = texts
    share = most * 3 // 5
    room = max(share, most - len(second))
    first = clipped(first, room)
    return first, clipped(second, most - len(first))


# Reader of a text: time zone and form.


class Form(StrEnum):
    """Where a text is read. On pages, times are short and in the reader's time zone; elsewhere they are complete."""

    PAGE = "page"
    API = "api"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reader of a text: where it is read, and the time zone. Pages show the day of a time unless it is that of
    `now`.
    """

    zone: tzinfo
    form: Form
    now: datetime | None = None


# The API, files and the command line: complete times in UTC.
API = Reader(UTC, Form.API)


def page_reader(now: datetime | None = None) -> Reader:
    """Return the reader of the current request's page, with the active time zone."""
    return Reader(get_current_timezone(), Form.PAGE, now)


# Times and durations in words. The browser's `drydock.js` writes the same.


def span(seconds: float) -> str:
    """Return a duration as text, such as `0:42`, `4:10`, `1 h 04 min` or `2 d 3 h`. A negative one counts as zero."""
    whole = max(0, int(seconds))
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def ago(seconds: float) -> str:
    """Return how long ago something was, such as `just now`, `42 s ago`, `5 min ago`, `3 h ago` or `2 d ago`."""
    return "just now" if int(seconds) < 2 else f"{age(seconds)} ago"


def age(seconds: float) -> str:
    """Return a duration with one unit, such as `42 s`, `5 min`, `3 h` or `2 d`."""
    whole = max(0, int(seconds))
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if whole < limit:
            return f"{whole // unit} {name}"
    return f"{whole // 86400} d"


def duration(seconds: float | None) -> str:
    """Return a duration with up to two units, such as `9 s`, `15 min`, `14 min 20 s` or `2 h 5 min`; empty for None."""
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
    """Return Azure's DurationInSeconds as text: -1 is unknown, 0 means no interruption."""
    if seconds is None:
        return "not stated"
    if seconds < 0:
        return "unknown"
    return "no interruption" if seconds == 0 else duration(seconds)


def local(at: datetime, zone: tzinfo | None = None) -> datetime:
    """Return the time in this time zone, or in the reader's; in UTC if that zone cannot represent it."""
    try:
        return at.astimezone(zone or get_current_timezone())
    except (OverflowError, ValueError):
        return at.astimezone(UTC)


def clock(at: datetime, now: datetime) -> str:
    """Return a time such as `14:32:10` in the reader's time zone, with the day unless it is the same as that of
    `now`.
    """
    at, now = local(at), local(now)
    if at.date() == now.date():
        return f"{at:%H:%M:%S}"
    return f"{at.day} {at:%b} {at:%H:%M:%S}" if at.year == now.year else f"{at:%Y-%m-%d %H:%M:%S}"


def zone_name(at: datetime) -> str:
    """Return the name of the reader's time zone at that time, such as `UTC` or `CEST`."""
    return local(at).tzname() or ""


def hms(at: datetime) -> str:
    """Return a time such as `14:32:10` in the reader's time zone."""
    return f"{local(at):%H:%M:%S}"


def at_clock(at: datetime) -> str:
    """Return a time with its zone in the reader's time zone, such as `14:32:10 UTC`."""
    return f"{hms(at)} {zone_name(at)}"


def iso(at: datetime) -> str:
    """Return a time in ISO 8601 with milliseconds, for the browser."""
    return times.iso(at, "milliseconds")


def at(when: datetime | str, reader: Reader) -> str:
    """Return a time for use inside a sentence.

    On a page it is `14:32:10` in the reader's zone, with the day unless it is today. In a notification it is `15:32:10
    CET (14:32:10 UTC)`, elsewhere `2026-03-02 14:32:10 UTC`. A text argument must be in ISO 8601.
    """
    when = datetime.fromisoformat(when) if isinstance(when, str) else when
    when = local(when, reader.zone)
    if reader.form is Form.MESSAGE:
        return _in_message(when, reader)
    if reader.form is Form.PAGE:
        now = local(reader.now, reader.zone) if reader.now else None
        if now is None or now.date() == when.date():
            return f"{when:%H:%M:%S}"
        return f"{when.day} {when:%b} {when:%H:%M:%S}"
    return f"{when:%Y-%m-%d %H:%M:%S} {when.tzname()}"


def _in_message(when: datetime, reader: Reader) -> str:
    """Return a time with its zone and in UTC, because a notification may be read in any time zone. The day is added
    unless it is today.
    """
    here = f"{when:%H:%M:%S} {when.tzname()}"
    if reader.now is None or local(reader.now, reader.zone).date() != when.date():
        here = f"{when:%Y-%m-%d} {here}"
    there = when.astimezone(UTC)
    if when.utcoffset() == there.utcoffset():
        return here
    day = f"{there:%Y-%m-%d} " if there.date() != when.date() else ""
    return f"{here} ({day}{there:%H:%M:%S} UTC)"
