"""Guards: each one reason why an event should not be approved right now.

One list for every door: the preview shows it, the form and the API enforce it.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fleet.domain.events import LOSING_TYPES
from fleet.domain.events import facts_of as type_facts
from fleet.domain.places import PROVISIONAL, Place
from fleet.domain.preparing import Prepared
from fleet.domain.states import ApprovalState, EventStatus, Presence


class Need(StrEnum):
    """What a guard asks for: nothing but to be read, a reason, a second person, or it blocks."""

    NOTE = "note"
    REASON = "reason"
    SECOND = "second"
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
    by: str
    at: datetime | None
    by_rule: bool = False


@dataclass(frozen=True, slots=True)
class OtherEvent:
    """Another open event of the same set or service. `in_flight`: started, or its approval is on its way."""

    event_id: str
    set_id: int
    set_name: str
    in_flight: bool


@dataclass(frozen=True, slots=True)
class HoldFacts:
    """Somebody wants this event to run by itself."""

    by: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """A no-approval window that is open now for this event's set."""

    name: str
    reason: str


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
    set_service: str = ""
    set_resource_group: str = ""
    second_person: bool = False
    hold: HoldFacts | None = None
    windows: tuple[WindowFacts, ...] = ()
    drill: bool = False

    @property
    def place(self) -> Place:
        return Place(self.set_kind, self.set_name, self.set_service, self.set_resource_group)


@dataclass(frozen=True, slots=True)
class Guard:
    """`code` is stable, `sentence` is for people. `overridable`: an approver may go past a guard that blocks, with a
    reason; past any other that blocks nobody may.
    """

    code: str
    sentence: str
    needs: Need
    overridable: bool = False

    @property
    def blocks(self) -> bool:
        return self.needs is Need.BLOCKS

    @property
    def takes_reason(self) -> bool:
        """Whether it is overcome by a reason."""
        return self.needs is Need.REASON or (self.blocks and self.overridable)


def hit_machines(facts: EventFacts) -> list[MachineFacts]:
    """The known machines that `Resources` names; of several with one name the one heard last."""
    by_name: dict[str, MachineFacts] = {}
    for machine in facts.machines:
        known = by_name.get(machine.name.lower())
        if known is None or _heard(machine) > _heard(known):
            by_name[machine.name.lower()] = machine
    return [by_name[name.lower()] for name in facts.resources if name.lower() in by_name]


def _heard(machine: MachineFacts) -> tuple[bool, float]:
    at = machine.last_heard_at
    return (at is not None, at.timestamp() if at else 0.0)


def who_is_asked(facts: EventFacts) -> list[MachineFacts]:
    """Live machines whose newest document lists the event: those in `Resources` as listed, then the others by name."""
    hit = hit_machines(facts)
    named = {machine.machine_id for machine in hit}
    others = sorted(
        (m for m in facts.machines if m.machine_id not in named), key=lambda m: (m.name.lower(), m.machine_id)
    )
    return [m for m in [*hit, *others] if m.live and m.lists_it]


# What was done by a decision that has not gone to Azure yet, and what it waits for.
WAITING_DECISIONS = {
    ApprovalState.PROPOSED.value: ("proposed", ": a second person has to agree"),
    ApprovalState.WAITING.value: ("approved", ": it goes once its condition is met"),
}
# Guards whose reason a rule may give in advance.
ACCEPTABLE = ("lost-for-good", "not-prepared", "hook-failed", "no-approval-window", "service-in-flight")
# Guards that a person overcomes with a reason, the first only with the right of an approver.
TAKE_REASONS = ("set-in-flight", "held", *ACCEPTABLE)


def guards(facts: EventFacts, *, now: datetime, expected_version: int | None = None) -> list[Guard]:
    """Every reason against approving now, those that block first, then by what they need."""
    found = [*_impossible(facts, now, expected_version)]
    if facts.status is EventStatus.SCHEDULED:
        found += [*_in_flight(facts), *_second(facts), *_reasons(facts), *_notes(facts)]
    order = list(reversed(Need))
    return sorted(found, key=lambda guard: (order.index(guard.needs), guard.overridable))


def without(found: Collection[Guard], codes: Collection[str]) -> list[Guard]:
    """The guards that still ask for something once those of these codes are overcome."""
    return [guard for guard in found if guard.needs is not Need.NOTE and guard.code not in codes]


def _impossible(facts: EventFacts, now: datetime, expected_version: int | None) -> list[Guard]:
    found = []

    def block(code: str, sentence: str) -> None:
        found.append(Guard(code, sentence, Need.BLOCKS))

    if facts.decision is not None:
        when = f" at {facts.decision.at:%H:%M:%S} UTC" if facts.decision.at else ""
        what, then = WAITING_DECISIONS.get(facts.decision.state, ("approved", ""))
        block("already-decided", f"{facts.decision.by} has {what} it already{when}{then}.")
    if facts.status is EventStatus.ENDED:
        block("event-not-open", "The event is over: there is nothing left to approve.")
    elif facts.status is EventStatus.STARTED:
        block("event-not-open", "The event has started already: Azure needs no approval any more.")
    elif facts.not_before is not None and facts.not_before <= now:
        block("too-late", "NotBefore is past: Azure may start the event at any moment by itself.")
    if expected_version is not None and expected_version != facts.version:
        block("version-changed", "The event has changed since you looked. Read it again, then decide.")
    if facts.status is EventStatus.SCHEDULED and not who_is_asked(facts):
        block("no-live-machine", "No live machine of the set lists this event, so no agent can ask Azure.")
    return found


def _in_flight(facts: EventFacts) -> list[Guard]:
    here = [other for other in facts.others if other.in_flight and other.set_id == facts.set_id]
    there = [other for other in facts.others if other.in_flight and other.set_id != facts.set_id]
    found = []
    if here:
        what = _count(len(here), "another event of this set is", "other events of this set are")
        sentence = f"{what} under way: two at once may take more machines down than the set can spare."
        found.append(Guard("set-in-flight", sentence, Need.BLOCKS, overridable=True))
    if there:
        names = ", ".join(sorted({other.set_name for other in there}))
        sentence = f"Another event of the service {facts.set_service} is under way, in {names}."
        found.append(Guard("service-in-flight", sentence, Need.REASON))
    return found


def _second(facts: EventFacts) -> list[Guard]:
    found = []
    if facts.second_person:
        found.append(
            Guard("set-wants-second", "Approving in this set always takes a second person, an approver.", Need.SECOND)
        )
    hit = {machine.machine_id for machine in hit_machines(facts)}
    live = [machine for machine in facts.machines if machine.live]
    if hit and live and all(machine.machine_id in hit for machine in live):
        if facts.event_type == "Freeze":
            found.append(Guard("last-live-machines", "It pauses every live machine of the set at once.", Need.NOTE))
        elif len(facts.machines) == 1:
            found.append(Guard("last-live-machines", "It hits the only machine of the set.", Need.NOTE))
        else:
            sentence = "It takes down every live machine of the set: none stays up."
            found.append(Guard("last-live-machines", sentence, Need.SECOND))
    return found


def _reasons(facts: EventFacts) -> list[Guard]:
    found = []
    if facts.hold is not None:
        sentence = f"{facts.hold.by} holds it since {facts.hold.at:%H:%M:%S} UTC: “{facts.hold.reason}”"
        found.append(Guard("held", sentence, Need.REASON))
    for window in facts.windows:
        sentence = f"These are hours without approvals ({window.name}): {window.reason}"
        found.append(Guard("no-approval-window", sentence, Need.REASON))
    if facts.event_type in LOSING_TYPES:
        sentence = f"What is lost does not come back: {type_facts(facts.event_type).lost}."
        found.append(Guard("lost-for-good", sentence, Need.REASON))
    hit = hit_machines(facts)
    failed = [machine for machine in hit if machine.prepared is Prepared.FAILED]
    if failed:
        told = ", ".join(f"{m.name} ({m.failed_hook})" if m.failed_hook else m.name for m in failed)
        found.append(Guard("hook-failed", f"A prepare hook failed on {told}.", Need.REASON))
    busy = [machine.name for machine in hit if machine.prepared is Prepared.PREPARING]
    if busy:
        sentence = f"{', '.join(busy)} {'is' if len(busy) == 1 else 'are'} still preparing."
        found.append(Guard("not-prepared", sentence, Need.REASON))
    return found


def _notes(facts: EventFacts) -> list[Guard]:
    found = []
    if facts.other_open:
        count = len(facts.other_open)
        what = "another event" if count == 1 else f"{count} other events"
        found.append(Guard("other-open-event", f"The set has {what} open.", Need.NOTE))
    if facts.set_kind == PROVISIONAL:
        sentence = "Nobody has named this machine's set yet: others may be hit, too."
        found.append(Guard("unnamed-set", sentence, Need.NOTE))
    return found


def _count(count: int, one: str, many: str) -> str:
    sentence = one if count == 1 else f"{count} {many}"
    return sentence[0].upper() + sentence[1:]
