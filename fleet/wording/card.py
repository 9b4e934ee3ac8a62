"""Sentences of the decision card, shared by the queue, the event's page, phones and messages."""

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
    """Texts of a decision card: sentences or names, empty where nothing applies.

    `guards` state what each requires. `before` describes an earlier approval: one that waits for a second approver, or
    one that failed. `advised` is the heading of the advice (`Start now`), `why` its reason, `tone` its tone.
    """

    title: str
    effect: str
    lost: str
    stays: str
    until: str
    decide_by: str
    advised: str
    why: str
    tone: str
    guards: tuple[str, ...]
    before: str
    nobody: str
    who: str

    @property
    def lines(self) -> tuple[str, ...]:
        """Return all texts line by line, for places that cannot show a card."""
        advice = f"Recommended: {self.advised}. {self.why}" if self.advised else ""
        told = (self.effect, self.lost, self.stays, self.until, self.decide_by, advice, *self.guards)
        return tuple(line for line in (self.title, *told, self.before, self.nobody, self.who) if line)


def card_words(card: DecisionCard, reader: Reader) -> CardWords:
    """Return the texts of the card for this reader."""
    event, known = card.event, effect_of(card.event)
    scheduled = event.status is EventStatus.SCHEDULED
    missing = f", {card.blast.not_live} not live" if card.blast.not_live else ""
    advice = card.recommendation
    return CardWords(
        title=("DRILL: " if event.drill else "") + named(event.event_type, event.resources),
        effect=known.effect,
        lost=f"Lost: {known.lost}." if known.lost else "",
        # An ended event no longer takes machines away.
        stays=f"In {say(event.set.label, reader)}: {say(card.blast.summary, reader)}{missing}." if event.open else "",
        until=f"NotBefore {at(event.not_before, reader)}" if scheduled and event.not_before else "",
        decide_by=_decide_by(card, reader),
        advised=ADVISED[advice.advised] if advice else "",
        why=_why(card, reader),
        tone=TONES.get(advice.advised, "due") if advice else "",
        guards=tuple(_against(guard, reader) for guard in _to_tell(card)),
        before=_before(card, reader),
        nobody=_without_decision(card, reader),
        who=_who(card, reader),
    )


def _to_tell(card: DecisionCard) -> list[Guard]:
    """Return the guards that neither the advice nor the existing approval mentions already."""
    named_already = card.recommendation.reasons if card.recommendation else ()
    return [g for g in card.guards if g.sentence not in named_already and g.code != "already-decided"]


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


def _decide_by(card: DecisionCard, reader: Reader) -> str:
    if card.decide_by is None:
        return ""
    took = card.took_seconds
    known = (
        f"recent approvals here took {_seconds(took)} to reach Azure"
        if took is not None
        else "no approval was sent from here yet"
    )
    return f"Decide by {at(card.decide_by, reader)}: {known}."


def _seconds(count: float) -> str:
    return "under 1 s" if count < 1 else duration(count)


def _before(card: DecisionCard, reader: Reader) -> str:
    approval = card.event.approval
    if approval is None or not card.event.needs_decision:
        return ""
    if approval.state is ApprovalState.PROPOSED:
        return f"Waits for a second person: {say(approval.by, reader)} proposed it."
    return f"An earlier approval: {say(approval.reason, reader)}" if approval.reason else ""


def _without_decision(card: DecisionCard, reader: Reader) -> str:
    event, approval = card.event, card.event.approval
    if approval is not None and approval.may_be_undone:
        # The approval can be undone; its time is shown next to it.
        return ""
    acted = approval is not None and approval.live and approval.state is not ApprovalState.PROPOSED
    waits = event.status is EventStatus.SCHEDULED and not acted
    return ("If no user acts: " if waits else "") + say(event.if_nobody_acts, reader)


def _who(card: DecisionCard, reader: Reader) -> str:
    claim = card.event.claim
    if claim is None:
        return "Unclaimed." if card.event.open else ""
    return f"{claim.by} claimed it at {at(claim.at, reader)}.{quoted(claim.comment)}"


def together(found: Together, do: str, reader: Reader) -> str:
    """Return the joint effect of several events of one set or service, for the page before the decision."""
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
        return "Another event is under way there: without a reason they are left out, with a reason they run together."
    if not found.one_by_one:
        return f"The first is sent at once, and {others} will be refused while it is under way."
    then = "goes when the first is over" if found.count == 2 else "go one by one, each when the one before is over"
    return f"Drydock keeps them apart: {others} {then}. From its NotBefore on, Azure may start each by itself."
