"""Texts of the decision card, shared by the queue, the event's page, phones and notifications."""

from dataclasses import dataclass

from fleet.domain.approvals.guards import Guard, Need
from fleet.domain.recommendation import Advised
from fleet.domain.states import ApprovalState, EventStatus
from fleet.projections.cards import DecisionCard
from fleet.projections.desk.selection import Together
from fleet.wording.approvals import ADVISED
from fleet.wording.badges import badge_of
from fleet.wording.events import effect_of, named
from fleet.wording.say import say
from fleet.wording.sentences import quoted
from fleet.wording.times import Reader, at, duration

# Tones of the advice: green only if it recommends a start.
TONES = {Advised.START_NOW: "good", Advised.WHEN_PREPARED: "good", Advised.LEAVE: "calm", Advised.PROPOSE: "calm"}


@dataclass(frozen=True, slots=True)
class CardWords:
    """Texts of a decision card. A text that does not apply is empty.

    `guards` state what each guard requires. `before` describes an earlier approval that waits for a second approver, or
    that failed. `advised` is the recommendation (`Start now`), `why` its reason, `tone` its colour. `measured` states
    how `decide_by` was computed. `waits`: `without_a_decision` happens if the event is not decided.
    """

    title: str
    effect: str
    is_lossy: bool
    stays: str
    until: str
    decide_by: str
    measured: str
    advised: str
    why: str
    tone: str
    guards: tuple[str, ...]
    before: str
    without_a_decision: str
    waits: bool
    who: str

    @property
    def lines(self) -> tuple[str, ...]:
        """Return all texts as lines, for places that cannot show a card."""
        advice = f"Recommendation: {self.advised}. {self.why}" if self.advised else ""
        decide_by = f"Decide by {self.decide_by}. {self.measured}" if self.decide_by else ""
        without_a_decision = f"Without a decision: {self.without_a_decision}" if self.waits else self.without_a_decision
        facts = (self.effect, self.stays, self.until, decide_by, advice, *self.guards)
        return tuple(line for line in (self.title, *facts, self.before, without_a_decision, self.who) if line)


def card_words(card: DecisionCard, reader: Reader) -> CardWords:
    """Return the texts of the card for this reader's time zone and place."""
    event, known = card.event, effect_of(card.event)
    scheduled = event.status is EventStatus.SCHEDULED
    away = card.blast.total - card.blast.stay_up - card.blast.hit
    affected = f"; {card.blast.hit} affected" + (f", {away} already unavailable" if away > 0 else "")
    advice = card.recommendation
    # Guards that neither the recommendation nor the existing approval mentions.
    said = advice.reasons if advice else ()
    guards = [guard for guard in card.guards if guard.sentence not in said and guard.code != "already-decided"]
    return CardWords(
        title=("DRILL: " if event.drill else "") + named(event.event_type, event.resources),
        effect=known.effect,
        is_lossy=bool(known.lost),
        # An ended event no longer takes machines away.
        stays=f"In {say(event.set.label, reader)}: {say(card.blast.summary, reader)}{affected}." if event.open else "",
        until=f"NotBefore {at(event.not_before, reader)}" if scheduled and event.not_before else "",
        decide_by=at(card.decide_by, reader) if card.decide_by else "",
        measured=_measured(card.took_seconds),
        advised=ADVISED[advice.advised] if advice else "",
        why=_why(card, reader),
        tone=TONES.get(advice.advised, "due") if advice else "",
        guards=tuple(_against(guard, reader) for guard in guards),
        before=_before(card, reader),
        without_a_decision=_without_decision(card, reader),
        waits=_waits(card),
        who=_who(card, reader),
    )


def _against(guard: Guard, reader: Reader) -> str:
    asks = "" if guard.needs is Need.NOTE else f" ({badge_of(guard.needs).label})"
    return f"{say(guard.sentence, reader)}{asks}"


def _why(card: DecisionCard, reader: Reader) -> str:
    if card.recommendation is None:
        return ""
    told = [say(reason, reader) for reason in card.recommendation.reasons]
    if card.recommendation.advised is not Advised.START_NOW:
        return " ".join(told)
    text = ", ".join(told)
    return f"{text[:1].upper()}{text[1:]}."


def _measured(took: float | None) -> str:
    if took is None:
        return "There is no earlier approval of this set to measure."
    return f"Recent approvals of this set reached Azure in {'less than 1 s' if took < 1 else duration(took)}."


def _before(card: DecisionCard, reader: Reader) -> str:
    approval = card.event.approval
    if approval is None or not card.event.needs_decision:
        return ""
    if approval.state is ApprovalState.PROPOSED:
        return f"{say(approval.by, reader)} proposed this event: a second person has to agree."
    return f"Earlier approval: {say(approval.reason, reader)}" if approval.reason else ""


def _without_decision(card: DecisionCard, reader: Reader) -> str:
    approval = card.event.approval
    # The time until which an approval can be undone is shown next to it.
    return "" if approval is not None and approval.may_be_undone else say(card.event.if_nobody_acts, reader)


def _waits(card: DecisionCard) -> bool:
    """Return whether a decision can still take effect on the event."""
    approval = card.event.approval
    decided = approval is not None and approval.live and approval.state is not ApprovalState.PROPOSED
    return card.event.status is EventStatus.SCHEDULED and not decided


def _who(card: DecisionCard, reader: Reader) -> str:
    claim = card.event.claim
    if claim is None:
        return "Unclaimed." if card.event.open else ""
    return f"Claimed by {claim.by} at {at(claim.at, reader)}.{quoted(claim.comment)}"


def together(found: Together, do: str, reader: Reader) -> str:
    """Return the sentence about the joint effect of several events of one set or service. `do` is the action under
    review.
    """
    both = "both" if found.count == 2 else f"all {found.count}"
    what = "; ".join(f"{say(home.label, reader)}: {say(radius.summary, reader)}" for home, radius in found.sets)
    return f"{what} if {both} ran at the same time. {_kept_apart(found, do)}"


def _kept_apart(found: Together, do: str) -> str:
    others = "the second" if found.count == 2 else "the others"
    if do == "leave":
        return "Azure may run them at the same time."
    if do == "wave":
        return "The wave starts the next one when the one before is over and its machines are live again."
    if found.in_flight:
        return "Another event is under way there. With a reason the events run at the same time, else they are skipped."
    if not found.one_by_one:
        return f"Drydock sends the first at once and refuses {others} while it is under way."
    then = (
        "follows when the first is over" if found.count == 2 else "follow one by one, each when the one before is over"
    )
    return f"Drydock sends the first at once; {others} {then}. Azure may start each event after its NotBefore."
