"""Guards: each one reason why an event should not be approved right now; and which machines are asked, in order.

One list for every door: the preview shows it, the form and the API enforce it.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from fleet.domain.event_types import LOSING_TYPES, is_advice, is_unknown
from fleet.domain.intake import Prepared
from fleet.domain.people import Place
from fleet.domain.reasons import Reason, as_json
from fleet.domain.requirements import FormerSet
from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import EndedAs, EventStatus, Presence


class Need(StrEnum):
    """What a guard asks for: nothing but to be read, a reason, a second person, that its person proves once more who
    they are, or it blocks.
    """

    NOTE = "note"
    REASON = "reason"
    SECOND = "second"
    STEP_UP = "step-up"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """One machine of the event's set, as far as deciding goes. `lists_it`: its newest document lists the event.

    `told_until` is its last good poll of which everything is here: what it wrote down before that, it has delivered.
    `prepared` is what its hooks said of this event, `failed_hook` the first that failed.
    """

    machine_id: int
    name: str
    presence: Presence
    lists_it: bool = False
    spelled: str = ""
    last_heard_at: datetime | None = None
    told_until: datetime | None = None
    prepared: Prepared = Prepared.UNKNOWN
    failed_hook: str = ""
    fault_domain: int | None = None

    @property
    def live(self) -> bool:
        return self.presence is Presence.LIVE

    @property
    def ready(self) -> bool:
        """Its prepare hooks succeeded, or it has none and is live."""
        return self.prepared is Prepared.PREPARED or (self.prepared is Prepared.NOTHING and self.live)


@dataclass(frozen=True, slots=True)
class DecisionFacts:
    """A live approval of the event. `by_rule`: no person has decided yet."""

    approval_id: int
    state: str
    by: Reason | str
    at: datetime | None
    by_rule: bool = False


@dataclass(frozen=True, slots=True)
class OtherEvent:
    """Another open event of the same set or service. `in_flight`: started, or its approval is on its way. `taken` are
    the machines that it names, once it has started. `granted_at`: when it was approved here, if that led to it.
    """

    event_id: str
    set_id: int
    set_name: str
    in_flight: bool
    taken: tuple[str, ...] = ()
    granted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class HoldFacts:
    """Somebody wants this event to run by itself."""

    by: Reason | str
    at: datetime
    reason: Reason | str


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """A no-approval window that is open now for this event's set."""

    name: str
    reason: str
    window_id: int = 0


@dataclass(frozen=True, slots=True)
class StopFacts:
    """Somebody has stopped all approvals."""

    by: str
    at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class EventFacts:
    """Everything that guards, rules and the relay judge about one event.

    `machines` are those of the event's set that are not revoked; `other_open` the ids of other open events of the set,
    `others` those of its set and service with how far they are. Drills see drills only, real events real ones.
    """

    event_id: str
    status: EventStatus
    event_type: str
    version: int
    not_before: datetime | None
    resources: tuple[str, ...]
    set_id: int
    set_kind: str
    set_name: str
    machines: tuple[MachineFacts, ...] = ()
    decision: DecisionFacts | None = None
    other_open: tuple[str, ...] = field(default=())
    others: tuple[OtherEvent, ...] = ()
    source: str = ""
    duration_seconds: int | None = None
    first_seen_at: datetime | None = None
    started_at: datetime | None = None
    ended_as: EndedAs | None = None
    set_service: str = ""
    set_resource_group: str = ""
    second_person: bool = False
    # Whoever approves is asked again who they are.
    step_up: bool = False
    # But no service account.
    step_up_spares_services: bool = False
    # How many live machines the set is said to need; None when nobody said.
    needs_live: int | None = None
    # Sets in which the event was before, while it was open.
    earlier_homes: tuple[FormerSet, ...] = ()
    hold: HoldFacts | None = None
    windows: tuple[WindowFacts, ...] = ()
    stop: StopFacts | None = None
    drill: bool = False

    @property
    def place(self) -> Place:
        return Place(self.set_kind, self.set_name, self.set_service, self.set_resource_group)


@dataclass(frozen=True, slots=True)
class Guard:
    """`code` is stable, `values` are what its sentence names. `overridable`: an approver may override a guard that
    blocks, with a reason; any other that blocks nobody may.
    """

    code: str
    needs: Need
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    overridable: bool = False

    @property
    def sentence(self) -> Reason:
        """What it says."""
        return Reason(self.code, **self.values)

    @property
    def shown(self) -> str:
        """A digest of what it names. A decision that sends it back covers nothing else."""
        # A reader by scope sees other names of sets.
        named = {name: value for name, value in self.values.items() if name != "sets"}
        return hashlib.sha256(json.dumps([self.code, as_json(named)], sort_keys=True).encode()).hexdigest()[:16]

    @property
    def blocks(self) -> bool:
        return self.needs is Need.BLOCKS

    @property
    def takes_reason(self) -> bool:
        """Whether it is overridden by a reason."""
        return self.needs is Need.REASON or (self.blocks and self.overridable)


def affected_machines(facts: EventFacts) -> list[MachineFacts]:
    """The known machines that `Resources` names.

    Two with one name were joined, or come from 0.1.0: the one that enrolled first counts as long as it is heard, so
    that nobody who comes later takes its place; of those that are silent the one heard last.
    """
    by_name: dict[str, MachineFacts] = {}
    for machine in facts.machines:
        known = by_name.get(machine.name.lower())
        if known is None or _rank(machine) > _rank(known):
            by_name[machine.name.lower()] = machine
    return [by_name[name.lower()] for name in facts.resources if name.lower() in by_name]


def _rank(machine: MachineFacts) -> tuple[bool, float]:
    if machine.presence in (Presence.LIVE, Presence.LATE):
        return (True, -machine.machine_id)
    return (False, machine.last_heard_at.timestamp() if machine.last_heard_at else 0.0)


def start_candidates(facts: EventFacts) -> list[MachineFacts]:
    """Live machines whose newest document lists the event: those in `Resources` as listed, then the others by name."""
    hit = affected_machines(facts)
    named = {machine.machine_id for machine in hit}
    others = sorted(
        (m for m in facts.machines if m.machine_id not in named), key=lambda m: (m.name.lower(), m.machine_id)
    )
    return [m for m in [*hit, *others] if m.live and m.lists_it]


# Guards whose reason a rule may give in advance.
ACCEPTABLE = ("lost-for-good", "not-prepared", "hook-failed", "no-approval-window", "service-in-flight")
# Guards that a person overrides with a reason, the first only with the right of an approver.
TAKE_REASONS = ("set-in-flight", "held", *ACCEPTABLE)


# The guard that asks whoever decides, in that moment, and nobody later.
ASKS_AGAIN = "set-wants-step-up"


def guards(facts: EventFacts, *, now: datetime, expected_version: int | None = None) -> list[Guard]:
    """Every reason against approving now, those that block first, then by what they need."""
    found = [*_impossible(facts, now, expected_version)]
    if facts.status is EventStatus.SCHEDULED:
        found += [*_in_flight(facts), *_second(facts), *_reasons(facts), *_notes(facts)]
    order = list(reversed(Need))
    return sorted(found, key=lambda guard: (order.index(guard.needs), guard.overridable))


def remaining_guards(found: Collection[Guard], codes: Collection[str]) -> list[Guard]:
    """The guards that still ask for something once those of these codes are overridden."""
    return [guard for guard in found if guard.needs is not Need.NOTE and guard.code not in codes]


def _impossible(facts: EventFacts, now: datetime, expected_version: int | None) -> Iterator[Guard]:
    decided = facts.decision
    if decided is not None:
        values = {"by": decided.by, "at": decided.at, "state": decided.state}
        yield Guard("already-decided", Need.BLOCKS, values)
    if facts.status is not EventStatus.SCHEDULED:
        yield Guard("event-not-open", Need.BLOCKS, {"status": facts.status.value})
    elif facts.not_before is not None and facts.not_before <= now:
        yield Guard("too-late", Need.BLOCKS)
    if is_advice(facts.event_type):
        yield Guard("advice-only", Need.BLOCKS, {"event_type": facts.event_type})
    if expected_version is not None and expected_version != facts.version:
        yield Guard("version-changed", Need.BLOCKS)
    if facts.stop is not None and facts.status is EventStatus.SCHEDULED:
        yield Guard("all-stopped", Need.BLOCKS, {"by": facts.stop.by, "at": facts.stop.at, "why": facts.stop.why})
    if facts.status is EventStatus.SCHEDULED and not start_candidates(facts):
        yield Guard("no-live-machine", Need.BLOCKS)


def _in_flight(facts: EventFacts) -> Iterator[Guard]:
    own = {facts.set_id, *(home.set_id for home in facts.earlier_homes)}
    here = sorted(other.event_id for other in facts.others if other.in_flight and other.set_id in own)
    there = [other for other in facts.others if other.in_flight and other.set_id not in own]
    if here:
        yield Guard("set-in-flight", Need.BLOCKS, {"count": len(here), "events": here}, overridable=True)
    if there:
        sets, events = sorted({other.set_name for other in there}), sorted(other.event_id for other in there)
        yield Guard("service-in-flight", Need.REASON, {"service": facts.set_service, "sets": sets, "events": events})


def _second(facts: EventFacts) -> Iterator[Guard]:
    if facts.step_up:
        yield Guard(ASKS_AGAIN, Need.STEP_UP)
    if facts.second_person:
        yield Guard("set-wants-second", Need.SECOND)
    hit = {machine.machine_id for machine in affected_machines(facts)}
    live = [machine for machine in facts.machines if machine.live]
    if hit and live and all(machine.machine_id in hit for machine in live):
        pauses, only = facts.event_type == "Freeze", len(facts.machines) == 1
        needs = Need.NOTE if pauses or only else Need.SECOND
        yield Guard("last-live-machines", needs, {"pauses": pauses, "only": only})


def _reasons(facts: EventFacts) -> Iterator[Guard]:
    hold, hit = facts.hold, affected_machines(facts)
    if hold is not None:
        yield Guard("held", Need.REASON, {"by": hold.by, "at": hold.at, "reason": hold.reason})
    for window in facts.windows:
        values = {"name": window.name, "reason": window.reason, "window": window.window_id}
        yield Guard("no-approval-window", Need.REASON, values)
    if facts.event_type in LOSING_TYPES:
        yield Guard("lost-for-good", Need.REASON, {"event_type": facts.event_type})
    failed = [[machine.name, machine.failed_hook] for machine in hit if machine.prepared is Prepared.FAILED]
    if failed:
        yield Guard("hook-failed", Need.REASON, {"machines": failed})
    preparing = [machine.name for machine in hit if machine.prepared is Prepared.PREPARING]
    if preparing:
        yield Guard("not-prepared", Need.REASON, {"machines": preparing})


def _notes(facts: EventFacts) -> Iterator[Guard]:
    if is_unknown(facts.event_type):
        yield Guard("event-type-unknown", Need.NOTE, {"event_type": facts.event_type})
    if facts.other_open:
        yield Guard("other-open-event", Need.NOTE, {"count": len(facts.other_open)})
    if facts.set_kind == PROVISIONAL:
        yield Guard("unnamed-set", Need.NOTE)
