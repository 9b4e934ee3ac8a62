"""Data of notifications for programs, and texts of alerts, digests and deliveries."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from django.conf import settings

from fleet.domain.event_types import event_type_of
from fleet.domain.intake import EVENT_ID
from fleet.domain.orders.by_hand import linux_command, windows_command
from fleet.domain.reasons import Reason
from fleet.domain.states import OPEN_ORDERS
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.notifications.grouping import Digest
from fleet.notifications.news import MessageNews, OpenThing
from fleet.projections.approvals import ApprovalRow, NextAsked, OrderRow
from fleet.projections.caches.maintenances import MaintenanceRow
from fleet.projections.events.rows import BlastRadius, EventRow
from fleet.wording.events import named
from fleet.wording.say import say, text_of
from fleet.wording.sentences import EntryText, Sentence, some
from fleet.wording.times import API, Reader, at, one_line

LONGEST = 4000

ENTRIES: dict[EntryKind, EntryText] = {}

SENTENCES: dict[str, Sentence] = {
    "silence-too-many": "A channel takes at most {most} lines of silences.",
    "silence-unreadable": (
        'The line “{line}” cannot be read. It is: services, a colon, then matchers, such as shop-*: instance="{{name}}"'
    ),
    "silence-no-place": (
        "The line “{line}” names no machine and no cache: it would silence everybody's. One matcher has to hold "
        "{{name}}, {{host}}, {{address}} or {{cache}}."
    ),
    "silence-two-places": "The line “{line}” names a machine or a cache twice; write a line for each.",
    "silence-negative": "The line “{line}” would silence all but the machine.",
    "silence-own-label": "The line “{line}” would silence what Drydock itself tells: “{label}” is a label of its own.",
    "silence-no-expression": "The line “{line}” is no regular expression.",
    "silence-hits-others": (
        "The line “{line}” also hits machines whose names begin or end alike, such as web-10 for web-1. Add the "
        "text next to the name, such as (:[0-9]+)? for a port."
    ),
}


def annotations(thing: OpenThing) -> Mapping[str, str]:
    """Return the annotations of an alert, with times in UTC."""
    return {"summary": summary(thing), "description": one_line(" ".join(_description(thing)), LONGEST)}


def summary(thing: OpenThing) -> str:
    """Return a summary in one line."""
    return one_line(_what(thing), LONGEST)


def _what(thing: OpenThing) -> str:
    if thing.cache_host:
        shard = "" if thing.shard is None else f", shard {thing.shard}"
        return f"Maintenance of the cache {thing.cache_host}{shard}"
    drill = "DRILL: " if thing.drill else ""
    return f"{drill}{named(thing.event_type, thing.resources)} in {thing.set_name}"


def _description(thing: OpenThing) -> list[str]:
    if thing.cache_host:
        if thing.started_at:
            return [f"Under way since {_at(thing.started_at)}."]
        return [f"Expected at {_at(thing.due_at)}." if thing.due_at else "Azure has stated no time."]
    effect = event_type_of(thing.event_type).effect
    machines = f"Machines: {some(thing.resources, 20)}." if thing.resources else "Azure names no machine."
    if thing.started_at:
        return [f"Under way since {_at(thing.started_at)}.", effect, machines]
    when = f"Azure starts it any time after {_at(thing.due_at)}." if thing.due_at else "It may start at any moment."
    return [when, effect, machines]


def silence_comment(thing: OpenThing, mark: str) -> str:
    """Return the comment of a silence for its readers. By the mark, Drydock finds the silence again."""
    which = f" ({thing.event_id})" if thing.event_id else ""
    return (
        f"{summary(thing)} is under way{which}. Drydock ends this silence when it sees the end; expire it, and Drydock "
        f"leaves it at that. {mark}"
    )


def _at(at: datetime | None) -> str:
    return iso(at) if at else ""


# Words of a message: its parts, their maximum lengths, and the page that it links to.

SHORT = 160
TITLE = 200
LINE = 600
# Maximum length of a name inside a line, and of text that a user wrote.
NAME = 64
SAID = 300
# Maximum length of a command to copy.
COMMAND = 1000
# Matches commands with any EventId, whose alphabet is defined where documents are parsed.
COMMANDS = tuple(
    re.compile(re.escape(make("ID")).replace('"ID"', f'"{EVENT_ID}"')) for make in (linux_command, windows_command)
)
DRILL = "DRILL: "


@dataclass(frozen=True, slots=True)
class MessageWords:
    """Texts of one message. `title` is one line. `subject` is a line without state or countdown, the same for all
    messages about a subject, because mail threads depend on it. `lines` is the whole text by line, the title first.
    `short` has at most 160 characters. `path` is the page that it links to; opening it changes nothing.
    """

    title: str
    subject: str
    lines: tuple[str, ...]
    short: str
    path: str


def path_of(news: MessageNews) -> str:
    """Return the page with more details; for an event, the page for the decision."""
    if news.event is not None:
        return f"/events/{news.event.event_id}/"
    if news.maintenance is not None:
        return f"/maintenances/{news.maintenance.id}/"
    if news.moment.declared.path:
        return news.moment.declared.path
    entry = news.entry
    for place, row in (("caches", entry and entry.cache), ("machines", entry and entry.machine)):
        if row:
            return f"/{place}/{row.id}/"
    return f"/sets/{entry.set.id}/" if entry and entry.set else "/"


def is_command(line: str) -> bool:
    """Return whether a line is exactly a command of Drydock to copy."""
    return any(command.fullmatch(line) for command in COMMANDS)


def in_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return each text in one line of a bounded length, without empty ones."""
    limits = ((line, COMMAND if is_command(line) else LINE) for line in lines)
    return tuple(bounded for line, most in limits if (bounded := one_line(line, most)))


# Words of a digest: the state of a storm of events.

# Buttons of a message.
OPEN, CLAIM = "Open in Drydock", "Claim"
# Types of events that are named; the others are counted.
MOST_TYPES = 8


def digest_words(digest: Digest, reader: Reader) -> MessageWords:
    """Return the words of a digest in its current state."""
    where = f" of {digest.of}" if digest.of else ""
    drill = "DRILL: " if digest.drill else ""
    events = "1 event" if digest.total == 1 else f"{digest.total:,} events"
    if not digest.events:
        title = f"{drill}{events}{where}: all over"
        return MessageWords(title, title, (title,), title[:160], "/")
    title = f"{drill}{events}{where}: {_stand(digest)}"
    lines = (title, *_lines(digest, reader))
    return MessageWords(title, title, lines, title[:160], "/")


def _stand(digest: Digest) -> str:
    counts = (
        (digest.count("waits"), "to decide"),
        (digest.count("started"), "under way"),
        (digest.over, "over"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in counts if count) or "nothing to decide"


def _lines(digest: Digest, reader: Reader) -> Iterator[str]:
    types = digest.types
    named = ", ".join(f"{count:,} {name or 'of no type'}" for name, count in types[:MOST_TYPES])
    rest = sum(count for _, count in types[MOST_TYPES:])
    yield f"Open: {named}{f', {rest:,} others' if rest else ''}."
    unclaimed = sum(event.waits and not event.on_it for event in digest.events.values())
    if unclaimed:
        yield f"Unclaimed: {unclaimed:,}."
    if digest.nearest:
        yield "Next deadlines:"
        for deadline, event in digest.nearest:
            yield f"{event.what}: decide by {at(deadline, reader)}" + (", taken." if event.on_it else ".")


def more_events(count: int, title: str) -> str:
    """Return the text of a reply about further events."""
    return f"{count:,} more. {title}"


# Data for programs: rows in the form of the API, with reasons as sentences and times in UTC.


@dataclass(frozen=True, slots=True)
class Difference:
    """Fields of a row that the API omits, and `properties` that it adds; a test compares the two."""

    without: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()


DIFFERENCES: Mapping[type, Difference] = {
    EventRow: Difference(("id",), ("started_seconds", "approval_to_start_seconds")),
    ApprovalRow: Difference(properties=("may_be_withdrawn",)),
    NextAsked: Difference(properties=("sentence",)),
    MaintenanceRow: Difference(properties=("effect",)),
    BlastRadius: Difference(properties=("summary",)),
}


def event_data(news: MessageNews) -> dict[str, Any]:
    """Return the data of a message for programs: the event or cache maintenance in the form of the API, with `url`,
    `decide_by`, `stay_up`, `blast`, `severity` and `drill`. For other subjects, return the data of the entry.
    """
    now = news.server_time or news.at
    known: dict[str, Any] = {}
    if news.event is not None:
        known = data_of(news.event, now)
    elif news.maintenance is not None:
        known = data_of(news.maintenance, now) | {"server_time": data_of(now, now)}
    elif news.entry is not None:
        known = {name: data_of(getattr(news.entry, name), now) for name in ("kind", "set", "machine", "cache")}
        known["text"] = text_of(news.entry, API)
    card = news.card
    return known | {
        "url": settings.BASE_URL.rstrip("/") + path_of(news),
        "decide_by": data_of(card.decide_by, now) if card else None,
        "stay_up": card.blast.stay_up if card else None,
        "blast": data_of(card.blast, now) if card else None,
        "severity": news.severity,
        "drill": news.drill,
    }


def data_of(value: Any, now: datetime) -> Any:
    """Return a value in the form of JSON, at this time."""
    match value:
        case Reason():
            return say(value, API)
        case datetime():
            return iso(value)
        case Enum() | UUID():
            return str(value)
        case list() | tuple():
            return [data_of(item, now) for item in value]
        case Mapping():
            return {str(name): data_of(item, now) for name, item in value.items()}
    if not is_dataclass(value):
        return value
    difference = DIFFERENCES.get(type(value), Difference())
    hidden = {*difference.without, *(each.name for each in fields(value) if each.metadata.get("internal"))}
    names = [field.name for field in fields(value) if field.name not in hidden]
    data = {name: data_of(getattr(value, name), now) for name in (*names, *difference.properties)}
    if "server_time" in data:
        data["server_time"] = iso(now)
    return data | {"seconds_left": _seconds_left(value, now)} if isinstance(value, OrderRow) else data


def _seconds_left(order: OrderRow, now: datetime) -> float | None:
    if order.expires_at is None or order.state not in OPEN_ORDERS:
        return None
    return round(max(0.0, (order.expires_at - now).total_seconds()), 3)
