"""Registry of guards, each one reason not to approve an event now; and the machines that are asked, in order.

The preview shows this one list, and the form and the API enforce it.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from fleet.domain.event_types import EVENT_TYPES, LOSING_TYPES, event_type_of, is_advice, is_unknown
from fleet.domain.intake import Prepared
from fleet.domain.people import Place
from fleet.domain.reasons import Reason, as_json
from fleet.domain.requirements import FormerSet
from fleet.domain.sets import PROVISIONAL
from fleet.domain.shapes import InApi
from fleet.domain.states import EndedAs, EventStatus, Presence

# The guard that requires verification at the moment of deciding and not later, and the guard that requires a second
# person.
ASKS_AGAIN = "set-wants-step-up"
SECOND_PERSON = "set-wants-second"


class Need(StrEnum):
    """The requirement of a guard: only to be read, a reason, a second person, a new verification, or it blocks."""

    NOTE = "note"
    REASON = "reason"
    SECOND = "second"
    STEP_UP = "step-up"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """One machine of the event's set, with the facts for deciding. `lists_it`: its newest document lists the event.

    `told_until` is its last good poll whose reports are all here: everything recorded before is delivered. `prepared`
    is the result of its hooks for this event, `failed_hook` the first that failed.
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
    """A person's or rule's decision not to approve this event."""

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
    """A stop of all approvals."""

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
    # Whether approval requires verification.
    step_up: bool = False
    # But no service account.
    exempt_service_accounts: bool = False
    # How many live machines the set needs; None when not stated.
    min_live: int | None = None
    # Sets in which the event was before, while it was open.
    earlier_homes: tuple[FormerSet, ...] = ()
    hold: HoldFacts | None = None
    windows: tuple[WindowFacts, ...] = ()
    stop: StopFacts | None = None
    drill: bool = False
    # When guards judge it, and the displayed version, where stated.
    judged_at: datetime | None = None
    expected_version: int | None = None

    @property
    def own_sets(self) -> set[int]:
        """The sets (row ids) in which the event is, or was while it was open."""
        return {self.set_id, *(home.set_id for home in self.earlier_homes)}

    @property
    def place(self) -> Place:
        return Place(self.set_kind, self.set_name, self.set_service, self.set_resource_group)


@dataclass(frozen=True, slots=True)
class Guard:
    """`code` is stable, `values` are what its sentence names. `overridable`: an approver may override a blocking guard
    with a reason; no user may override other blocking guards.
    """

    code: str
    needs: Need
    values: Annotated[Mapping[str, Any], InApi.OMITTED] = field(default_factory=dict, hash=False)
    overridable: Annotated[bool, "An approver may override it though it blocks, with a reason."] = False

    @property
    def sentence(self) -> Annotated[Reason, InApi.SHOWN]:
        """The guard's sentence."""
        return Reason(self.code, **self.values)

    @property
    def shown(self) -> Annotated[str, InApi.SHOWN]:
        """A digest of the guard's values. A decision that returns it covers nothing else."""
        # A reader by scope sees other names of sets.
        named = {name: value for name, value in self.values.items() if name != "sets"}
        return hashlib.sha256(json.dumps([self.code, as_json(named)], sort_keys=True).encode()).hexdigest()[:16]

    @property
    def blocks(self) -> Annotated[bool, "It needs more than a reason or a second person."]:
        return self.needs is Need.BLOCKS

    @property
    def takes_reason(self) -> bool:
        """Whether it is overridden by a reason."""
        return self.needs is Need.REASON or (self.blocks and self.overridable)


def affected_machines(facts: EventFacts) -> list[MachineFacts]:
    """The known machines that `Resources` names.

    Two machines with one name were joined, or come from 0.1.0. The one that enrolled first counts while it is heard, so
    that no later one replaces it. Among silent ones, the one heard last counts.
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


Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GuardType:
    """One kind of guard.

    `judge` returns, for each time that it applies, the values of its sentence, which is in `fleet.wording.approvals`.
    `applies` is for the documentation. `always`: also where the event is not Scheduled. `overridable`: see `Guard`.
    `label` is for forms that ask for its reason. `acceptable`: a rule may give its reason in advance. `problem`: the
    problem type of a refusal by it. `note_if`: with such values it is only a note. `asked_again`: judged again before
    an order is sent; `left_to_relay`: then the relay handles it itself.
    """

    code: str
    needs: Need
    applies: str
    judge: Callable[[EventFacts], Sequence[Values]]
    always: bool = False
    overridable: bool = False
    label: str = ""
    acceptable: bool = False
    problem: str = "guarded"
    note_if: Callable[[Values], bool] | None = None
    asked_again: bool = True
    left_to_relay: bool = False

    def found(self, facts: EventFacts) -> Iterator[Guard]:
        """Yield the guards of this kind against approving now."""
        if self.always or facts.status is EventStatus.SCHEDULED:
            for values in self.judge(facts):
                needs = Need.NOTE if self.note_if is not None and self.note_if(values) else self.needs
                yield Guard(self.code, needs, values, overridable=self.overridable)


def _if(applies: bool, **values: Any) -> list[Values]:
    return [values] if applies else []


def _decided(facts: EventFacts) -> list[Values]:
    decided = facts.decision
    return [] if decided is None else [{"by": decided.by, "at": decided.at, "state": decided.state}]


def is_unavoidable(facts: EventFacts) -> bool:
    """Return whether the machines are deleted whatever else happens in the set: to wait for another event saves none.
    One document announces a burst of reclaimed spot machines.
    """
    return event_type_of(facts.event_type).deletes


def _set_in_flight(facts: EventFacts) -> list[Values]:
    if is_unavoidable(facts):
        return []
    events = sorted(other.event_id for other in facts.others if other.in_flight and other.set_id in facts.own_sets)
    return _if(bool(events), count=len(events), events=events)


def _service_in_flight(facts: EventFacts) -> list[Values]:
    if is_unavoidable(facts):
        return []
    there = [other for other in facts.others if other.in_flight and other.set_id not in facts.own_sets]
    sets, events = sorted({other.set_name for other in there}), sorted(other.event_id for other in there)
    return _if(bool(there), service=facts.set_service, sets=sets, events=events)


def _last_live_machines(facts: EventFacts) -> list[Values]:
    hit = {machine.machine_id for machine in affected_machines(facts)}
    live = [machine for machine in facts.machines if machine.live]
    takes_all = bool(hit and live) and all(machine.machine_id in hit for machine in live)
    return _if(takes_all, pauses=event_type_of(facts.event_type).keeps_memory, only=len(facts.machines) == 1)


def _stopped(facts: EventFacts) -> list[Values]:
    return [] if facts.stop is None else [{"by": facts.stop.by, "at": facts.stop.at, "why": facts.stop.why}]


def _held(facts: EventFacts) -> list[Values]:
    return [] if facts.hold is None else [{"by": facts.hold.by, "at": facts.hold.at, "reason": facts.hold.reason}]


def _windows(facts: EventFacts) -> list[Values]:
    return [{"name": one.name, "reason": one.reason, "window": one.window_id} for one in facts.windows]


def _hook_failed(facts: EventFacts) -> list[Values]:
    hit = affected_machines(facts)
    failed = [[machine.name, machine.failed_hook] for machine in hit if machine.prepared is Prepared.FAILED]
    return _if(bool(failed), machines=failed)


def _not_prepared(facts: EventFacts) -> list[Values]:
    preparing = [machine.name for machine in affected_machines(facts) if machine.prepared is Prepared.PREPARING]
    return _if(bool(preparing), machines=preparing)


# In the order in which they are listed, for each need.
GUARD_TYPES = (
    GuardType(
        "already-decided",
        Need.BLOCKS,
        "The event has an approval or a proposal.",
        _decided,
        always=True,
        problem="already-decided",
        asked_again=False,
    ),
    GuardType(
        "event-not-open",
        Need.BLOCKS,
        "It started or ended.",
        lambda facts: _if(facts.status is not EventStatus.SCHEDULED, status=facts.status.value),
        always=True,
        problem="too-late",
        left_to_relay=True,
    ),
    GuardType(
        "too-late",
        Need.BLOCKS,
        "NotBefore has passed.",
        lambda facts: _if(
            facts.not_before is not None and facts.judged_at is not None and facts.not_before <= facts.judged_at
        ),
        problem="too-late",
        left_to_relay=True,
    ),
    GuardType(
        "advice-only",
        Need.BLOCKS,
        "It is advice (`SpotRebalanceRecommendation`): Azure starts nothing, and acknowledging it has no effect. It"
        " cannot be overridden.",
        lambda facts: _if(is_advice(facts.event_type), event_type=facts.event_type),
        always=True,
    ),
    GuardType(
        "version-changed",
        Need.BLOCKS,
        "The event changed since it was shown.",
        lambda facts: _if(facts.expected_version not in (None, facts.version)),
        always=True,
        problem="version-changed",
    ),
    GuardType(
        "all-stopped",
        Need.BLOCKS,
        "An approver has [stopped all approvals](../admin/rules.md#stop-all-approvals). It cannot be overridden.",
        _stopped,
        problem="stopped",
        left_to_relay=True,
    ),
    GuardType(
        "no-live-machine",
        Need.BLOCKS,
        "No live machine of the set lists it, so no agent can ask Azure.",
        lambda facts: _if(not start_candidates(facts)),
        left_to_relay=True,
    ),
    GuardType(
        "set-in-flight",
        Need.BLOCKS,
        "Another event of the set is in flight. An approver can override this with a reason. Not for a Preempt or"
        " Terminate, which deletes the machine in any case.",
        _set_in_flight,
        label="Another event of the set is under way",
        overridable=True,
    ),
    GuardType(
        "service-in-flight",
        Need.REASON,
        "Another event of the service is in flight, in another set. Not for a Preempt or Terminate.",
        _service_in_flight,
        label="Another event of the service is under way",
        acceptable=True,
    ),
    GuardType(
        ASKS_AGAIN,
        Need.STEP_UP,
        "The set requires verification of the user's identity.",
        lambda facts: _if(facts.step_up),
        asked_again=False,
    ),
    GuardType(SECOND_PERSON, Need.SECOND, "The set requires two people.", lambda facts: _if(facts.second_person)),
    GuardType(
        "last-live-machines",
        Need.SECOND,
        "It takes down every live machine of the set. Only a note for a Freeze, and in a set of one machine.",
        _last_live_machines,
        note_if=lambda values: values["pauses"] or values["only"],
    ),
    GuardType("held", Need.REASON, "A user or a rule has left it to Azure.", _held, label="Left to Azure"),
    GuardType(
        "no-approval-window",
        Need.REASON,
        "A no-approval window is open.",
        _windows,
        label="It falls into hours without approvals",
        acceptable=True,
    ),
    GuardType(
        "lost-for-good",
        Need.REASON,
        f"{', '.join(each.name for each in EVENT_TYPES if each.loses)}: the data on local disks, or the machine, is"
        " lost.",
        lambda facts: _if(facts.event_type in LOSING_TYPES, event_type=facts.event_type),
        label="Something is lost for good",
        acceptable=True,
    ),
    GuardType(
        "hook-failed",
        Need.REASON,
        "A prepare hook failed on an affected machine.",
        _hook_failed,
        label="A prepare hook failed",
        acceptable=True,
    ),
    GuardType(
        "not-prepared",
        Need.REASON,
        "An affected machine is still preparing.",
        _not_prepared,
        label="A machine is still preparing",
        acceptable=True,
    ),
    GuardType(
        "event-type-unknown",
        Need.NOTE,
        "Drydock does not know the type: treat it as disruptive. A rule approves it only if it names the type exactly.",
        lambda facts: _if(is_unknown(facts.event_type), event_type=facts.event_type),
    ),
    GuardType(
        "other-open-event",
        Need.NOTE,
        "The set has other open events.",
        lambda facts: _if(bool(facts.other_open), count=len(facts.other_open)),
    ),
    GuardType(
        "unnamed-set",
        Need.NOTE,
        "The machine's set has no name yet.",
        lambda facts: _if(facts.set_kind == PROVISIONAL),
    ),
)
PROBLEMS = {each.code: each.problem for each in GUARD_TYPES}
# Guards whose reason a rule may give in advance, as it names them.
ACCEPT_LABELS = {each.code: f"{each.label[0].lower()}{each.label[1:]}" for each in GUARD_TYPES if each.acceptable}
ACCEPTABLE = tuple(ACCEPT_LABELS)
# Guards that a person overrides with a reason; one that blocks only with the right of an approver.
TAKE_REASONS = tuple(each.code for each in GUARD_TYPES if each.needs is Need.REASON or each.overridable)


def guards(facts: EventFacts, *, now: datetime, expected_version: int | None = None) -> list[Guard]:
    """Return every reason against approving now, blocking ones first, then by need."""
    facts = replace(facts, judged_at=now, expected_version=expected_version)
    found = [guard for each in GUARD_TYPES for guard in each.found(facts)]
    order = list(reversed(Need))
    return sorted(found, key=lambda guard: (order.index(guard.needs), guard.overridable))


def remaining_guards(found: Collection[Guard], codes: Collection[str]) -> list[Guard]:
    """Return the guards that still ask for something once those of these codes are overridden."""
    return [guard for guard in found if guard.needs is not Need.NOTE and guard.code not in codes]
