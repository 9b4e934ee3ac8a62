"""An event in a message: what has happened to it, the decision card as text, and short for pagers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from fleet.domain.history import Happened
from fleet.domain.messages.moments import Moment
from fleet.domain.states import ApprovalState, Certainty, EndedAs, EventStatus
from fleet.domain.timeline import EntryKind
from fleet.projections.approvals.cards import DecisionCard
from fleet.projections.events.rows import EventRow
from fleet.projections.messages.news import MessageNews
from fleet.projections.orders import ByHandRow
from fleet.wording import times
from fleet.wording.card import card_words
from fleet.wording.events import effect_of, fate_of, named
from fleet.wording.looks import ENDED_AS_LOOKS
from fleet.wording.messages.words import DRILL, NAME, SAID, SHORT, TITLE, MessageWords, in_lines, path_of
from fleet.wording.plain import beside, one_line
from fleet.wording.reader import Reader
from fleet.wording.say import say, text_of
from fleet.wording.sentences import some


def of_event(news: MessageNews, event: EventRow, card: DecisionCard, reader: Reader) -> MessageWords:
    """What a message of this event says, in whatever way it has gone on."""
    event = _bounded(event)
    news, card = replace(news, event=event, service=one_line(news.service, NAME)), replace(card, event=event)
    head, when = _head(news, event, reader), _by_when(Moment(news.moment), event, card, reader)
    what, where = named(event.event_type, event.resources), say(event.set.label, reader)
    title = one_line(f"{head}{what} in {where}{when}", TITLE)
    first_type, first_names = news.first or (event.event_type, event.resources)
    first = named(one_line(first_type, NAME), _names(first_names))
    return MessageWords(
        title=title,
        subject=one_line(f"{DRILL if event.drill else ''}{first} in {where} ({event.event_id[:8]})", TITLE),
        lines=in_lines([title, *_details(news, event, card, reader)]),
        short=_short(head, what, where, when, say(card.blast.summary, reader) if event.open else ""),
        path=path_of(news),
    )


def _names(names: Sequence[str]) -> tuple[str, ...]:
    # More than these are only counted.
    return (*(one_line(name, NAME) for name in names[:4]), *names[4:])


def _bounded(event: EventRow) -> EventRow:
    """The same with names that leave room for the rest of a line, whatever a machine calls itself."""
    home, claim = event.set, event.claim
    return replace(
        event,
        event_type=one_line(event.event_type, NAME),
        resources=_names(event.resources),
        set=replace(home, name=one_line(home.name, NAME), apart=one_line(home.apart, NAME)),
        claim=replace(claim, by=one_line(claim.by, NAME), comment=one_line(claim.comment, SAID)) if claim else None,
    )


def _short(head: str, what: str, where: str, when: str, stays: str) -> str:
    """What, where and by when come first, and are never cut away by a long name."""
    head = f"{one_line(head, 60)} " if head else ""
    what, where = beside((one_line(what, SHORT), one_line(where, SHORT)), SHORT - len(f"{head} in {when}."))
    said = f"{head}{what} in {where}{when}."
    whole = f"{said} {stays[:1].upper()}{stays[1:]}." if stays else said
    return whole if len(whole) <= SHORT else said


def _head(news: MessageNews, event: EventRow, reader: Reader) -> str:
    """What has happened, before the name of the event."""
    said = HEADS[Moment(news.moment)](news, event, reader) if Moment(news.moment) in HEADS else ""
    return f"{DRILL if event.drill else ''}{said}{': ' if said else ''}"


def _decided(news: MessageNews, event: EventRow, reader: Reader) -> str:
    if news.entry is not None and news.entry.kind is EntryKind.EVENT_HELD:
        return "Left to Azure"
    by = one_line(say(news.approval.by, reader), 40) if news.approval else ""
    waits = news.approval is not None and news.approval.state is ApprovalState.WAITING
    return f"Approved{f' by {by}' if by else ''}{', waits' if waits else ''}"


def _came_to_nothing(news: MessageNews, event: EventRow, reader: Reader) -> str:
    lapsed = news.approval is not None and news.approval.state is ApprovalState.LAPSED
    return "Approval lapsed" if lapsed else "Azure refused the approval"


def _ended(news: MessageNews, event: EventRow, reader: Reader) -> str:
    inferred = "" if event.certainty is Certainty.SEEN else " (inferred)"
    lasted = f", Started for {times.duration(event.started_seconds)}" if event.started_seconds is not None else ""
    return f"Ended, {ENDED_AS_LOOKS[event.ended_as or EndedAs.UNKNOWN].label}{inferred}{lasted}"


Head = Callable[[MessageNews, EventRow, Reader], str]
HEADS: Mapping[Moment, Head] = {
    Moment.CHANGED: lambda news, event, reader: "Changed",
    Moment.CLAIMED: lambda news, event, reader: (
        f"{one_line(event.claim.by, 40)} is on it" if event.claim else "Claimed"
    ),
    Moment.PROPOSED: lambda news, event, reader: "A second person has to agree",
    Moment.DECIDED: _decided,
    Moment.WITHDRAWN: lambda news, event, reader: (
        "Approval returned" if news.approval and news.approval.returned else "Approval withdrawn"
    ),
    Moment.OVERDUE: lambda news, event, reader: "No agent answers, start it by hand",
    Moment.REFUSED: _came_to_nothing,
    Moment.CORRECTED: lambda news, event, reader: "Correction: Azure had accepted the approval",
    Moment.STARTED: lambda news, event, reader: "Started",
    Moment.ENDED: _ended,
    Moment.SET_UNWATCHED: lambda news, event, reader: "Nobody is watching",
}


def _by_when(moment: Moment, event: EventRow, card: DecisionCard, reader: Reader) -> str:
    """Until when to do something about it, or since when there is nothing to do."""
    by, now = card.decide_by, event.server_time
    if event.status is EventStatus.ENDED:
        return f", at {times.at(event.ended_at, reader)}" if event.ended_at else ""
    if event.status is EventStatus.STARTED:
        since = "at" if moment is Moment.STARTED else "started"
        return f", {since} {times.at(event.started_at, reader)}" if event.started_at else ", started"
    if event.not_before is None:
        return ", it may start at any moment"
    if not event.needs_decision:
        return f", NotBefore {times.at(event.not_before, reader)}"
    if by is not None and by > now:
        return f", decide by {times.at(by, reader)}"
    return f", decide at once: NotBefore {times.at(event.not_before, reader)}"


def _details(news: MessageNews, event: EventRow, card: DecisionCard, reader: Reader) -> Iterator[str]:
    """Everything behind the title."""
    moment = Moment(news.moment)
    if news.entry is not None and moment not in (Moment.FIRST_SEEN, Moment.ENDED, Moment.OVERDUE):
        yield text_of(news.entry, reader)
    if event.drill:
        yield "This is a drill: a rehearsal with real agents. Azure knows nothing of it."
    if moment is Moment.ENDED:
        yield from _how_it_was(event, reader)
    else:
        if not event.needs_decision:
            # What speaks against deciding is for who may still decide.
            card = replace(card, guards=(), recommendation=None, decide_by=None)
        words = card_words(card, reader)
        if moment in (Moment.REFUSED, Moment.WITHDRAWN, Moment.CORRECTED):
            # Told already.
            words = replace(words, before="")
        yield from words.lines[1:]
    if news.service:
        yield f"Service: {news.service}."
    yield f"Severity: {news.severity}."
    yield from _by_hand(news.by_hand, reader)


def _how_it_was(event: EventRow, reader: Reader) -> Iterator[str]:
    """What came of it."""
    if fate_of(event) is Happened.CANCELLED:
        yield effect_of(event).effect
    if event.notice_seconds is not None:
        yield f"Azure gave {times.duration(event.notice_seconds)} of notice."
    if event.approval is not None and event.approval.granted_at is not None:
        yield f"{say(event.approval.by, reader)} approved it at {times.at(event.approval.granted_at, reader)}."
    elif event.started_at is not None:
        yield "Nobody approved it here."
    if event.started_at is not None:
        yield f"Started {times.at(event.started_at, reader)}, for {times.duration(event.started_seconds)}."


def _by_hand(hand: ByHandRow | None, reader: Reader) -> Iterator[str]:
    """What an operator does without agents: a command to be copied, and where."""
    if hand is None:
        return
    yield f"By hand: {say(hand.reason, reader)}"
    yield f"Run this on any one of {some([one_line(one.machine.resource_name, NAME) for one in hand.machines], 5)}:"
    if not all(one.windows for one in hand.machines):
        yield hand.linux
    if any(one.windows for one in hand.machines):
        yield hand.windows
