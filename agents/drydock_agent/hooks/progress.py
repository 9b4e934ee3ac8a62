"""How far this machine is with each event that names it: what is due next, and how that is kept across restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from drydock_agent.drills import is_drill_id
from drydock_agent.wire import PREPARE, RECOVER

RUNNING = "running"
SUCCEEDED = "succeeded"
FAILED = "failed"
TIMED_OUT = "timed-out"
NOTHING = "nothing"

# Of what a hook prints, the last.
OUTPUT_CHARACTERS = 4000

Event = dict[str, Any]


@dataclass(slots=True)
class Progress:
    """One event: `done` maps each hook of the current phase that has ended to its outcome.

    `running` is the hook that was begun, written down before it is started, with the `boot` it was begun in and the
    mark of its `run`; still set at the start of the agent it means that the hook was cut off. `interrupted` are the
    hooks which that has happened to.
    """

    # As the metadata service last listed it.
    event: Event
    phase: str = PREPARE
    late: bool = False
    ended: bool = False
    # How prepare ended; empty as long as it has not.
    prepared: str = ""
    # When prepare began and ended, as texts; empty where that is not known.
    began_at: str = ""
    ended_at: str = ""
    done: dict[str, str] = field(default_factory=dict)
    running: str = ""
    run: str = ""
    boot: str = ""
    interrupted: list[str] = field(default_factory=list)

    @property
    def event_id(self) -> str:
        """As the metadata service spells it."""
        return str(self.event["EventId"])

    def outcome(self) -> str:
        """Of the whole phase: the worst of its hooks."""
        found = set(self.done.values())
        return next((word for word in (FAILED, TIMED_OUT, SUCCEEDED) if word in found), NOTHING)


@dataclass(slots=True)
class Memory:
    """Everything that outlives the agent. Events are keyed by their id in lower case, in order of appearance."""

    resource_name: str = ""
    events: dict[str, Progress] = field(default_factory=dict)

    def to_text(self) -> str:
        """JSON, for the spool."""
        events = {key: asdict(progress) for key, progress in self.events.items()}
        return json.dumps({"resource_name": self.resource_name, "events": events})


def memory_of(text: str | None) -> Memory:
    """What `to_text` wrote, also by a version with more or fewer fields."""
    content = json.loads(text or "{}")
    known = {each.name for each in fields(Progress)}
    events = {
        key: Progress(**{name: value for name, value in stored.items() if name in known})
        for key, stored in content.get("events", {}).items()
    }
    return Memory(content.get("resource_name", ""), events)


def told_before(progress: Progress) -> list[tuple[str, str, str, str]]:
    """What a backend has been told of prepare, as far as it still counts: (step, outcome, hook, when)."""
    said = [("begin", RUNNING, "", progress.began_at)] if progress.began_at else []
    if progress.phase == PREPARE:
        bad = [(hook, outcome) for hook, outcome in progress.done.items() if hook and outcome != SUCCEEDED]
        said += [("hook", outcome, hook, progress.ended_at) for hook, outcome in bad]
    if progress.prepared:
        said.append(("end", progress.prepared, "", progress.ended_at))
    return said


ADVICE = ("spotrebalancerecommendation",)


def events_of(body: bytes) -> dict[str, Event]:
    """Return the events of a readable document by their id in lower case, in its order, without those that have no id.

    Advice is left out: nothing happens to the machine because of it, so no hook prepares for it.
    """
    found = {}
    for event in json.loads(body.decode("utf-8-sig"), strict=False)["Events"]:
        event_id = event.get("EventId") if isinstance(event, dict) else None
        if isinstance(event_id, str) and event_id and str(event.get("EventType")).strip().casefold() not in ADVICE:
            found[event_id.lower()] = event
    return found


def names(event: Event, resource_name: str) -> bool:
    """Whether the event names this machine: without case, and without the underscore of old api-versions."""
    given = event.get("Resources")
    wanted = resource_name.casefold()
    found = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    return bool(wanted) and any(
        isinstance(each, str) and each.strip().casefold() in (wanted, f"_{wanted}") for each in found
    )


def started(event: Event) -> bool:
    """Whether Azure has started it."""
    return str(event.get("EventStatus") or "").strip().casefold() == "started"


def boot() -> str:
    """A word that changes with each boot of the machine; empty where the system has none (it is Linux that has)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def next_due(memory: Memory, listed: Mapping[str, Event]) -> tuple[str, str] | None:
    """The id of the event to go on with, and its phase; None where nothing is to be done.

    A phase that was begun is ended before another event's: their hooks never run in turns. Then preparing goes before
    recovering, because only preparing is in a hurry. A drill comes last, and waits as long as anything real names this
    machine: nothing of it may be undone or redone then.
    """
    busy = real_names(listed, memory.resource_name)
    begun = [key for key, progress in memory.events.items() if not progress.ended]
    for key in sorted(begun, key=is_drill_id):
        if not (busy and is_drill_id(key)):
            return key, memory.events[key].phase
    for key, event in listed.items():
        if key not in memory.events and names(event, memory.resource_name) and not (busy and is_drill_id(key)):
            return key, PREPARE
    for key in sorted(memory.events, key=is_drill_id):
        if key not in listed and not (busy and is_drill_id(key)):
            return key, RECOVER
    return None


def real_names(listed: Mapping[str, Event], resource_name: str) -> bool:
    """Whether an event that is no drill names this machine."""
    return any(not is_drill_id(key) and names(event, resource_name) for key, event in listed.items())
