"""Progress of the hooks for each event that names this machine: determines the next step, and converts to the text in
the spool.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from drydock_agent.clock import from_text
from drydock_agent.drills import is_drill_id
from drydock_agent.wire import PREPARE, RECOVER

RUNNING = "running"
SUCCEEDED = "succeeded"
FAILED = "failed"
TIMED_OUT = "timed-out"
NOTHING = "nothing"
PLANNED = "planned"

# Number of characters at the end of a hook's output that are reported.
OUTPUT_CHARACTERS = 4000

Event = dict[str, Any]


@dataclass(slots=True)
class Progress:
    """Progress of the hooks for one event. `done` maps each finished hook of the current phase to its outcome.

    `running` is the hook in progress, saved before it starts, with the id of the boot and of the run. If it is set when
    the agent starts, the hook was interrupted; `interrupted` lists these hooks.
    """

    # The event as the metadata service listed it last.
    event: Event
    phase: str = PREPARE
    late: bool = False
    ended: bool = False
    # Outcome of prepare; empty until it has ended.
    prepared: str = ""
    # Start and end of prepare, as text; empty if unknown.
    began_at: str = ""
    ended_at: str = ""
    done: dict[str, str] = field(default_factory=dict)
    running: str = ""
    run: str = ""
    boot: str = ""
    interrupted: list[str] = field(default_factory=list)

    @property
    def event_id(self) -> str:
        """The event id as the metadata service spells it."""
        return str(self.event["EventId"])

    def outcome(self) -> str:
        """The outcome of the phase: the worst outcome of all hooks."""
        found = set(self.done.values())
        return next((word for word in (FAILED, TIMED_OUT, SUCCEEDED) if word in found), NOTHING)


@dataclass(slots=True)
class Memory:
    """Progress of all events, stored across restarts. Events are keyed by their id in lower case, in order of
    appearance. `plans` has the reported time of each planned prepare phase.
    """

    resource_name: str = ""
    events: dict[str, Progress] = field(default_factory=dict)
    plans: dict[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """Encode the progress as JSON for the spool."""
        events = {key: asdict(progress) for key, progress in self.events.items()}
        return json.dumps({"resource_name": self.resource_name, "events": events, "plans": self.plans})


def memory_from_text(text: str | None) -> Memory:
    """Parse the JSON of `to_text`. Unknown fields of other versions are ignored."""
    content = json.loads(text or "{}")
    known = {each.name for each in fields(Progress)}
    events = {
        key: Progress(**{name: value for name, value in stored.items() if name in known})
        for key, stored in content.get("events", {}).items()
    }
    return Memory(content.get("resource_name", ""), events, content.get("plans", {}))


def reported_steps(progress: Progress) -> list[tuple[str, str, str, str]]:
    """Return the steps of the prepare phase that were reported and still apply, as (step, outcome, hook, time)."""
    steps = [("begin", RUNNING, "", progress.began_at)] if progress.began_at else []
    if progress.phase == PREPARE:
        bad = [(hook, outcome) for hook, outcome in progress.done.items() if hook and outcome != SUCCEEDED]
        steps += [("hook", outcome, hook, progress.ended_at) for hook, outcome in bad]
    if progress.prepared:
        steps.append(("end", progress.prepared, "", progress.ended_at))
    return steps


ADVISORY_TYPES = ("spotrebalancerecommendation",)


def events_in(body: bytes) -> dict[str, Event]:
    """Return the events of a valid document by their id in lower case, in document order. Events without an id are
    omitted.

    Events that are only advice are omitted, too: they do not affect the machine, so no hook prepares for them.
    """
    found = {}
    for event in json.loads(body.decode("utf-8-sig"), strict=False)["Events"]:
        event_id = event.get("EventId") if isinstance(event, dict) else None
        if (
            isinstance(event_id, str)
            and event_id
            and str(event.get("EventType")).strip().casefold() not in ADVISORY_TYPES
        ):
            found[event_id.lower()] = event
    return found


def names(event: Event, resource_name: str) -> bool:
    """Return whether the event names this machine. Case, and the leading underscore of old api-versions, are
    ignored.
    """
    given = event.get("Resources")
    wanted = resource_name.casefold()
    found = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return bool(wanted) and any(
        isinstance(each, str) and each.strip().casefold() in (wanted, f"_{wanted}") for each in found
    )


def started(event: Event) -> bool:
    """Return whether Azure has started the event."""
    return str(event.get("EventStatus") or "").strip().casefold() == "started"


def prepare_at(event: Event, minutes: Mapping[str, float | None]) -> datetime | None:
    """Return the planned time of the prepare phase; None for at once, as for a started event or without NotBefore.

    `minutes` are those of the setting.
    """
    before = minutes.get(str(event.get("EventType")).strip().lower(), minutes[""])
    not_before = _time(event.get("NotBefore"))
    if before is None or not_before is None or started(event):
        return None
    return not_before - timedelta(minutes=before)


def _time(text: object) -> datetime | None:
    """Parse a time as Azure writes it, or as RFC 3339. None if it is invalid, or not between the years 2000 and 2100,
    which the backend ignores, too.
    """
    try:
        found = from_text(text) or parsedate_to_datetime(str(text))
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    # A time without a zone is UTC.
    found = found.replace(tzinfo=timezone.utc) if found.tzinfo is None else found
    return found if 2000 < found.year < 2100 else None


def next_due(memory: Memory, listed: Mapping[str, Event], planned: Collection[str] = ()) -> tuple[str, str] | None:
    """Return the id of the next event to handle and its phase, or None if nothing is due. `planned` are the events
    whose prepare phase is due later.

    A phase that has begun is completed before the next one begins. Preparation for new events comes before recovery,
    because only preparation is urgent. A drill comes last, and waits while a real event names this machine.
    """
    busy = any_real_event_names(listed, memory.resource_name)
    begun = [key for key, progress in memory.events.items() if not progress.ended]
    for key in sorted(begun, key=is_drill_id):
        if not (busy and is_drill_id(key)):
            return key, memory.events[key].phase
    for key, event in listed.items():
        is_new = key not in memory.events and key not in planned
        if is_new and names(event, memory.resource_name) and not (busy and is_drill_id(key)):
            return key, PREPARE
    for key in sorted(memory.events, key=is_drill_id):
        if key not in listed and not (busy and is_drill_id(key)):
            return key, RECOVER
    return None


def any_real_event_names(listed: Mapping[str, Event], resource_name: str) -> bool:
    """Return whether a real event (not a drill) names this machine."""
    return any(not is_drill_id(key) and names(event, resource_name) for key, event in listed.items())
