"""What Alertmanager is told of what is open; comments of silences, and what is wrong with a line that asks for some."""

from collections.abc import Mapping
from datetime import datetime

from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.projections.messages.open import OpenThing
from fleet.wording.events import named, type_words
from fleet.wording.plain import one_line
from fleet.wording.sentences import EntryText, Sentence, some

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
        "The line “{line}” also hits machines whose names begin or end alike, such as web-10 for web-1. Say what "
        "stands beside the name, such as (:[0-9]+)? for a port."
    ),
}


def annotations(thing: OpenThing) -> Mapping[str, str]:
    """What stands beside an alert; times in UTC, whatever happens in between."""
    return {"summary": summary(thing), "description": one_line(" ".join(_description(thing)), LONGEST)}


def summary(thing: OpenThing) -> str:
    """One line."""
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
    effect = type_words(thing.event_type).effect
    machines = f"Machines: {some(thing.resources, 20)}." if thing.resources else "Azure names no machine."
    if thing.started_at:
        return [f"Under way since {_at(thing.started_at)}.", effect, machines]
    when = f"Azure starts it any time after {_at(thing.due_at)}." if thing.due_at else "It may start at any moment."
    return [when, effect, machines]


def silence_comment(thing: OpenThing, mark: str) -> str:
    """What people read who find the silence; the mark is how Drydock finds it again."""
    which = f" ({thing.event_id})" if thing.event_id else ""
    return (
        f"{summary(thing)} is under way{which}. Drydock ends this silence when it sees the end; expire it, and Drydock "
        f"leaves it at that. {mark}"
    )


def _at(at: datetime | None) -> str:
    return iso(at) if at else ""
