"""Wording of approvals: why a decision is refused, and the entries about approvals."""

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
from fleet.wording.sentences import EntryText, Sentence, counted, fill, listed, quoted, spoken
from fleet.wording.times import Reader, at, duration

Values = Mapping[str, Any]
# Heading of each recommendation on the card.
ADVISED = {
    Advised.START_NOW: "Start now",
    Advised.WHEN_PREPARED: "Start when prepared",
    Advised.PROPOSE: "Propose it",
    Advised.WAIT: "Wait",
    Advised.LOOK: "Look first",
    Advised.LEAVE: "Leave it to Azure",
    Advised.REDEPLOY: "Redeploy it yourself",
    Advised.BY_HAND: "Do it by hand",
}
# What an event type does to a machine while it is Started.
AWAY = {"Freeze": "median pause", "Reboot": "median restart"}


def earlier(values: Values, reader: Reader) -> str:
    """Return the experience with a type, such as `12 earlier Freezes here, median pause 4 s`: part of a sentence."""
    count, event_type = values["count"], values["event_type"]
    if not count:
        return f"no earlier {event_type} here was seen to its end"
    away = f", {AWAY.get(event_type, 'median time away')} {duration(values['seconds'])}"
    cancelled = f", {values['cancelled']} more cancelled by Azure" if values["cancelled"] else ""
    return f"{counted(count, f'earlier {event_type}')} here{away}{cancelled}"


def open_events_of_the_set(values: Values, reader: Reader) -> str:
    where = f"in the service {values['service']}" if values["service"] else "in the set"
    count = values["count"]
    return f"{counted(count, 'other event')} open {where}" if count else f"nothing else open {where}"


def start_now(values: Values, reader: Reader) -> str:
    return f"{ADVISED[Advised.START_NOW]}: {', '.join(values['reasons'])}."


def advised(head: Advised) -> Sentence:
    return lambda values, reader: f"{ADVISED[head]}. {' '.join(values['reasons'])}"


ADVICE: dict[str, Sentence] = {
    **{f"recommend-{one.value}": advised(one) for one in Advised},
    "recommend-start_now": start_now,
    "recommend-earlier": earlier,
    "recommend-open": open_events_of_the_set,
    "recommend-own": "your own organisation asked for it",
    "recommend-only-machine": "waiting would not spare the set's only machine the pause",
    "recommend-far-ahead": (
        "It was announced days ahead: the host's hardware is predicted to fail. Move the machine before it does."
    ),
    "recommend-unknown-type": "Azure has not said what this type does.",
    "recommend-prepares": "{machines:are} not prepared yet.",
    "recommend-nobody-prepares": "No live agent prepares {machines:list}.",
}


def state_label(state: str) -> str:
    """Return the state of an approval, as part of a sentence."""
    return badge_of(ApprovalState(state)).label


def standing(event: EventRow) -> str:
    """Return the state of the decision about an event, as a heading."""
    approval = event.approval
    if approval is not None and approval.live:
        return {ApprovalState.PROPOSED: "Proposed", ApprovalState.WAITING: "Approved, waits"}.get(
            approval.state, "Approved"
        )
    if event.status is not EventStatus.SCHEDULED:
        return "Running" if event.status is EventStatus.STARTED else "Over"
    if event.past_not_before:
        return "Too late to approve"
    return "Left to Azure" if event.hold and not event.hold.by_rule else "Decision"


def rule_named(name: str | None) -> str:
    return f"the rule “{name}”" if name else "a rule"


def asks_for(needs: Need, *, overridable: bool, may_override: bool) -> str:
    """Return what a guard requires of the user, shown next to its sentence."""
    if needs is not Need.BLOCKS or not overridable:
        return badge_of(needs).label
    return badge_of(Need.REASON).label if may_override else "an approver may override it, with a reason"


def decided_already(values: Values, reader: Reader) -> str:
    done, then = WAITING_DECISIONS.get(values["state"], ("approved", ""))
    when = f" at {at(values['at'], reader)}" if values["at"] else ""
    return f"{values['by']} has {done} it already{when}{then}."


def set_in_flight(values: Values, reader: Reader) -> str:
    count = values["count"]
    others = "Another event of this set is" if count == 1 else f"{count} other events of this set are"
    return f"{others} under way: two at once may take more machines down than the set can spare."


def last_live_machines(values: Values, reader: Reader) -> str:
    if values["pauses"] and values["only"]:
        return "It pauses the only machine of the set."
    if values["pauses"]:
        return "It pauses every live machine of the set at once."
    if values["only"]:
        return "It hits the only machine of the set."
    return "It takes down every live machine of the set: none stays up."


def hook_failed(values: Values, reader: Reader) -> str:
    machines = ", ".join(f"{name} ({spoken(hook)})" if hook else name for name, hook in values["machines"])
    return f"A prepare hook failed on {machines}."


# Result and next condition of a decision that was not sent to Azure yet.
WAITING_DECISIONS = {
    ApprovalState.PROPOSED.value: ("proposed", ": a second person has to agree"),
    ApprovalState.WAITING.value: ("approved", ": it goes once its condition is met"),
}
# Sentence of each guard.
GUARDS: dict[str, Sentence] = {
    "already-decided": decided_already,
    "event-not-open": lambda values, reader: (
        "The event is over: there is nothing left to approve."
        if values["status"] == EventStatus.ENDED.value
        else "The event has started already: Azure needs no approval any more."
    ),
    "too-late": "NotBefore is past: Azure may start the event at any moment by itself.",
    "advice-only": "{event_type} is advice: Azure starts nothing, and acknowledging it has no effect.",
    "version-changed": "The event has changed since you looked. Read it again, then decide.",
    "all-stopped": "{by} stopped all approvals at {at:time}; an admin can lift that. Reason: “{why}”",
    "no-live-machine": "No live machine of the set lists this event, so no agent can ask Azure.",
    "set-in-flight": set_in_flight,
    "service-in-flight": lambda values, reader: (
        f"Another event of the service {values['service']} is under way, in {', '.join(sets_named(values['sets']))}."
    ),
    "set-wants-step-up": "Approving in this set asks once more who you are, by a second factor or the password.",
    "set-wants-second": "Approving in this set always takes a second person, an approver.",
    "last-live-machines": last_live_machines,
    "held": "{by} left it to Azure at {at:time}: “{reason}”",
    "no-approval-window": "These are hours without approvals ({name}): {reason}",
    "lost-for-good": lambda values, reader: (
        f"What is lost does not come back: {event_type_of(values['event_type']).lost}."
    ),
    "hook-failed": hook_failed,
    "not-prepared": "{machines:are} still preparing.",
    "other-open-event": "The set has {count:other event|other events} open.",
    "event-type-unknown": "Drydock does not know the type {event_type:or of this event}: treat it as impactful.",
    "unnamed-set": "This machine's set has no name yet: others may be hit, too.",
}
# Conditions that an approval waits for, and reasons why it no longer waits.
WAITS: dict[str, Sentence] = {
    "waits-for-second": "It waits for a second person.",
    "waits-for-undo": "It goes to Azure at {due_at:time}, unless it is undone.",
    "waits-for-prepared": "It waits until every machine that it hits is prepared.",
    "waits-for-machines": "It waits until {machines:are} prepared.",
    "waits-for-time": "It waits until {due_at:time}.",
    "waits-for-turn": "It waits for its turn in the wave.",
    "kept-by-guard": "{reason} But: {guard}",
    "met-now": "There is nothing to wait for.",
    "met-undo": "The undo period passed without an undo.",
    "met-prepared": "Every machine that it hits is prepared.",
    "met-time": "It was due {due_at:time}.",
    "met-turn": "It is its turn in the wave.",
    "started-before-sent": "The event started before the approval was sent.",
    "ended-before-sent": "The event ended before the approval was sent.",
    "lapsed-waiting": "NotBefore came before {proposed:?a second person agreed|its condition was met}.",
}


AGAIN = "{rule:?The rules are applied to it again.|It needs a new decision.}"


def _changes(values: Values, reader: Reader) -> str:
    return changed_values(((one["field"], one["before"], one["after"]) for one in values["changes"]), reader)


def _after_delivery(values: Values, reader: Reader) -> str:
    had = "has" if len(values["machines"]) == 1 else "have"
    return (
        f"{values['reason']} {listed(values['machines'])} {had} its order, which cannot be recalled, and may ask Azure."
    )


# Why a decision no longer holds.
RETURNED: dict[str, Sentence] = {
    "decided-on-other-values": lambda values, reader: (
        f"The event changed after the decision: {_changes(values, reader)}. {fill(AGAIN, values, reader)}"
    ),
    "decided-before-guard": f"A guard applies that the decision does not cover: {{guard}} {AGAIN}",
    "returned-after-delivery": _after_delivery,
    "decider-lost-account": "{by}, who decided, can no longer sign in. It needs a new decision.",
    "decider-lost-right": "{by}, who decided, may no longer do so: {missing} It needs a new decision.",
    "decider-lost-token": "{by} decided by the token “{token}”, which is revoked or expired. It needs a new decision.",
    "rule-decides-otherwise": ("The rule “{rule}” no longer approves this event. The rules are applied to it again."),
    "consent-of-changed": lambda values, reader: (
        f"The event changed after it was proposed: {_changes(values, reader)}. Propose it again."
    ),
}
# Steps of an approval's progress towards Azure, and details shown with their times.
STEPS: dict[str, Sentence] = {
    "step-proposed": "Proposed",
    "step-decided": "Decided",
    "step-agreed": "Second person agreed",
    "step-agrees": "Second person agrees",
    "step-undo": "Not undone",
    "step-prepared": "Machines prepared",
    "step-time": "Its time comes",
    "step-turn": "Its turn comes",
    "step-taken-back": "Taken back",
    "step-returned": "Returned for a new decision",
    "step-sent": "Sent to {machine}",
    "step-send": "Send to {machine:or a machine}",
    "step-answered": lambda values, reader: f"Azure answered {values['status'] or ''}".rstrip(),
    "step-answers": "Azure answers 200",
    "step-starts": "Starts",
    "step-started": "Started",
    "step-gone": "Gone",
    "step-by": "by {by}",
    "step-waits-for-agent": "waits for its agent",
    "step-answer-inferred": "inferred: the receipt never came",
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
    "bulk-of-many": "These are more than {most} events, which is as many as are decided at once: narrow the filter.",
    "bulk-of-none": "No event was chosen.",
    "bulk-changed": lambda values, reader: (
        f"The list has changed since you looked: it had {values['seen']} events then and has {values['count']} now."
        if values["seen"] != values["count"]
        else f"The list has changed since you looked: it still has {values['count']} events, and not the same ones."
    ),
    "event-unknown": "No machine has reported an event with this id.",
    "approval-unknown": "There is no approval with this id.",
    "approved-meanwhile": "This event is approved already.",
    "needs-two-people": "It needs two people.",
    "due-time-past": "Choose a time in the future, or approve now.",
    "due-time-too-late": "Choose a time before NotBefore: from then on Azure may start it by itself.",
    "withdraw-order-offered": lambda values, reader: (
        f"It cannot be withdrawn: an order was offered to a machine. Its state: {state_label(values['state'])}."
    ),
    "withdraw-ended": lambda values, reader: (
        f"It cannot be withdrawn, since it has ended: {state_label(values['state'])}. {values['why']}".strip()
    ),
    "claim-event-over": "The event is over: there is nothing left to claim.",
    "claimed-already": "{by} is on it already, since {at:time}.",
    "not-claimed": "This event is not claimed.",
    "claim-of-another": "It is {by}'s claim: only {by} or an approver may give it back.",
    "hold-without-reason": "Say why it is left to Azure: others will ask.",
    "hold-event-not-waiting": "The event is no longer waiting: it cannot be left to Azure any more.",
    "hold-decided-already": "{by} has approved it already: withdraw that first, unless it is already on its way.",
    "held-already": "{by} has left it to Azure already.",
    "hold-after-withdrawal": "What the rule decided was withdrawn.",
    "not-held": "This event is not left to Azure.",
    "withdrawn": "{by} withdrew it.{comment:quoted}",
    "undone": "{by} undid it before it went.{comment:quoted}",
    "beaten-by-person": "{by} decided: that goes before {rule}.",
    "consent-of-service": "A service account cannot agree to a proposal: a person has to sign in and agree.",
    "consent-of-token-maker": "You made a token of the service account that proposed it: another approver has"
    " to agree.",
    "consent-of-owner": "A service account of yours proposed it: another approver has to agree.",
    "consent-of-maker": "You made the account that proposed it, gave it its password or linked it at the provider:"
    " another approver has to agree.",
    "consent-of-held": "Another person behind the proposal knows the password of this account: choose your own first.",
    "consent-of-proposer": "You proposed it yourself: another approver has to agree.",
    "consent-too-late": "It no longer waits for a second person.",
    "consent-not-proposed": lambda values, reader: (
        f"It is not waiting for a second person. Its state: {state_label(values['state'])}."
    ),
}


def when_at(when: str, due_at: datetime | None, reader: Reader, turn: int | None = None) -> str:
    """Return when an approval starts its event, such as `now`."""
    return {
        When.NOW: "now",
        When.UNDO: "now",
        When.PREPARED: "when every machine is prepared",
        When.TIME: f"at {at(due_at, reader)}" if due_at else "later",
        When.TURN: f"in turn {turn} of the wave",
    }[When(when)]


def given(state: str, when: str, *, agreed: bool = False) -> str:
    """Return the message of a page after an approval, or after the second approval (`agreed`)."""
    verb = "Agreed" if agreed else "Approved"
    if state == ApprovalState.WAITING and when == When.UNDO:
        return f"{verb}. It goes to Azure in a moment: you can still undo it."
    if state == ApprovalState.PROPOSED:
        return "Proposed. A second person, an approver, has to agree."
    waits = state == ApprovalState.WAITING
    return f"{verb}. It goes to Azure once its condition is met." if waits else f"{verb}. It is on its way to Azure."


# Messages of a page after the other actions of the decision panel.
DONE = {
    "withdraw": "Withdrawn. The event needs a decision again.",
    "undo": "Undone: nothing went to Azure. The event needs a decision again.",
    "claim": "Claimed: other users see that you are handling it.",
    "give-back": "Claim released: the event is unclaimed.",
    "hold": "Left to Azure: no rule approves it, and Azure may start it from NotBefore on.",
    "lift": "Taken back: people and rules may decide again.",
}


@dataclass(frozen=True, slots=True)
class BulkWords:
    """Texts for an action on several events: heading, button, and result."""

    heading: str
    button: str
    done: str


BULK = {
    "approve": BulkWords("Approve several events", "Start them now", "approved"),
    "claim": BulkWords("Claim several events", "Claim them", "claimed"),
    "leave": BulkWords("Leave several events to Azure", "Leave them to Azure", "left to Azure"),
    "wave": BulkWords("Approve several events in a wave", "Begin the wave", "in a wave"),
    "undo": BulkWords("Undo", "Undo", "undone"),
}
# Label of each guard that takes a reason, when it applies to some of several events.
ASKS = {each.code: each.label for each in GUARD_TYPES if each.label}
BULK_GONE = "It is over, or was never seen."
WAVE_STANDS = "Other events block the wave, so it has not begun."


def in_wave(turn: int, count: int) -> str:
    return f"Turn {turn} of {count}."


def event_named(event: EventRow) -> str:
    """Return the name of an event with its set."""
    place = "a set without a name" if event.set.provisional else event.set.name
    return f"{named(event.event_type, event.resources)} in {place}"


def approved(row: TimelineRow, reader: Reader) -> str:
    """Return a sentence such as `otto approved: start now. “go”`."""
    what = f"start {when_at((row.after or {})['when'], row.data['due_at'], reader, row.data['turn'])}"
    if row.kind is EntryKind.APPROVAL_PROPOSED:
        return f"{who(row)} proposed: {what}. A second person has to agree.{quoted(row.why)}"
    return f"{who(row)} approved: {what}.{quoted(row.why)}"


def who(row: TimelineRow) -> str:
    """Return the name of the person or the rule that acted."""
    return f"The rule “{row.actor.removeprefix('rule: ')}”" if row.via == "rule" else row.actor


def lifted(row: TimelineRow, reader: Reader) -> str:
    holder = (row.before or {})["hold"]
    of_rule = holder.startswith("rule: ")
    whose = rule_named(holder.removeprefix("rule: ")) if of_rule else holder
    return f"{row.actor} took it back: {whose} had left it to Azure."


def claimed(row: TimelineRow, reader: Reader) -> str:
    before = (row.before or {})["claim"]
    taken = f" It was {before}'s." if before not in (None, row.actor) else ""
    return f"{row.actor} is on it.{taken}{quoted(row.why)}"


def claim_ended(row: TimelineRow, reader: Reader) -> str:
    before = (row.before or {})["claim"]
    whose = "it" if before == row.actor else f"{before}'s claim"
    return f"{row.actor} gave {whose} back."


def held(row: TimelineRow, reader: Reader) -> str:
    if row.data["withdrew_rule"]:
        return f"{row.actor} withdrew what the rule decided, so rules leave it alone.{quoted(row.why)}"
    if row.via == "rule":
        return f"{who(row)} leaves it to Azure: people may still decide.{quoted(row.why)}"
    return f"{row.actor} left it to Azure: no rule approves it, Azure may start it from NotBefore on.{quoted(row.why)}"


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.APPROVAL_PROPOSED: approved,
    EntryKind.APPROVAL_PLANNED: approved,
    EntryKind.APPROVAL_GRANTED: approved,
    EntryKind.APPROVAL_CONSENTED: "{actor} agreed as the second person.{why:quoted}",
    EntryKind.APPROVAL_DUE: "{reason} The approval goes to Azure.",
    EntryKind.EVENT_CLAIMED: claimed,
    EntryKind.CLAIM_ENDED: claim_ended,
    EntryKind.EVENT_HELD: held,
    EntryKind.HOLD_ENDED: lifted,
}
