"""Labels and sentences about channels, routes and deliveries."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.template import Library
from django.urls import reverse

from fleet.domain.states import EventStatus
from fleet.domain.timeline import EntryKind
from fleet.notifications.channels import KINDS
from fleet.notifications.grouping import ChannelHealth, NotificationHealth
from fleet.notifications.log import DeliveryRow, EventNotifications, MessageRow
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.queries import Backlog, ChannelRef
from fleet.notifications.routing import GROUP, TEST, DeliveryState, MessageState
from fleet.operations import clock
from fleet.projections.events.rows import EventRow
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.badges import Badge
from fleet.wording.events import named
from fleet.wording.policy import conditions, one_of
from fleet.wording.sentences import EntryText, Sentence, counted, listed
from fleet.wording.times import Reader, at, page_reader

# Texts of channels and routes: conditions of a route, errors, and entries of the timeline.

Values = Mapping[str, Any]

ALL_CHANNELS = "every channel of the installation"


def type_label(moment: str) -> str:
    """Return the label of a notification type. The code of an unknown type from another release is returned
    unchanged.
    """
    return next((each.declared.label for each in NotificationType if each == moment), moment)


def route(values: Values, reader: Reader) -> str:
    """Return a sentence that describes the whole route."""
    types, severities = values.get("event_types"), values.get("severities")
    parts = [f"{one_of(types)} events"] if types else []
    parts += conditions(values)
    parts += [f"with severity {one_of(severities)}"] if severities else []
    of_what = f"; {', '.join(parts)}" if parts else ""
    return f"To {values.get('channel') or ALL_CHANNELS}: {_when(values)}{of_what}."


def _when(values: Values) -> str:
    if "unclaimed_after_seconds" in values:
        after = times.duration(values["unclaimed_after_seconds"])
        return f"{after} after the announcement, if the event is still unclaimed"
    if "before_decide_by_seconds" in values:
        before = times.duration(values["before_decide_by_seconds"])
        return f"{before} before the latest time for a decision, if the event is still undecided"
    moments = values.get("moments")
    return listed(map(type_label, in_order(moments))) if moments else "all notifications"


def in_order(moments: Iterable[str]) -> list[str]:
    """Sort notification types in the order in which they usually happen. Unknown ones come last."""
    order = [moment.value for moment in NotificationType]
    return sorted(moments, key=lambda moment: order.index(moment) if moment in order else len(order))


def kind_label(kind: str) -> str:
    """Return the label of a kind of channel. An unknown code from another release is returned unchanged."""
    return KINDS[kind].label if kind in KINDS else kind


def dry_run(values: Values, reader: Reader) -> str:
    """Return the result of a dry run as a sentence, for example `In the last 30 days: 31 notifications, 4 at night.`"""
    messages = counted(values["messages"], "notification") if values["messages"] else "no notification"
    night = f", {values['outside_working_hours']} at night" if values["messages"] else ""
    return f"In the last {values['days']} days: {messages}{night}."


SENTENCES: dict[str, Sentence] = {
    "silence-unreadable": (
        'The line “{line}” cannot be read. It is: services, a colon, then matchers, such as shop-*: instance="{{name}}"'
    ),
    "silence-no-place": (
        "The line “{line}” names no machine and no cache: it would silence everybody's. One matcher has to hold "
        "{{name}}, {{host}}, {{address}} or {{cache}}."
    ),
    "silence-two-places": "The line “{line}” names a machine or a cache twice; write a line for each.",
    "silence-negative": "The line “{line}” would silence all but the machine.",
    "silence-own-label": "The line “{line}” would silence what Drydock itself tells: “{label}” is a label of its own.",
    "silence-no-expression": "The line “{line}” is no regular expression.",
    "silence-hits-others": (
        "The line “{line}” also hits machines whose names begin or end alike, such as web-10 for web-1. Add the "
        "text next to the name, such as (:[0-9]+)? for a port."
    ),
    "browser-endpoint": "The push address of the browser is not an https address.",
    "route": route,
    "route-dry-run": dry_run,
    "past-severity": "Severity is estimated from the event type: Drydock does not keep earlier presence.",
    "past-told-as-now": (
        "Services, names and NotBefore are the last known values. A notification that another route sends to the same"
        " channel is sent once, but counted here."
    ),
    "past-of-no-event": (
        "This counts events first seen in this period and cache maintenances. It does not count notifications due at"
        " a set time: overdue orders, quiet sources and failing channels."
    ),
    "channel-unknown": "There is no channel with this id.",
    "own-route-without-channel": "Choose one of your channels.",
    "route-unknown": "There is no route with this id.",
    "message-unknown": "There is no notification with this id.",
    "message-never-sent": "This notification was never sent to a channel, so it cannot be sent again.",
    "message-under-way": "This notification is still being sent, or is no longer needed.",
    "channel-is-off": "The channel is switched off: switch it on first.",
    "channel-takes-no-posts": "This channel mirrors open events and receives no notifications.",
    "channel-without-secret": "Only webhooks have a secret that can be rotated.",
    "test-under-way": "A test of this channel is under way already.",
    "channels-too-many": "There are {most} channels already: delete one that is no longer needed.",
    "routes-too-many": "There are {most} routes already: delete one that is no longer needed.",
    "channel-name-taken": "There is already a channel with this name.",
    "route-name-taken": "There is already a route with this name.",
    "channel-of-routes": "These routes use the channel: {routes:some}. Change or delete them first.",
    "channel-kind-not-personal": "Personal channels can be of these kinds: {known:list}.",
    "too-many-lines": "Enter at most {most}.",
    "two-steps": "A route has one escalation step: create a second route for the other.",
    "step-with-moments": "A route with an escalation step has no notification types.",
    "own-without-person": "Only a user can have personal channels and routes.",
    "token-only-reads": "The token only reads: use one with the scope `approve` or `admin`, or the pages.",
}


def _whose(row: TimelineRow, what: str) -> str:
    return f"{'their own' if row.data['own'] else 'the'} {what}"


def _channel(row: TimelineRow) -> str:
    return f"{_whose(row, 'channel')} “{row.data['channel']}” ({kind_label(row.data['channel_kind'])})"


def channel_changed(row: TimelineRow, reader: Reader) -> str:
    after, parts, kind = dict(row.after or {}), [], KINDS.get(row.data["channel_kind"])
    if "enabled" in after:
        parts.append(f"switched {_channel(row)} {'on' if after.pop('enabled') else 'off'}")
    if after:
        fields = kind.fields if kind else {}
        labels = {"secret_made_at": "secret", **{name: str(field.verbose_name) for name, field in fields.items()}}
        parts.append(f"changed {_channel(row)}: {listed([labels.get(name, name) for name in after])}")
    return f"{row.actor} {' and '.join(parts)}."


def route_changed(row: TimelineRow, reader: Reader) -> str:
    after = row.after or {}
    if set(after) == {"enabled"}:
        return f"{row.actor} switched {_route(row, ' on' if after['enabled'] else ' off')}"
    return f"{row.actor} changed {_route(row)}"


def _route(row: TimelineRow, then: str = "") -> str:
    return f"{_whose(row, 'route')} “{row.data['name']}”{then}: {row.data['wording']}"


# Reasons why a channel did not accept a message, by Drydock's codes. The receiver's own answer is shown in addition.
ERRORS: dict[str, str] = {
    "status": "the receiver answered with an error",
    "redirect": "the receiver answered with a redirect, which Drydock does not follow",
    "refused": "the receiver refused the notification",
    "refused_address": "Drydock does not send to this address",
    "bad_url": "the URL cannot be used",
    "bad_job": "the notification contains something that cannot be sent",
    "too_large": "the notification is too large",
    "dns": "the host name could not be resolved",
    "connect": "the receiver could not be reached",
    "tls": "the certificate of the receiver could not be verified, or the receiver has no TLS",
    "no_answer": "the receiver closed the connection without an answer",
    "timeout": "the receiver did not answer in time",
    "died": "the sending process ended before the answer",
    "busy": "Drydock was sending too many notifications at the same time",
    "no_mail_server": "no mail server is configured (`EMAIL_HOST`)",
    "some_refused": "the mail server refused some recipients",
    "unknown": "unknown: the worker stopped before it recorded the result",
    "own-failure": "an error in Drydock: see its log",
    "secrets-unreadable": "the secrets of the channel cannot be read with the current `SECRET_KEY`: enter them again",
    "too-many-calls": "the receiver limits the calls; Drydock tries again later",
}
# Details about an address or URL, which follow the code after a colon.
ABOUT: dict[str, str] = {
    "azure": "Azure's own",
    "unspecified": "not an address",
    "loopback": "this machine",
    "link_local": "link-local",
    "private": "a private network",
    "shared": "a shared network",
    "unique_local": "a private network",
    "multicast": "multicast",
    "broadcast": "broadcast",
    "documentation": "reserved for documentation",
    "reserved": "reserved",
    "tunnel": "a tunnel",
    "port": "the port is not allowed",
    "not_literal": "not an address",
    "beside_proxy": "not through the proxy",
    "schema": "a service that is not allowed",
    "parameter": "a parameter that is not allowed",
    "unknown_service": "unknown service",
    "incomplete": "incomplete",
}


def error_words(code: str) -> str:
    """Return the label of an error code. An unknown code from another release is returned unchanged."""
    error, _, about = code.partition(":")
    words = ERRORS.get(error, error)
    return f"{words} ({ABOUT.get(about, about)})" if about else words


def _failing(row: TimelineRow, reader: Reader) -> str:
    if row.data.get("gone"):
        return f"The receiver of the channel {row.data['name']} no longer exists: Drydock switched the channel off."
    return f"The channel {row.data['name']} fails: {error_words(row.data['error'])}."


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.CHANNEL_FAILING: _failing,
    EntryKind.CHANNEL_WORKS: lambda row, reader: f"The channel {row.data['name']} works again.",
    EntryKind.CHANNEL_CREATED: lambda row, reader: f"{row.actor} created {_channel(row)}.",
    EntryKind.CHANNEL_CHANGED: channel_changed,
    EntryKind.CHANNEL_DELETED: lambda row, reader: f"{row.actor} deleted {_channel(row)}.",
    EntryKind.CHANNEL_TRIED: lambda row, reader: f"{row.actor} tested {_channel(row)}.",
    EntryKind.ROUTE_CREATED: lambda row, reader: f"{row.actor} created {_route(row)}",
    EntryKind.ROUTE_CHANGED: route_changed,
    EntryKind.ROUTE_DELETED: lambda row, reader: f"{row.actor} deleted {_route(row)}",
    EntryKind.MESSAGE_SENT_AGAIN: lambda row, reader: (
        f"{row.actor} sent “{type_label(row.data['moment'])}” again through “{row.data['channel']}”."
    ),
}


# Badges for the states of notifications.

BADGES: Mapping[type, Mapping[Any, Badge]] = {
    NotificationHealth: {
        NotificationHealth.STANDS_STILL: Badge("delayed", "bad", "bell-off"),
        NotificationHealth.ALL_FAIL: Badge("every channel fails", "bad", "bell-off"),
        NotificationHealth.UNDELIVERED: Badge("some not delivered", "bad", "bell-off"),
        NotificationHealth.SOME_FAIL: Badge("a channel fails", "due", "bell-dot"),
        NotificationHealth.NO_CHANNEL: Badge("not configured", "quiet", "bell-minus"),
        NotificationHealth.WORKS: Badge("OK", "good", "bell"),
    },
    MessageState: {
        MessageState.WAITING: Badge("waiting", "due", "hourglass"),
        MessageState.BATCHED: Badge("being sent", "busy", "send"),
        MessageState.SENT: Badge("delivered", "good", "circle-check"),
        MessageState.DROPPED: Badge("not sent", "quiet", "circle-slash"),
        MessageState.GIVEN_UP: Badge("given up", "bad", "octagon-x"),
        MessageState.UNROUTED: Badge("no channel", "bad", "bell-off"),
    },
    DeliveryState: {
        DeliveryState.QUEUED: Badge("waiting", "due", "hourglass"),
        DeliveryState.SENDING: Badge("being sent", "busy", "send"),
        DeliveryState.DELIVERED: Badge("delivered", "good", "circle-check"),
        DeliveryState.DROPPED: Badge("not sent", "quiet", "circle-slash"),
        DeliveryState.GIVEN_UP: Badge("given up", "bad", "octagon-x"),
    },
    ChannelHealth: {
        ChannelHealth.WORKS: Badge("works", "good", "circle-check"),
        ChannelHealth.NEW: Badge("not tested yet", "calm", "circle-dashed"),
        ChannelHealth.HELD: Badge("paused after errors", "due", "circle-pause"),
        ChannelHealth.FAILS: Badge("fails", "bad", "octagon-x"),
        ChannelHealth.OFF: Badge("switched off", "quiet", "circle-off"),
    },
}


# Template filters: `{% load notifications %}`.

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
    "silenced": "a user silenced it",
    "superseded": "a newer notification replaced this one",
    "claim-ended": "the claim had ended",
    "came-to-nothing": "the decision had no effect",
    "hold-ended": "the event was no longer left to Azure",
    "watched": "an agent of the set was live again",
    "moved": "NotBefore had changed, and the due time was recalculated",
}
NO_RECIPIENT = "No notification sent"


register.filter("channel_kind", kind_label)
register.filter("went_wrong", error_words)


@register.filter
def why_not(code: str) -> str:
    """Return the reason why a message or delivery was not sent as text. An unknown code is returned unchanged."""
    return WHY.get(code) or error_words(code)


@register.filter
def channel_named(channel: ChannelRef) -> str:
    """Return the name of a channel for this reader. A personal channel of another user is named by that user only."""
    if not channel.owner:
        return channel.name
    return f"{channel.owner} ({channel.name})" if channel.name else channel.owner


@register.filter
def moment_named(moment: str) -> str:
    """Return the label of a notification type, or of a group or test."""
    return {GROUP: "several notifications", TEST: "test"}.get(moment) or type_label(moment)


@register.filter
def delivery_named(row: DeliveryRow) -> str:
    return counted(row.count, "notification") if row.moment == GROUP else moment_named(row.moment)


@register.filter
def of_channel(backlog: Mapping[int, Backlog], channel_id: int) -> Backlog | None:
    """Return the backlog of a channel, or None."""
    return backlog.get(channel_id)


# Kinds of subjects that have a page.
LINKED = ("maintenance", "cache", "machine", "set")


@register.filter
def subject_named(row: MessageRow) -> str:
    """Return the name of the subject of a message."""
    if row.event is not None:
        return f"{'Drill: ' if row.drill else ''}{named(row.event_type or '', row.resources)}"
    kind, _, number = row.subject.partition(":")
    name = row.subject_name or (f"number {number}" if number.isdecimal() else "")
    if kind in (*LINKED, "channel", "event"):
        return f"{'maintenance of cache' if kind == 'maintenance' else kind} {name}"
    return "the installation"


@register.filter
def subject_address(row: MessageRow) -> str:
    """Return the address of the page of a message's subject, or an empty string if it has none."""
    if row.event is not None:
        return reverse("event", args=[row.event])
    kind, _, number = row.subject.partition(":")
    return reverse(kind, args=[number]) if row.subject_name and kind in LINKED else ""


@register.filter
def told_line(rows: EventNotifications, event: EventRow) -> str:
    """Return a sentence on which channels were notified of an event, and when."""
    return notified_sentence(rows, page_reader(clock.now()), over=event.status is EventStatus.ENDED)


def notified_sentence(rows: EventNotifications, reader: Reader, *, over: bool) -> str:
    """Return a sentence on which channels were notified of an event and when. For example: `Notified 14:02:07
    #shop-ops, 14:02:08 pager; 2 waiting; mail failed, next try 14:03.` `over`: the event has ended, so no more
    notifications follow.
    """
    waiting = [f"{rows.waiting} waiting"] if rows.waiting and not over else []
    parts = [_reached(rows, reader, over=over), *waiting, *(_failed(row, reader) for row in rows.failing)]
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


def _failed(row: MessageRow, reader: Reader) -> str:
    name = channel_named(row.channel) if row.channel else ""
    if row.state is MessageState.GIVEN_UP:
        return f"{name} failed and was given up"
    next_at = row.next_attempt_at
    if next_at is None or reader.now is None or next_at <= reader.now:
        return f"{name} failed, being sent again"
    return f"{name} failed, next try {at(next_at, reader)}"
