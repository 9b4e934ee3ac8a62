"""Registry of guards, each a reason not to approve an event now; and the order in which machines are asked to approve.

The preview, the form and the API all use this registry.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from fleet.domain.event_types import EVENT_TYPES, LOSING_TYPES, event_type_of, is_advice, is_unknown
from fleet.domain.events import MachineBasics
from fleet.domain.intake import Prepared
from fleet.domain.people import Place
from fleet.domain.reasons import Reason, as_json
from fleet.domain.requirements import FormerSet
from fleet.domain.sets import PROVISIONAL
from fleet.domain.shapes import InApi
from fleet.domain.states import EndedAs, EventStatus, Presence

# The guard that requires a second person.
SECOND_PERSON = "set-wants-second"
Values = dict[str, Any]


class Need(StrEnum):
    """What a guard requires of the user: to read it, a reason, a second person, a new verification; or it blocks."""

    NOTE = "note"
    REASON = "reason"
    SECOND = "second"
    STEP_UP = "step-up"
    BLOCKS = "blocks"


@dataclass(frozen=True)
class MachineFacts(MachineBasics):
    """Facts about one machine of the event's set. All reports that it recorded up to `last_poll_at` have arrived.

    `lists_it`: the newest document of the machine lists the event; `spelled`: the EventId as the machine spells it.
    `prepared`: result of the hooks for this event; `failed_hook`: the first hook that failed.
    """

    lists_it: bool = False
    spelled: str = ""
    prepared: Prepared = Prepared.UNKNOWN
    failed_hook: str = ""

    @property
    def ready(self) -> bool:
        """Whether the machine's prepare hooks succeeded, or the machine is live and has none."""
        return self.prepared is Prepared.PREPARED or (self.prepared is Prepared.NOTHING and self.live)


@dataclass(frozen=True, slots=True)
class DecisionFacts:
    """The open approval of an event. `by_rule`: a rule decided, and no person has agreed yet."""

    approval_id: int
    state: str
    by: Reason | str
    at: datetime | None
    by_rule: bool = False


@dataclass(frozen=True, slots=True)
class OtherEvent:
    """Another open event of the same set or service.

    `in_flight`: the event has started, or its approval is being sent. `taken`: machines that it names, once it has
    started. `granted_at`: when Drydock approved it, if that made it start.
    """

    event_id: str
    set_id: int
    set_name: str
    in_flight: bool
    taken: tuple[str, ...] = ()
    granted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class HoldFacts:
    """The decision of a user or rule to leave this event to Azure."""

    by: Reason | str
    at: datetime
    reason: Reason | str


@dataclass(frozen=True, slots=True)
class WindowFacts:
    """A no-approval window that is open now for the event's set."""

    name: str
    reason: str
    window_id: int = 0


@dataclass(frozen=True, slots=True)
class StopFacts:
    """A stop of all approvals: who set it, when and why."""

    by: str
    at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class EventFacts:
    """All facts about one event that guards, rules and the relay use.

    `machines`: machines of the event's set that are not revoked. `other_open`: ids of other open events of the set.
    `others`: other open events of the set and the service, with their progress. For a drill, both contain only drills;
    for a real event, only real events. `step_up`: approval requires verification, unless `exempt_service_accounts` and
    a service account approves. `min_live`: how many live machines the set needs; None if not stated. `earlier_homes`:
    sets in which the event was before, while it was open.
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
    other_open: tuple[str, ...] = ()
    others: tuple[OtherEvent, ...] = ()
    source: str = ""
    duration_seconds: int | None = None
    first_seen_at: datetime | None = None
    started_at: datetime | None = None
    ended_as: EndedAs | None = None
    set_service: str = ""
    set_resource_group: str = ""
    second_person: bool = False
    step_up: bool = False
    exempt_service_accounts: bool = False
    min_live: int | None = None
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
        """Row ids of the event's set, and of the sets to which it belonged earlier while it was open."""
        return {self.set_id, *(home.set_id for home in self.earlier_homes)}

    @property
    def place(self) -> Place:
        return Place(self.set_kind, self.set_name, self.set_service, self.set_resource_group)


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard that applies to an event: a reason not to approve it now.

    `code` never changes between releases. `values` are the values of the sentence. `overridable`: an approver may
    override this blocking guard with a reason; otherwise no user can.
    """

    code: str
    needs: Need
    values: Annotated[Mapping[str, Any], InApi.OMITTED] = field(default_factory=dict, hash=False)
    overridable: Annotated[bool, "An approver may override it though it blocks, with a reason."] = False

    @property
    def sentence(self) -> Annotated[Reason, InApi.SHOWN]:
        """The sentence of the guard, as a reason."""
        return Reason(self.code, **self.values)

    @property
    def shown(self) -> Annotated[str, InApi.SHOWN]:
        """A hash of the guard's values. A client returns it with an override, which then covers only these values."""
        # A reader by scope sees other names of sets.
        named = {name: value for name, value in self.values.items() if name != "sets"}
        return hashlib.sha256(json.dumps([self.code, as_json(named)], sort_keys=True).encode()).hexdigest()[:16]

    @property
    def blocks(self) -> Annotated[bool, "It needs more than a reason or a second person."]:
        return self.needs is Need.BLOCKS

    @property
    def takes_reason(self) -> bool:
        """Whether a user overrides this guard by giving a reason."""
        return self.needs is Need.REASON or (self.blocks and self.overridable)


def affected_machines(facts: EventFacts) -> list[MachineFacts]:
    """Return the machines of the set that `Resources` names, in that order.

    If two machines have the same name, the live or late one that enrolled first counts, so that a later one cannot
    replace it. If both are silent, the one that reported last counts.
    """
    by_name: dict[str, MachineFacts] = {}
    for machine in sorted(facts.machines, key=_rank, reverse=True):
        by_name.setdefault(machine.name.lower(), machine)
    return [by_name[name.lower()] for name in facts.resources if name.lower() in by_name]


def _rank(machine: MachineFacts) -> tuple[bool, float]:
    if machine.presence in (Presence.LIVE, Presence.LATE):
        return (True, -machine.machine_id)
    return (False, machine.last_heard_at.timestamp() if machine.last_heard_at else 0.0)


def start_candidates(facts: EventFacts) -> list[MachineFacts]:
    """Return the live machines that list the event, in the order in which they are asked to approve it.

    First come the machines in `Resources`, in that order, then the others by name.
    """
    hit = affected_machines(facts)
    named = {machine.machine_id for machine in hit}
    others = sorted(
        (m for m in facts.machines if m.machine_id not in named), key=lambda m: (m.name.lower(), m.machine_id)
    )
    return [m for m in [*hit, *others] if m.live and m.lists_it]


Judge = Callable[[EventFacts], list[Values]]


@dataclass(frozen=True, slots=True)
class GuardType:
    """One kind of guard.

    `judge` returns the values of each guard of this kind that applies. `applies` is the text for the documentation;
    `label` is for forms. `always`: also for events that are not Scheduled. `acceptable`: a rule may accept it in
    advance. `problem`: problem type of a refusal. `note_if`: true for values that only need a note. `asked_again`:
    evaluated again before an order is sent. `left_to_relay`: the relay then handles it itself.
    """

    code: str
    needs: Need
    judge: Judge
    applies: str
    always: bool = False
    overridable: bool = False
    label: str = ""
    acceptable: bool = False
    problem: str = "guarded"
    note_if: Callable[[Values], bool] | None = None
    asked_again: bool = True
    left_to_relay: bool = False

    def found(self, facts: EventFacts) -> Iterator[Guard]:
        """Yield the guards of this kind that apply to the event."""
        if self.always or facts.status is EventStatus.SCHEDULED:
            for values in self.judge(facts):
                needs = Need.NOTE if self.note_if is not None and self.note_if(values) else self.needs
                yield Guard(self.code, needs, values, overridable=self.overridable)


# In the order in which they are listed, for each need.
GUARD_TYPES: list[GuardType] = []


def _guard(code: str, needs: Need, **further: Any) -> Callable[[Judge], Judge]:
    """Declare a kind of guard: the function returns the values, and its docstring says in the documentation when the
    guard applies. `further` are fields of `GuardType`.
    """

    def declare(judge: Judge) -> Judge:
        losing = ", ".join(each.name for each in EVENT_TYPES if each.loses)
        applies = " ".join((judge.__doc__ or "").split()).replace("LOSING_TYPES", losing)
        GUARD_TYPES.append(GuardType(code, needs, judge, applies, **further))
        return judge

    return declare


def _if(applies: bool, **values: Any) -> list[Values]:
    return [values] if applies else []


@_guard("already-decided", Need.BLOCKS, always=True, problem="already-decided", asked_again=False)
def _decided(facts: EventFacts) -> list[Values]:
    """The event has an approval or a proposal."""
    decided = facts.decision
    return [] if decided is None else [{"by": decided.by, "at": decided.at, "state": decided.state}]


@_guard("event-not-open", Need.BLOCKS, always=True, problem="too-late", left_to_relay=True)
def _not_open(facts: EventFacts) -> list[Values]:
    """It started or ended."""
    return _if(facts.status is not EventStatus.SCHEDULED, status=facts.status.value)


@_guard("too-late", Need.BLOCKS, problem="too-late", left_to_relay=True)
def _too_late(facts: EventFacts) -> list[Values]:
    """NotBefore has passed."""
    return _if(facts.not_before is not None and facts.judged_at is not None and facts.not_before <= facts.judged_at)


@_guard("advice-only", Need.BLOCKS, always=True)
def _advice_only(facts: EventFacts) -> list[Values]:
    """It is advice (`SpotRebalanceRecommendation`): Azure starts nothing, and acknowledging it has no effect. It
    cannot be overridden.
    """
    return _if(is_advice(facts.event_type), event_type=facts.event_type)


@_guard("version-changed", Need.BLOCKS, always=True, problem="version-changed")
def _version_changed(facts: EventFacts) -> list[Values]:
    """The event changed since it was shown."""
    return _if(facts.expected_version not in (None, facts.version))


@_guard("all-stopped", Need.BLOCKS, problem="stopped", left_to_relay=True)
def _all_stopped(facts: EventFacts) -> list[Values]:
    """An approver has [stopped all approvals](../admin/rules.md#stop-all-approvals). It cannot be overridden."""
    return [] if facts.stop is None else [asdict(facts.stop)]


@_guard("no-live-machine", Need.BLOCKS, left_to_relay=True)
def _no_live_machine(facts: EventFacts) -> list[Values]:
    """No live machine of the set lists it, so no agent can ask Azure."""
    return _if(not start_candidates(facts))


def _in_flight(facts: EventFacts, *, own_sets: bool) -> list[OtherEvent]:
    """Return the events in flight in the event's own sets, or in the other sets of the service.

    None counts for an event that deletes its machines in any case: waiting for another event would save none. For
    example, one document can announce that Azure reclaims many spot machines.
    """
    if event_type_of(facts.event_type).deletes:
        return []
    return [other for other in facts.others if other.in_flight and (other.set_id in facts.own_sets) is own_sets]


@_guard("set-in-flight", Need.BLOCKS, label="Another event of the set is under way", overridable=True)
def _set_in_flight(facts: EventFacts) -> list[Values]:
    """Another event of the set is in flight. An approver can override this with a reason. Not for a Preempt or
    Terminate, which deletes the machine in any case.
    """
    events = sorted(other.event_id for other in _in_flight(facts, own_sets=True))
    return _if(bool(events), count=len(events), events=events)


@_guard("service-in-flight", Need.REASON, label="Another event of the service is under way", acceptable=True)
def _service_in_flight(facts: EventFacts) -> list[Values]:
    """Another event of the service is in flight, in another set. Not for a Preempt or Terminate."""
    there = _in_flight(facts, own_sets=False)
    sets, events = sorted({other.set_name for other in there}), sorted(other.event_id for other in there)
    return _if(bool(there), service=facts.set_service, sets=sets, events=events)


# Only at the moment of deciding.
@_guard("set-wants-step-up", Need.STEP_UP, asked_again=False)
def _step_up(facts: EventFacts) -> list[Values]:
    """The set requires verification of the user's identity."""
    return _if(facts.step_up)


@_guard(SECOND_PERSON, Need.SECOND)
def _second_person(facts: EventFacts) -> list[Values]:
    """The set requires two people."""
    return _if(facts.second_person)


@_guard("last-live-machines", Need.SECOND, note_if=lambda values: values["pauses"] or values["only"])
def _last_live_machines(facts: EventFacts) -> list[Values]:
    """It takes down every live machine of the set. Only a note for a Freeze, and in a set of one machine."""
    affected = {machine.machine_id for machine in affected_machines(facts)}
    live = {machine.machine_id for machine in facts.machines if machine.live}
    takes_all = bool(live) and live <= affected
    return _if(takes_all, pauses=event_type_of(facts.event_type).keeps_memory, only=len(facts.machines) == 1)


@_guard("held", Need.REASON, label="Left to Azure")
def _held(facts: EventFacts) -> list[Values]:
    """A user or a rule has left it to Azure."""
    return [] if facts.hold is None else [{"by": facts.hold.by, "at": facts.hold.at, "reason": facts.hold.reason}]


@_guard("no-approval-window", Need.REASON, label="It falls into hours without approvals", acceptable=True)
def _no_approval_window(facts: EventFacts) -> list[Values]:
    """A no-approval window is open."""
    return [{"name": one.name, "reason": one.reason, "window": one.window_id} for one in facts.windows]


@_guard("lost-for-good", Need.REASON, label="Something is lost for good", acceptable=True)
def _lost_for_good(facts: EventFacts) -> list[Values]:
    """LOSING_TYPES: the data on local disks, or the machine, is lost."""
    return _if(facts.event_type in LOSING_TYPES, event_type=facts.event_type)


@_guard("hook-failed", Need.REASON, label="A prepare hook failed", acceptable=True)
def _hook_failed(facts: EventFacts) -> list[Values]:
    """A prepare hook failed on an affected machine."""
    hit = affected_machines(facts)
    failed = [[machine.name, machine.failed_hook] for machine in hit if machine.prepared is Prepared.FAILED]
    return _if(bool(failed), machines=failed)


@_guard("not-prepared", Need.REASON, label="A machine is still preparing", acceptable=True)
def _not_prepared(facts: EventFacts) -> list[Values]:
    """An affected machine is still preparing, or plans to prepare later."""
    ahead = (Prepared.PLANNED, Prepared.PREPARING)
    unprepared = [machine.name for machine in affected_machines(facts) if machine.prepared in ahead]
    return _if(bool(unprepared), machines=unprepared)


@_guard("event-type-unknown", Need.NOTE)
def _type_unknown(facts: EventFacts) -> list[Values]:
    """Drydock does not know the type: treat it as disruptive. A rule approves it only if it names the type exactly."""
    return _if(is_unknown(facts.event_type), event_type=facts.event_type)


@_guard("other-open-event", Need.NOTE)
def _other_open_event(facts: EventFacts) -> list[Values]:
    """The set has other open events."""
    return _if(bool(facts.other_open), count=len(facts.other_open))


@_guard("unnamed-set", Need.NOTE)
def _unnamed_set(facts: EventFacts) -> list[Values]:
    """The machine's set has no name yet."""
    return _if(facts.set_kind == PROVISIONAL)


PROBLEMS = {each.code: each.problem for each in GUARD_TYPES}
# Guards whose reason a rule may give in advance, as it names them.
ACCEPT_LABELS = {each.code: f"{each.label[0].lower()}{each.label[1:]}" for each in GUARD_TYPES if each.acceptable}
ACCEPTABLE = tuple(ACCEPT_LABELS)
# Guards that a person overrides with a reason; one that blocks only with the right of an approver.
TAKE_REASONS = tuple(each.code for each in GUARD_TYPES if each.needs is Need.REASON or each.overridable)


def guards(facts: EventFacts, *, now: datetime, expected_version: int | None = None) -> list[Guard]:
    """Return all guards that apply to the event: blocking ones first, then by what they require.

    `expected_version` is the version of the event that the user saw (None: not checked).
    """
    facts = replace(facts, judged_at=now, expected_version=expected_version)
    found = [guard for each in GUARD_TYPES for guard in each.found(facts)]
    order = list(reversed(Need))
    return sorted(found, key=lambda guard: (order.index(guard.needs), guard.overridable))


def remaining_guards(found: Collection[Guard], codes: Collection[str]) -> list[Guard]:
    """Return the guards that still require something if those with these codes are overridden."""
    return [guard for guard in found if guard.needs is not Need.NOTE and guard.code not in codes]
