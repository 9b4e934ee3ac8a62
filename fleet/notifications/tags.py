"""Template filters that name notifications: `{% load notifications %}`."""

from collections.abc import Mapping

from django.template import Library

from fleet.domain.states import EventStatus
from fleet.notifications.labels import error_words, kind_label, type_label
from fleet.notifications.log import ChannelNamed, DeliveryRow, EventNotifications
from fleet.notifications.metrics import Backlog
from fleet.notifications.news import Subject
from fleet.notifications.routing import GROUP, TEST
from fleet.operations import clock
from fleet.projections.events.rows import EventRow
from fleet.wording.events import named
from fleet.wording.sentences import counted
from fleet.wording.times import Reader, at, page_reader

register = Library()

# Reasons why a message was dropped, or a delivery is no longer tried.
WHY: Mapping[str, str] = {
    "event-over": "the event was over",
    "event-open-again": "the event was open again",
    "over": "the problem was over",
    "decided": "the event was decided",
    "claimed": "the event was claimed",
    "answered": "Azure had answered",
    "started": "the event had started",
    "superseded": "a newer notification replaced this one",
    "claim-ended": "the claim had ended",
    "came-to-nothing": "the decision had no effect",
    "hold-ended": "the event was no longer left to Azure",
    "watched": "an agent of the set was live again",
    "moved": "NotBefore had changed, and the due time was recalculated",
    "channel-deleted": "the channel was deleted",
}
NO_RECIPIENT = "No notification sent"


register.filter("channel_kind", kind_label)
register.filter("went_wrong", error_words)


@register.filter
def why_not(code: str) -> str:
    """Return why a message or a delivery was not sent; a code of another release as it is."""
    return WHY.get(code) or error_words(code)


@register.filter
def channel_named(channel: ChannelNamed) -> str:
    """Return the name of a channel; a personal one is named by its user, and by its name for that user."""
    if not channel.owner:
        return channel.name
    return f"{channel.owner} ({channel.name})" if channel.name else channel.owner


@register.filter
def moment_named(moment: str) -> str:
    """Return the label of a notification type, of a group or of a test."""
    return {GROUP: "several notifications", TEST: "test"}.get(moment) or type_label(moment)


@register.filter
def delivery_named(row: DeliveryRow) -> str:
    return f"{counted(row.count, 'notification')}" if row.moment == GROUP else moment_named(row.moment)


@register.filter
def of_channel(backlog: Mapping[int, Backlog], channel_id: int) -> Backlog | None:
    """Return the backlog of a channel."""
    return backlog.get(channel_id)


@register.filter
def subject_named(subject: Subject) -> str:
    """Return the name of what a message is about."""
    if subject.event is not None:
        return f"{'Drill: ' if subject.event.drill else ''}{named(subject.event.event_type, subject.event.resources)}"
    name = subject.name or (f"number {subject.id}" if subject.id is not None else "")
    match subject.kind:
        case "maintenance":
            return f"maintenance of cache {name}"
        case "cache" | "machine" | "set" | "channel" | "event":
            return f"{subject.kind} {name}"
    return "the installation"


@register.filter
def told_line(rows: EventNotifications, event: EventRow) -> str:
    """Return which channels were notified of an event, and when."""
    return notified_sentence(rows, page_reader(clock.now()), over=event.status is EventStatus.ENDED)


def notified_sentence(rows: EventNotifications, reader: Reader, *, over: bool) -> str:
    """Return which channels were notified of an event, and when. `over`: the event has ended, so that no more will
    follow.

    Such as `Notified 14:02:07 #shop-ops, 14:02:08 pager; 2 waiting; mail failed, next try 14:03.`
    """
    parts = [_reached(rows, reader, over=over)]
    if rows.waiting and not over:
        parts.append(f"{rows.waiting} waiting")
    parts += [_failed(row, reader) for row in rows.failing]
    return f"{'; '.join(parts)}."


def _reached(rows: EventNotifications, reader: Reader, *, over: bool) -> str:
    if rows.notified:
        receivers = (f"{at(first, reader)} {channel_named(channel)}" for channel, first in rows.notified)
        return f"Notified {', '.join(receivers)}"
    if rows.unrouted and not rows.waiting:
        return f"{NO_RECIPIENT}: no route matches"
    if not rows.channels and not rows.rows:
        return f"{NO_RECIPIENT}: no channel is configured"
    if not rows.rows:
        return f"{NO_RECIPIENT}: no matching route has a channel"
    return NO_RECIPIENT if over else f"{NO_RECIPIENT} yet"


def _failed(row: DeliveryRow, reader: Reader) -> str:
    name = channel_named(row.channel)
    if not row.open:
        return f"{name} failed and was given up"
    return f"{name} failed, next try {at(row.next_at, reader)}" if row.next_at else f"{name} failed, being sent again"
