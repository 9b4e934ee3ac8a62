"""Texts about approvals: why a decision is refused, messages after an action, and timeline entries."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleet.domain.approvals.conditions import When
from fleet.domain.approvals.guards import GUARD_TYPES, Need
from fleet.domain.event_types import event_type_of
from fleet.domain.recommendation import Advised
from fleet.domain.states import ApprovalState, EventStatus
from fleet.domain.timeline import EntryKind
from fleet.projections.events.rows import EventRow
from fleet.projections.timeline.entries import TimelineRow
from fleet.projections.visibility import sets_named
from fleet.wording.badges import badge_of
from fleet.wording.events import changed_values, named
from fleet.wording.sentences import EntryText, Sentence, fill, quoted, spoken
from fleet.wording.times import Reader, at

Values = Mapping[str, Any]
# Heading of each recommendation on the card.
ADVISED = {
    Advised.START_NOW: "Start now",
    Advised.WHEN_PREPARED: "Approve when prepared",
    Advised.PROPOSE: "Propose",
    Advised.WAIT: "Wait",
    Advised.LOOK: "Check first",
    Advised.LEAVE: "Leave to Azure",
    Advised.REDEPLOY: "Redeploy the machine yourself",
    Advised.BY_HAND: "Start by hand",
}


ADVICE: dict[str, Sentence] = {
    **{f"recommend-{one.value}": f"{text}. {{reasons:sentences}}" for one, text in ADVISED.items()},
    "recommend-start_now": f"{ADVISED[Advised.START_NOW]}: {{reasons:commas}}.",
    # Drydock does not measure how long the machines themselves were paused.
    "recommend-earlier": "{count:?{count} earlier {event_type}{count:/s} in this set, which Azure listed as Started for"
    " {seconds:span} (median){cancelled:?, {cancelled} more cancelled by Azure}|no earlier {event_type} of this set was"
    " observed until its end}",
    "recommend-open": "{count:?{count:other event|other events} open|nothing else open} in"
    " the {service:?service {service}|set}",
    "recommend-own": "your organisation requested the event",
    "recommend-only-machine": "waiting would not spare the set's only machine the pause",
    "recommend-far-ahead": "Azure predicts that the hardware of the host will fail. Move the machine before that.",
    "recommend-unknown-type": "Azure does not document the effect of this event type.",
    "recommend-prepares": "{machines:are} not prepared yet.",
    "recommend-nobody-prepares": "No live agent prepares {machines:list}.",
}


def standing(event: EventRow) -> str:
    """Return the heading that states whether and how an event is decided."""
    approval = event.approval
    if approval is not None and approval.live:
        return {ApprovalState.PROPOSED: "Proposed", ApprovalState.WAITING: "Approved, waiting"}.get(
            approval.state, "Approved"
        )
    if event.status is not EventStatus.SCHEDULED:
        return "Started" if event.status is EventStatus.STARTED else "Ended"
    if event.past_not_before:
        return "Too late to approve"
    return "Left to Azure" if event.hold and not event.hold.by_rule else "Decision"


def rule_named(name: str | None) -> str:
    return f"the rule “{name}”" if name else "a rule"


def asks_for(needs: Need, *, overridable: bool, may_override: bool) -> str:
    """Return what a guard requires from the user; it is shown next to the guard's sentence."""
    if needs is not Need.BLOCKS or not overridable:
        return badge_of(needs).label
    return badge_of(Need.REASON).label if may_override else "an approver may override it, with a reason"


def decided_already(values: Values, reader: Reader) -> str:
    by, when = values["by"], f" at {at(values['at'], reader)}" if values["at"] else ""
    match values["state"]:
        case ApprovalState.PROPOSED.value:
            return f"{by} proposed this event{when}: a second person has to agree."
        case ApprovalState.WAITING.value:
            return f"{by} approved this event{when}: the approval waits for its condition."
    return f"{by} approved this event{when}."


def hook_failed(values: Values, reader: Reader) -> str:
    machines = ", ".join(f"{name} ({spoken(hook)})" if hook else name for name, hook in values["machines"])
    return f"A prepare hook failed on {machines}."


# Sentence of each guard.
GUARDS: dict[str, Sentence] = {
    "already-decided": decided_already,
    "event-not-open": lambda values, reader: (
        "The event is over: there is nothing left to approve."
        if values["status"] == EventStatus.ENDED.value
        else "The event has started: Azure no longer needs an approval."
    ),
    "too-late": "NotBefore has passed: Azure may start the event at any moment without an approval.",
    "advice-only": "{event_type} is advice: Azure starts nothing, and acknowledging it has no effect.",
    "version-changed": "The event changed after this page was loaded. Read it again, then decide.",
    "all-stopped": "{by} stopped all approvals at {at:time}. An administrator can allow them again. Reason: “{why}”",
    "no-live-machine": "No live machine of the set lists this event, so no agent can send the approval to Azure.",
    "set-in-flight": "{count:Another event of this set is/{count} other events of this set are} under way: two at once"
    " may take more machines down than the set can spare.",
    "service-in-flight": lambda values, reader: (
        f"Another event of the service {values['service']} is under way, in {', '.join(sets_named(values['sets']))}."
    ),
    "set-wants-step-up": "Before you approve in this set, confirm your identity with a second factor or your password.",
    "set-wants-second": "Every approval in this set needs a second person with the role approver.",
    "last-live-machines": "The event {pauses:?pauses|{only:?affects|takes down}} {only:?the only machine of the set"
    "|every live machine of the set{pauses:? at once}}.",
    "held": "{by} left the event to Azure at {at:time}: “{reason}”",
    "no-approval-window": "A no-approval window is open ({name}): {reason}",
    "lost-for-good": lambda values, reader: f"Permanent loss: {event_type_of(values['event_type']).lost}.",
    "hook-failed": hook_failed,
    "not-prepared": "{machines:are} not prepared yet.",
    "other-open-event": "The set has {count:other event|other events} open.",
    "event-type-unknown": "Drydock does not know the type {event_type:or of this event}: the event may be disruptive.",
    "unnamed-set": "The set of this machine has no name yet: further machines may be affected.",
}
# Conditions that an approval waits for, and reasons why it no longer waits.
WAITS: dict[str, Sentence] = {
    "waits-for-second": "A second person has to agree.",
    "waits-for-undo": "Drydock sends the approval at {due_at:time} unless it is undone.",
    "waits-for-prepared": "Drydock sends the approval when every affected machine is prepared.",
    "waits-for-machines": "Drydock sends the approval when {machines:are} prepared.",
    "waits-for-time": "Drydock sends the approval at {due_at:time}.",
    "waits-for-turn": "Drydock sends the approval when the earlier events of the wave are over.",
    "kept-by-guard": "{reason} But: {guard}",
    "met-now": "The approval has no condition.",
    "met-undo": "The undo period passed without an undo.",
    "met-prepared": "Every affected machine is prepared.",
    "met-time": "The approval was due at {due_at:time}.",
    "met-turn": "The earlier events of the wave are over.",
    "started-before-sent": "The event started before the approval was sent.",
    "ended-before-sent": "The event ended before the approval was sent.",
    "lapsed-waiting": "NotBefore came before {proposed:?a second person agreed|its condition was met}.",
}


AGAIN = "{rule:?The rules are applied again.|Decide again.}"


def _changes(values: Values, reader: Reader) -> str:
    return changed_values(((one["field"], one["before"], one["after"]) for one in values["changes"]), reader)


# Why a decision is no longer valid.
RETURNED: dict[str, Sentence] = {
    "decided-on-other-values": lambda values, reader: (
        f"The event changed after the decision: {_changes(values, reader)}. {fill(AGAIN, values, reader)}"
    ),
    "decided-before-guard": f"After the decision another guard applied: {{guard}} {AGAIN}",
    "returned-after-delivery": "{reason} {machines:list} {machines:has/have} the order, which cannot be recalled.",
    "decider-lost-account": "{by}, who decided, can no longer sign in. Decide again.",
    "decider-lost-right": "{by}, who decided, no longer has the right: {missing} Decide again.",
    "decider-lost-token": "{by} decided with the token “{token}”, which is revoked or expired. Decide again.",
    "rule-decides-otherwise": "The rule “{rule}” no longer approves this event. The rules are applied again.",
    "consent-of-changed": lambda values, reader: (
        f"The event changed after it was proposed: {_changes(values, reader)}. Propose it again."
    ),
}
# Steps of an approval's progress towards Azure, and details shown with their times.
STEPS: dict[str, Sentence] = {
    "step-proposed": "Proposed",
    "step-decided": "Decided",
    "step-agreed": "Second person agreed",
    "step-agrees": "Second person",
    "step-undo": "Undo period",
    "step-prepared": "Machines prepared",
    "step-time": "Chosen time",
    "step-turn": "Turn in the wave",
    "step-taken-back": "Withdrawn",
    "step-returned": "Returned for a new decision",
    "step-sent": "Sent via {machine}",
    "step-send": "Sending via {machine:or a machine}",
    "step-answered": lambda values, reader: f"Azure answered {values['status'] or ''}".rstrip(),
    "step-answers": "Answer of Azure",
    "step-starts": "Start of the event",
    "step-started": "Started",
    "step-gone": "Ended",
    "step-by": "by {by}",
    "step-waits-for-agent": "waiting for the agent",
    "step-answer-inferred": "inferred: the agent sent no receipt",
    "step-others-agree": "other tenants may have to agree",
    "step-not-seen": "not seen",
    "step-cancelled": "Cancelled by Azure, not started",
    "step-machine-deleted": "inferred: the machine was deleted",
}
SENTENCES: dict[str, Sentence] = {
    **GUARDS,
    **WAITS,
    **STEPS,
    **RETURNED,
    **ADVICE,
    "decided-by-rule": lambda values, reader: rule_named(values["rule"]),
    "bulk-of-many": "At most {most} events can be decided at once: narrow the filter.",
    "bulk-of-none": "Select at least one event.",
    "bulk-changed": lambda values, reader: (
        f"The list changed after it was loaded: from {values['seen']} to {values['count']} events. Check it again."
        if values["seen"] != values["count"]
        else f"The list changed after it was loaded: it has other events now, also {values['count']}. Check it again."
    ),
    "event-unknown": "No machine has reported an event with this id.",
    "approval-unknown": "There is no approval with this id.",
    "approved-meanwhile": "This event is already approved.",
    "needs-two-people": "Two people have to agree to this approval.",
    "due-time-past": "Choose a time in the future, or approve now.",
    "due-time-too-late": "Choose a time before NotBefore: after that Azure may start the event without an approval.",
    "withdraw-order-offered": "The approval cannot be withdrawn: a machine may have it already. State:"
    " {state:ApprovalState}.",
    "withdraw-ended": "The approval has ended. State: {state:ApprovalState}.{why:? {why}}",
    "claim-event-over": "The event is over and cannot be claimed.",
    "claimed-already": "{by} claimed this event at {at:time}.",
    "not-claimed": "This event is unclaimed.",
    "claim-of-another": "{by} claimed this event: only {by} or an approver can release the claim.",
    "claim-owner-without-right": "No active user {name} has the right to decide this event.",
    "note-empty": "Enter a note.",
    "silence-time": "Choose an end within the next {hours:.0f} hours.",
    "hold-without-reason": "Enter a reason for leaving the event to Azure.",
    "hold-event-not-waiting": "The event is no longer Scheduled, so it cannot be left to Azure.",
    "hold-decided-already": "{by} already approved the event: withdraw the approval first, if that is still possible.",
    "held-already": "{by} already left the event to Azure.",
    "hold-after-withdrawal": "The decision of the rule was withdrawn.",
    "not-held": "This event is not left to Azure.",
    "withdrawn": "{by} withdrew the approval.{comment:quoted}",
    "undone": "{by} undid the approval before it was sent.{comment:quoted}",
    "beaten-by-person": "{by} decided, which takes precedence over {rule}.",
    "consent-of-service": "A service account cannot agree to a proposal: a person has to sign in and agree.",
    "consent-of-token-maker": "You made a token of the service account that proposed it: another approver has"
    " to agree.",
    "consent-of-owner": "A service account of yours proposed it: another approver has to agree.",
    "consent-of-maker": "You made the account that proposed it, gave it its password or linked it at the provider:"
    " another approver has to agree.",
    "consent-of-held": "Another person behind the proposal knows the password of this account: choose your own first.",
    "consent-of-proposer": "You proposed it yourself: another approver has to agree.",
    "consent-too-late": "The proposal no longer waits for a second person.",
    "consent-not-proposed": "The approval does not wait for a second person. State: {state:ApprovalState}.",
}


def when_at(when: str, due_at: datetime | None, reader: Reader, turn: int | None = None) -> str:
    """Return when an approval starts the event, such as `now`. `turn` is the event's position in a wave."""
    return {
        When.NOW: "now",
        When.UNDO: "now",
        When.PREPARED: "when every machine is prepared",
        When.TIME: f"at {at(due_at, reader)}" if due_at else "later",
        When.TURN: f"in turn {turn} of the wave",
    }[When(when)]


def given(state: str, when: str, *, agreed: bool = False) -> str:
    """Return the message shown after an approval was given, or with `agreed` after the second approval."""
    if state == ApprovalState.PROPOSED:
        return "Proposed. A second person with the role approver has to agree."
    then = "to Azure"
    if state == ApprovalState.WAITING:
        then = "in a few seconds: you can still undo it" if when == When.UNDO else "when its condition is met"
    return f"{'Agreed' if agreed else 'Approved'}. Drydock sends the approval {then}."


# Messages of a page after the other actions of the decision panel.
DONE = {
    "withdraw": "Withdrawn. The event needs a decision again.",
    "undo": "Undone: nothing was sent to Azure. The event needs a decision again.",
    "claim": "Claimed: other users see that you handle this event.",
    "give-back": "Released: the event is unclaimed.",
    "assign": "Assigned: other users see who handles this event.",
    "note": "Note added.",
    "silence": "Silenced. Critical notifications and failed approvals are still sent.",
    "silence-end": "The silence ended.",
    "hold": "Left to Azure: no rule approves the event, and Azure may start it after NotBefore.",
    "lift": "No longer left to Azure: users and rules can decide again.",
}


@dataclass(frozen=True, slots=True)
class BulkWords:
    """Texts for an action on several events: heading, button and result."""

    heading: str
    button: str
    done: str


BULK = {
    "approve": BulkWords("Approve several events", "Start now", "approved"),
    "claim": BulkWords("Claim several events", "Claim", "claimed"),
    "leave": BulkWords("Leave several events to Azure", "Leave to Azure", "left to Azure"),
    "wave": BulkWords("Approve several events in a wave", "Start the wave", "in a wave"),
    "undo": BulkWords("Undo", "Undo", "undone"),
}
# Label of each guard that takes a reason, when it applies to some of several events.
ASKS = {each.code: each.label for each in GUARD_TYPES if each.label}
BULK_GONE = "This event is over or unknown."
WAVE_STANDS = "Other events block the wave, so it was not started."


def in_wave(turn: int, count: int) -> str:
    return f"Turn {turn} of {count}."


def event_named(event: EventRow) -> str:
    """Return the name of an event together with the name of its set."""
    place = "a set without a name" if event.set.provisional else event.set.name
    return f"{named(event.event_type, event.resources)} in {place}"


def approved(row: TimelineRow, reader: Reader) -> str:
    """Return the timeline sentence of an approval, such as `otto approved: start now. “go”`."""
    what = f"start {when_at((row.after or {})['when'], row.data['due_at'], reader, row.data['turn'])}"
    if row.kind is EntryKind.APPROVAL_PROPOSED:
        return f"{who(row)} proposed: {what}. A second person has to agree.{quoted(row.why)}"
    return f"{who(row)} approved: {what}.{quoted(row.why)}"


def who(row: TimelineRow) -> str:
    """Return the name of the user or rule that acted."""
    return f"The rule “{row.actor.removeprefix('rule: ')}”" if row.via == "rule" else row.actor


def lifted(row: TimelineRow, reader: Reader) -> str:
    holder = (row.before or {})["hold"]
    whose = rule_named(holder.removeprefix("rule: ")) if holder.startswith("rule: ") else holder
    return f"{row.actor} no longer leaves the event to Azure, as {whose} did."


def claimed(row: TimelineRow, reader: Reader) -> str:
    before, after = (row.before or {})["claim"], (row.after or {}).get("claim", row.actor)
    if after != row.actor:
        source = f" from {before}" if before not in (None, row.actor) else ""
        return f"{row.actor} assigned the event{source} to {after}.{quoted(row.why)}"
    taken = f" and replaced the claim of {before}" if before not in (None, row.actor) else ""
    return f"{row.actor} claimed the event{taken}.{quoted(row.why)}"


def claim_ended(row: TimelineRow, reader: Reader) -> str:
    before = (row.before or {})["claim"]
    whose = "the claim" if before == row.actor else f"the claim of {before}"
    return f"{row.actor} released {whose}."


def held(row: TimelineRow, reader: Reader) -> str:
    if row.data["withdrew_rule"]:
        return f"{row.actor} withdrew the decision of the rule: rules no longer decide this event.{quoted(row.why)}"
    if row.via == "rule":
        return f"{who(row)} left the event to Azure: users can still decide.{quoted(row.why)}"
    return f"{row.actor} left the event to Azure: no rule approves it.{quoted(row.why)}"


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.APPROVAL_PROPOSED: approved,
    EntryKind.APPROVAL_PLANNED: approved,
    EntryKind.APPROVAL_GRANTED: approved,
    EntryKind.APPROVAL_CONSENTED: "{actor} agreed as the second person.{why:quoted}",
    EntryKind.APPROVAL_DUE: "{reason} Drydock sends the approval to Azure.",
    EntryKind.EVENT_CLAIMED: claimed,
    EntryKind.CLAIM_ENDED: claim_ended,
    EntryKind.EVENT_NOTED: "{actor} noted:{why:quoted}",
    EntryKind.SILENCE_CHANGED: "{actor} {after[silenced_until]:?silenced notifications about|ended the silence of}"
    " {event_id:?this event|all events of the set}{after[silenced_until]:? until {after[silenced_until]:time}}."
    "{why:quoted}",
    EntryKind.EVENT_HELD: held,
    EntryKind.HOLD_ENDED: lifted,
}
