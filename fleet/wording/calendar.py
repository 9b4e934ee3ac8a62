"""A calendar in the form that programs read (RFC 5545): times in UTC, and what stands in each date."""

from collections.abc import Iterable
from datetime import UTC, timedelta

from icalendar import Calendar, Event

from fleet.domain.event_types import event_type_of
from fleet.projections.messages.calendar import CalendarDate, DateKind
from fleet.wording.events import named
from fleet.wording.sentences import some
from fleet.wording.times import one_line

# How often programs may ask; many ask once a day all the same.
REFRESH = "PT5M"
NO_ALERT = "A calendar is refreshed after minutes to a day: it is no alert."
LONGEST = 500
LONGEST_LINE = 12_000


def ics(name: str, dates: Iterable[CalendarDate], *, base_url: str, host: str) -> bytes:
    """The whole calendar; the same for the same dates."""
    calendar = Calendar()
    calendar.add("prodid", "-//Drydock//Drydock//EN")
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", one_line(f"Drydock: {name}", LONGEST))
    # As plain text: the library has no such type for it, and a duration of its own.
    calendar.add("x-published-ttl", REFRESH)
    calendar.add("refresh-interval", timedelta(minutes=5), parameters={"VALUE": "DURATION"})
    for date in dates:
        calendar.add_component(_event(date, base_url, host))
    whole: bytes = calendar.to_ical()
    return whole


def _event(date: CalendarDate, base_url: str, host: str) -> Event:
    found = Event()
    found.add("uid", f"{date.uid}@{host}")
    found.add("dtstamp", date.changed_at.astimezone(UTC).replace(microsecond=0))
    found.add("sequence", date.sequence)
    found.add("dtstart", date.begin.astimezone(UTC).replace(microsecond=0))
    found.add("dtend", date.end.astimezone(UTC).replace(microsecond=0))
    found.add("summary", one_line(_summary(date), LONGEST))
    found.add("description", "\n".join(one_line(line, LONGEST_LINE) for line in (*_lines(date), NO_ALERT)))
    found.add("status", "CANCELLED" if date.over else "CONFIRMED")
    # Nobody is busy because of it.
    found.add("transp", "TRANSPARENT")
    found.add("url", f"{base_url}{date.path}")
    return found


def _summary(date: CalendarDate) -> str:
    if date.kind is DateKind.WINDOW:
        return f"No approvals: {date.name}"
    if date.kind is DateKind.MAINTENANCE:
        shard = "" if date.shard is None else f", shard {date.shard}"
        return f"Maintenance of the cache {date.name}{shard}"
    return f"{named(date.event_type, date.resources)} in {date.name}"


def _lines(date: CalendarDate) -> list[str]:
    if date.kind is DateKind.WINDOW:
        return date.reason[:LONGEST].splitlines()
    state = "It is over." if date.over else "It is under way." if date.started else ""
    if date.kind is DateKind.MAINTENANCE:
        return [line for line in (state, f"Service: {date.service}" if date.service else "") if line]
    when = "" if state else "Azure starts it any time after this begins; the end is a guess."
    service = f"Service: {date.service}" if date.service else ""
    machines = f"Machines: {some(date.resources, 50)}" if date.resources else ""
    effect = "" if date.over else event_type_of(date.event_type).effect
    return [line for line in (state or when, effect, machines, service) if line]
