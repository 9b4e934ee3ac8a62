"""Guards: each one reason why an event should not be approved right now.

One list for every door: the preview shows it, the form and the API enforce it.
"""

from dataclasses import dataclass, field
from datetime import datetime

from fleet.domain.events import LOSING_TYPES, facts_of
from fleet.domain.states import EventStatus, Presence


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """One machine of the event's set, as far as deciding goes. `lists_it`: its newest document lists the event."""

    machine_id: int
    name: str
    presence: Presence
    lists_it: bool = False
    spelled: str = ""
    last_heard_at: datetime | None = None

    @property
    def live(self) -> bool:
        return self.presence is Presence.LIVE


@dataclass(frozen=True, slots=True)
class DecisionFacts:
    """A live approval of the event, or the last one."""

    approval_id: int
    state: str
    by: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class EventFacts:
    """Everything that guards and the relay judge about one event.

    `machines` are those of the event's set that are not revoked; `other_open` the ids of other open events of the set.
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


@dataclass(frozen=True, slots=True)
class Guard:
    """`code` is stable, `sentence` is for people, `blocks` says that nobody may approve past it."""

    code: str
    sentence: str
    blocks: bool


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


def guards(facts: EventFacts, *, now: datetime, expected_version: int | None = None) -> list[Guard]:
    """Every reason against approving now, blocking ones first."""
    found: list[Guard] = []
    if facts.decision is not None:
        when = f" at {facts.decision.at:%H:%M:%S} UTC" if facts.decision.at else ""
        found.append(Guard("already-decided", f"{facts.decision.by} has approved it already{when}.", True))
    if facts.status is EventStatus.ENDED:
        found.append(Guard("event-not-open", "The event is over: there is nothing left to approve.", True))
    elif facts.status is EventStatus.STARTED:
        found.append(Guard("event-not-open", "The event has started already: Azure needs no approval any more.", True))
    elif facts.not_before is not None and facts.not_before <= now:
        found.append(Guard("too-late", "NotBefore is past: Azure may start the event at any moment by itself.", True))
    if expected_version is not None and expected_version != facts.version:
        found.append(
            Guard("version-changed", "The event has changed since you looked. Read it again, then decide.", True)
        )
    if facts.status is EventStatus.SCHEDULED and not who_is_asked(facts):
        found.append(
            Guard("no-live-machine", "No live machine of the set lists this event, so no agent can ask Azure.", True)
        )
    if facts.status is EventStatus.SCHEDULED:
        found += _warnings(facts)
    return found


def _warnings(facts: EventFacts) -> list[Guard]:
    found = []
    if facts.event_type in LOSING_TYPES:
        found.append(
            Guard("lost-for-good", f"What is lost does not come back: {facts_of(facts.event_type).lost}.", False)
        )
    hit = {m.machine_id for m in hit_machines(facts)}
    live = [m for m in facts.machines if m.live]
    if hit and live and all(m.machine_id in hit for m in live):
        found.append(Guard("last-live-machines", "It hits every live machine of the set: none stays up.", False))
    if facts.other_open:
        count = len(facts.other_open)
        what = "another event" if count == 1 else f"{count} other events"
        found.append(Guard("other-open-event", f"The set has {what} open.", False))
    if facts.set_kind == "provisional":
        found.append(Guard("unnamed-set", "Nobody has named this machine's set yet: others may be hit, too.", False))
    return found
