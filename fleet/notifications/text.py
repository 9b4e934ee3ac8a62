"""Texts of notifications, for single messages and for groups."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from fleet.domain.event_types import Severity
from fleet.domain.history import Happened
from fleet.domain.intake import EVENT_ID
from fleet.domain.orders.by_hand import linux_command, windows_command
from fleet.domain.reasons import from_json
from fleet.domain.states import ApprovalState, Certainty, EndedAs, EventStatus
from fleet.domain.timeline import EntryKind
from fleet.notifications.labels import in_order, type_label
from fleet.notifications.news import MessageNews
from fleet.notifications.notification_types import NotificationType
from fleet.projections.caches.maintenances import MaintenanceRow
from fleet.projections.cards import DecisionCard
from fleet.projections.events.rows import EventRow
from fleet.wording import times
from fleet.wording.badges import badge_of
from fleet.wording.card import card_words
from fleet.wording.events import effect_of, named, outcome_of
from fleet.wording.say import say, text_of
from fleet.wording.sentences import counted, listed, some
from fleet.wording.times import Form, Reader, clipped, one_line, share_length

# Words of a message: its parts, their maximum lengths, and the page that it links to.

SHORT = 160
TITLE = 200
LINE = 600
# Maximum length of a name inside a line, and of text that a user wrote.
NAME = 64
SAID = 300
# Maximum length of a command to copy.
COMMAND = 1000
# Matches commands with any EventId, whose alphabet is defined where documents are parsed.
COMMANDS = tuple(
    re.compile(re.escape(make("ID")).replace('"ID"', f'"{EVENT_ID}"')) for make in (linux_command, windows_command)
)
DRILL = "DRILL: "
# Label of the link to the page.
OPEN = "Open in Drydock"


@dataclass(frozen=True, slots=True)
class MessageWords:
    """Texts of one message. `title` is one line. `subject` is one line that is the same for all messages about a
    subject (no state, no countdown), because mail threads depend on it. `lines` are all lines of the text, starting
    with the title. `short` has at most 160 characters. `path` is the linked page; opening it changes nothing.
    """

    title: str
    subject: str
    lines: tuple[str, ...]
    short: str
    path: str


def bounded(title: str, subject: str, lines: Iterable[str], short: str, path: str) -> MessageWords:
    """Return the texts of a message, cut to their maximum lengths; the title precedes `lines`. `short` must already be
    short enough.
    """
    return MessageWords(one_line(title, TITLE), one_line(subject, TITLE), in_lines((title, *lines)), short, path)


def path_of(news: MessageNews) -> str:
    """Return the path of the page with details about the subject. For an event, it is the page on which it is
    decided.
    """
    if news.event is not None:
        return f"/events/{news.event.event_id}/"
    if news.maintenance is not None:
        return f"/maintenances/{news.maintenance.id}/"
    if news.moment.declared.path:
        return news.moment.declared.path
    entry = news.entry
    for place, row in (("caches", entry and entry.cache), ("machines", entry and entry.machine)):
        if row:
            return f"/{place}/{row.id}/"
    return f"/sets/{entry.set.id}/" if entry and entry.set else "/"


def is_command(line: str) -> bool:
    """Return whether a line of a message is a Drydock command that users copy."""
    return any(command.fullmatch(line) for command in COMMANDS)


def in_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Convert each text to one line of limited length, and omit empty ones."""
    limits = ((line, COMMAND if is_command(line) else LINE) for line in lines)
    return tuple(bounded for line, most in limits if (bounded := one_line(line, most)))


def of_event(news: MessageNews, event: EventRow, card: DecisionCard, reader: Reader) -> MessageWords:
    """Return the texts of a message about an event in its current state."""
    home, claim = event.set, event.claim
    # Shortened, so that other parts of a line have room.
    event = replace(
        event,
        event_type=one_line(event.event_type, NAME),
        resources=_names(event.resources),
        set=replace(home, name=one_line(home.name, NAME), name_suffix=one_line(home.name_suffix, NAME)),
        claim=replace(claim, by=one_line(claim.by, NAME), comment=one_line(claim.comment, SAID)) if claim else None,
    )
    news, card = replace(news, event=event, service=one_line(news.service, NAME)), replace(card, event=event)
    drill, headline, when = DRILL if event.drill else "", _headline(news, event, reader), _by_when(news, event, reader)
    head = f"{drill}{headline}{': ' if headline else ''}"
    what, where = named(event.event_type, event.resources), say(event.set.label, reader)
    first_type, first_names = news.first or (event.event_type, event.resources)
    first = named(one_line(first_type, NAME), _names(first_names))
    subject = f"{drill}{first} in {where} ({event.event_id[:8]})"
    short = _short(head, what, where, when, say(card.blast.summary, reader) if event.open else "")
    title = one_line(f"{head}{what} in {where}{when}", TITLE)
    return bounded(title, subject, _details(news, event, card, reader), short, path_of(news))


def _names(names: Sequence[str]) -> tuple[str, ...]:
    # Further names are only counted.
    return (*(one_line(name, NAME) for name in names[:4]), *names[4:])


def _short(head: str, what: str, where: str, when: str, impact: str) -> str:
    """Return the short text. Event, set and deadline come first, so that a long name cannot displace them."""
    head = f"{one_line(head, 60)} " if head else ""
    what, where = share_length((one_line(what, SHORT), one_line(where, SHORT)), SHORT - len(f"{head} in {when}."))
    brief = f"{head}{what} in {where}{when}."
    whole = f"{brief} {impact[:1].upper()}{impact[1:]}." if impact else brief
    return whole if len(whole) <= SHORT else brief


def _headline(news: MessageNews, event: EventRow, reader: Reader) -> str:
    """Return the headline of a message, which precedes the event's name. Those that do not depend on the event are in
    the registry.
    """
    approval, machine = news.approval, news.entry.machine if news.entry else None
    where = one_line(machine.resource_name, 40) if machine else "a machine"
    match news.moment:
        case NotificationType.CLAIMED:
            return f"Claimed by {one_line(event.claim.by, 40)}" if event.claim else "Claimed"
        case NotificationType.DECIDED:
            if news.entry is not None and news.entry.kind is EntryKind.EVENT_HELD:
                return "Left to Azure"
            by = one_line(say(approval.by, reader), 40) if approval else ""
            waits = approval is not None and approval.state is ApprovalState.WAITING
            return f"Approved{f' by {by}' if by else ''}{', waits' if waits else ''}"
        case NotificationType.WITHDRAWN:
            return "Approval returned" if approval and approval.returned else "Approval withdrawn"
        case NotificationType.REFUSED:
            lapsed = approval is not None and approval.state is ApprovalState.LAPSED
            return "Approval lapsed" if lapsed else "Azure refused the approval"
        case NotificationType.ENDED:
            inferred = "" if event.certainty is Certainty.SEEN else " (inferred)"
            started = event.started_seconds is not None
            lasted = f", Started for {times.duration(event.started_seconds)}" if started else ""
            return f"Ended, {badge_of(event.ended_as or EndedAs.UNKNOWN).label}{inferred}{lasted}"
        case NotificationType.PREPARE_FAILED:
            return f"Prepare failed on {where}"
        case NotificationType.RECOVER_FAILED:
            return f"Recover failed on {where}"
        case NotificationType.SERVES_AGAIN:
            return f"{where} serves again"
    return news.moment.declared.headline


def _by_when(news: MessageNews, event: EventRow, reader: Reader) -> str:
    """Return the time by which the event must be decided, or when it started or ended, as text."""
    moment, by, now = news.moment, news.card.decide_by if news.card else None, event.server_time
    if event.status is EventStatus.ENDED:
        ended = "at" if moment is NotificationType.ENDED else "ended"
        return f", {ended} {times.at(event.ended_at, reader)}" if event.ended_at else ""
    if event.status is EventStatus.STARTED:
        since = "at" if moment is NotificationType.STARTED else "started"
        return f", {since} {times.at(event.started_at, reader)}" if event.started_at else ", started"
    if event.not_before is None:
        return ", it may start at any moment"
    if not event.needs_decision:
        return f", NotBefore {times.at(event.not_before, reader)}"
    if by is not None and by > now:
        return f", decide by {times.at(by, reader)}"
    return f", decide at once: NotBefore {times.at(event.not_before, reader)}"


def _details(news: MessageNews, event: EventRow, card: DecisionCard, reader: Reader) -> Iterator[str]:
    """Yield the lines of a message after the title."""
    moment, hand = news.moment, news.by_hand
    in_title = (NotificationType.FIRST_SEEN, NotificationType.ENDED, NotificationType.OVERDUE)
    if news.entry is not None and moment not in in_title:
        yield text_of(news.entry, reader)
    if event.drill:
        yield "This is a drill with the real agents. Azure is not involved."
    if event.status is EventStatus.ENDED:
        yield from _how_it_was(event, reader)
    else:
        if not event.needs_decision:
            # Without a pending decision, guards and advice are irrelevant.
            card = replace(card, guards=(), recommendation=None, decide_by=None)
        words = card_words(card, reader)
        if moment in (NotificationType.REFUSED, NotificationType.WITHDRAWN, NotificationType.CORRECTED):
            # The entry's text already states this.
            words = replace(words, before="")
        yield from words.lines[1:]
    if news.service:
        yield f"Service: {news.service}."
    yield f"Severity: {news.severity}."
    if hand is not None:
        names = [one_line(one.machine.resource_name, NAME) for one in hand.machines]
        yield f"Start by hand: {say(hand.reason, reader)}"
        # A command to copy, and the machines on which it works.
        yield f"Run this command on any one of {some(names, 5)}:"
        if not all(one.windows for one in hand.machines):
            yield hand.linux
        if any(one.windows for one in hand.machines):
            yield hand.windows


def _how_it_was(event: EventRow, reader: Reader) -> Iterator[str]:
    """Yield lines on the outcome of an ended event."""
    if outcome_of(event) is Happened.CANCELLED:
        yield effect_of(event).effect
    if event.notice_seconds is not None:
        yield f"Azure gave {times.duration(event.notice_seconds)} of notice."
    if event.approval is not None and event.approval.granted_at is not None:
        yield f"{say(event.approval.by, reader)} approved the event at {times.at(event.approval.granted_at, reader)}."
    elif event.started_at is not None:
        yield "The event was not approved in Drydock."
    if event.started_at is not None:
        yield f"Started {times.at(event.started_at, reader)}, for {times.duration(event.started_seconds)}."


# Texts of a single message, and of a test.

PERSONAL_WARNING = "If this was not you, end the sessions that you do not know and change your password."


def message_words(news: MessageNews, reader: Reader) -> MessageWords:
    """Return the texts of one message for this reader."""
    reader = replace(reader, form=Form.MESSAGE, now=news.server_time or reader.now)
    if news.event is not None and news.card is not None:
        return of_event(news, news.event, news.card, reader)
    if news.maintenance is not None:
        return _of_maintenance(news, news.maintenance, reader)
    return _of_rest(news, reader)


def test_words(reader: Reader) -> MessageWords:
    """Return the texts of a test message."""
    reader = replace(reader, form=Form.MESSAGE)
    title = "Test by Drydock: nothing happened"
    sent = f"Sent at {times.at(reader.now, replace(reader, now=None))}." if reader.now is not None else ""
    lines = ("This is a test of the channel. Notifications look like this.", sent)
    return bounded(title, title, lines, f"{title}.", "/")


def _of_maintenance(news: MessageNews, row: MaintenanceRow, reader: Reader) -> MessageWords:
    """Return the texts of a message about cache maintenance. Users cannot approve it, but can prepare programs that use
    the cache.
    """
    service = f" ({one_line(news.service, NAME)})" if news.service else ""
    what, when = f"Maintenance of {one_line(row.cache.name, NAME)}{service}", _when(news, row, reader)
    reported, effect = text_of(news.entry, reader) if news.entry else "", say(row.effect, reader) if row.active else ""
    shortest, then = share_length((one_line(what, SHORT), f"{when}."), SHORT)
    lines = [reported, effect, f"Severity: {news.severity}."]
    subject = f"Maintenance {row.id} of {row.cache.host}"
    return bounded(f"{what}{when}", subject, lines, f"{shortest}{then}", path_of(news))


# Maintenance whose start or end was never reported.
UNSEEN = {
    EntryKind.MAINTENANCE_NEVER_STARTED: " was announced and did not start",
    EntryKind.MAINTENANCE_END_NOT_SEEN: " started, and no agent reported the end",
}


def _when(news: MessageNews, row: MaintenanceRow, reader: Reader) -> str:
    if news.entry is not None and news.entry.kind in UNSEEN:
        return UNSEEN[news.entry.kind]
    if not row.active:
        lasted = f" after {times.duration(row.seconds)}" if row.seconds is not None else ""
        return f" ended{lasted}"
    soonest = row.earliest_at or row.expected_at
    return f" is announced, the node may stop from {times.at(soonest, reader)}" if soonest else " is announced"


def _of_rest(news: MessageNews, reader: Reader) -> MessageWords:
    """Return the texts of a message about any other subject. They are based on the timeline entry."""
    label = type_label(news.moment)
    label = f"{label[:1].upper()}{label[1:]}"
    reported = text_of(news.entry, reader) if news.entry else f"{label}."
    where = one_line(_where(news, reader), NAME)
    warning = PERSONAL_WARNING if news.moment.declared.personal else ""
    service = f"Service: {one_line(news.service, NAME)}." if news.service else ""
    subject = f"{label}{': ' if where else ''}{where}"
    details = [say(from_json(line), reader) for line in news.entry.data.get("lines", ())] if news.entry else []
    lines = [*details, warning, service, f"Severity: {news.severity}."]
    return bounded(reported, subject, lines, one_line(reported, SHORT), path_of(news))


def _where(news: MessageNews, reader: Reader) -> str:
    entry = news.entry
    if entry is None:
        return ""
    if entry.cache is not None:
        return entry.cache.name
    if entry.set is not None:
        return say(entry.set.label, reader)
    return entry.machine.resource_name if entry.machine else ""


# Texts of several messages: counts and the nearest deadlines, of bounded length for any number.

# Subjects that get a line of their own.
MOST = 10
SERVICES = 10


def group_words(several: Sequence[MessageNews], reader: Reader) -> MessageWords:
    """Return the texts of one message for a group of messages (oldest first). It lists each subject in its current
    state, those with the nearest deadline first. If all messages are about one subject, return the texts of the newest,
    with the types of the others in one line.
    """
    reader = replace(reader, form=Form.MESSAGE, now=several[-1].server_time or reader.now)
    newest = list({news.subject: news for news in several}.values())
    if len(newest) == 1:
        words = message_words(newest[0], reader)
        happened = [type_label(news.moment) for news in several]
        return replace(words, lines=in_lines([*words.lines, f"What happened: {', '.join(happened)}."]))
    newest.sort(key=_urgency)
    head = DRILL if all(news.drill for news in newest) else ""
    what = _counts(newest)
    first = next((news.deadline for news in newest if _ahead(news)), None)
    by = f", decide the first by {times.at(first, reader)}" if first is not None else ""
    counts = Counter(news.severity for news in newest)
    worst = ", ".join(f"{counts[each]} {each}" for each in Severity if counts[each])
    title = f"{head}{what}{by}"
    lines = [f"Severity: {worst}.", *_happened(newest), *_listed(newest, reader)]
    services = list(dict.fromkeys(news.service for news in newest if news.service))
    where = f" in {some([one_line(service, 24) for service in services], 2)}" if services else ""
    tries = (f"{head}{what}{where}{by}. {worst}.", f"{title}. {worst}.", f"{title}.")
    short = one_line(next((text for text in tries if len(text) <= SHORT), tries[-1]), SHORT)
    return bounded(title, "Several notifications", lines, short, "/")


def _ahead(news: MessageNews) -> bool:
    waits = news.event is not None and news.event.needs_decision and not news.drill
    return waits and news.deadline is not None and (news.server_time is None or news.deadline > news.server_time)


def _urgency(news: MessageNews) -> tuple[bool, int, datetime]:
    """Return a sort key: events that need a decision first, then by severity."""
    waits, ranks = _ahead(news), {each.value: rank for rank, each in enumerate(Severity)}
    rank = 0 if waits else ranks.get(news.severity, len(ranks))
    return (not waits, rank, (waits and news.deadline) or news.at)


def _counts(newest: Sequence[MessageNews]) -> str:
    """Return the number of subjects as text, for example `12 events and 1 cache maintenance`."""
    counts = (
        (sum(news.event is not None and not news.drill for news in newest), "event"),
        (sum(news.event is not None and news.drill for news in newest), "drill"),
        (sum(news.maintenance is not None for news in newest), "cache maintenance"),
        (sum(news.event is None and news.maintenance is None for news in newest), "other notification"),
    )
    return listed([counted(number, label) for number, label in counts if number])


def _happened(newest: Sequence[MessageNews]) -> Iterator[str]:
    """Yield lines with the number of messages by notification type, and by service and event type."""
    moments = Counter[str](news.moment for news in newest)
    yield f"{', '.join(f'{type_label(moment)}: {moments[moment]}' for moment in in_order(moments))}."
    types: dict[str, Counter[str]] = {}
    for news in newest:
        if news.event is not None:
            kind = one_line(news.event.event_type, NAME) or "of unknown type"
            types.setdefault(news.service, Counter())[kind] += 1
    services = sorted(types, key=lambda service: (-types[service].total(), service))
    for service in services[:SERVICES]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in types[service].most_common(5))
        yield f"{one_line(service, NAME) or 'No service'}: {kinds}."
    if len(services) > SERVICES:
        yield f"And {counted(len(services) - SERVICES, 'more service')}."


def _listed(newest: Sequence[MessageNews], reader: Reader) -> Iterator[str]:
    for news in newest[:MOST]:
        yield clipped(f"- {message_words(news, reader).title}", LINE)
    if len(newest) > MOST:
        yield f"And {len(newest) - MOST} more, on the page."
