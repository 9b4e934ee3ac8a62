"""Texts of channels and routes, and of the kinds of channels."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fleet.domain.timeline import EntryKind
from fleet.notifications.channels import KINDS
from fleet.notifications.grouping import ChannelHealth, NotificationHealth
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.routing import DeliveryState, MessageState
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.badges import Badge
from fleet.wording.policy import conditions, one_of
from fleet.wording.sentences import EntryText, Sentence, counted, listed
from fleet.wording.times import Reader

# Texts of channels and routes: conditions of a route, errors, and entries of the timeline.

Values = Mapping[str, Any]

ALL_CHANNELS = "every channel of the installation"


def type_label(moment: str) -> str:
    """Return the label of a notification type; a type of another release is its code."""
    try:
        return NotificationType(moment).declared.label
    except ValueError:
        return moment


def route(values: Values, reader: Reader) -> str:
    """Return the whole route in one sentence."""
    return f"To {values.get('channel') or ALL_CHANNELS}: {'; '.join([_when(values), *_of_what(values)])}."


def _when(values: Values) -> str:
    if "unclaimed_after_seconds" in values:
        after = times.duration(values["unclaimed_after_seconds"])
        return f"{after} after the first sighting, if it is not claimed"
    if "before_decide_by_seconds" in values:
        before = times.duration(values["before_decide_by_seconds"])
        return f"{before} before the time to decide by, if it is not decided"
    moments = values.get("moments")
    return listed(map(type_label, in_order(moments))) if moments else "everything"


def in_order(moments: Iterable[str]) -> list[str]:
    """Return notification types in the order in which they happen; those of another release come last."""
    order = [moment.value for moment in NotificationType]
    return sorted(moments, key=lambda moment: order.index(moment) if moment in order else len(order))


def _of_what(values: Values) -> Iterator[str]:
    types, severities = values.get("event_types"), values.get("severities")
    found = [f"{one_of(types)} events"] if types else []
    found += conditions(values)
    if severities:
        found.append(f"where it is {one_of(severities)}")
    if found:
        yield ", ".join(found)


def kind_label(kind: str) -> str:
    """Return the label of a kind of channel; one of another release is its code."""
    return KINDS[kind].label if kind in KINDS else kind


def dry_run(values: Values, reader: Reader) -> str:
    """Return the result of a dry run, such as `In the last 30 days: 31 messages, 4 at night.`"""
    messages = counted(values["messages"], "message") if values["messages"] else "no message"
    night = f", {values['outside_working_hours']} at night" if values["messages"] else ""
    return f"In the last {values['days']} days: {messages}{night}."


SENTENCES: dict[str, Sentence] = {
    "browser-endpoint": "The browser names an address without TLS, which no browser has.",
    "route": route,
    "route-dry-run": dry_run,
    "past-severity": ("How bad each event was goes by its type: how many machines were live at that time is not kept."),
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
    "message-unknown": "There is no message with this id.",
    "message-never-sent": "This message was never sent to a channel, so it cannot be sent again.",
    "message-under-way": "This message is still being sent, or is no longer needed.",
    "channel-is-off": "The channel is switched off: switch it on first.",
    "channel-takes-no-posts": "This channel mirrors open events and receives no messages. Check it at the provider.",
    "channel-without-secret": "Only webhooks have a secret that can be rotated.",
    "test-under-way": "A test of this channel is under way already.",
    "channels-too-many": "There are {most} channels already: delete one that is no longer needed.",
    "routes-too-many": "There are {most} routes already: delete one that is no longer needed.",
    "channel-name-taken": "There is already a channel with this name.",
    "route-name-taken": "There is already a route with this name.",
    "channel-of-routes": "Routes lead to it: {routes:some}. Change or delete them first.",
    "channel-kind-not-personal": "One alone may have a channel of these kinds: {known:list}.",
    "too-many-lines": "Give at most {most}.",
    "two-steps": "A step of escalation goes by one clock: make two routes.",
    "step-with-moments": "A step of escalation goes by the clock: it takes no moments.",
    "own-without-person": "Only a person may have something alone.",
    "token-only-reads": "The token only reads: use one with the scope `approve` or `admin`, or the pages.",
}


def _whose(row: TimelineRow, what: str) -> str:
    return f"{'their own' if row.data['own'] else 'the'} {what}"


def _channel(row: TimelineRow) -> str:
    return f"{_whose(row, 'channel')} “{row.data['channel']}” ({kind_label(row.data['channel_kind'])})"


def _setting(kind: str, name: str) -> str:
    if name == "secret_made_at":
        return "secret"
    field = KINDS[kind].fields.get(name) if kind in KINDS else None
    return str(field.verbose_name) if field else name


def channel_changed(row: TimelineRow, reader: Reader) -> str:
    after, parts = dict(row.after or {}), []
    if "enabled" in after:
        parts.append(f"switched {_channel(row)} {'on' if after.pop('enabled') else 'off'}")
    if after:
        named = [_setting(row.data["channel_kind"], name) for name in after]
        parts.append(f"changed {_channel(row)}: {listed(named)}")
    return f"{row.actor} {' and '.join(parts)}."


def route_changed(row: TimelineRow, reader: Reader) -> str:
    after = row.after or {}
    if set(after) == {"enabled"}:
        return f"{row.actor} switched {_route(row, 'on' if after['enabled'] else 'off')}"
    return f"{row.actor} changed {_route(row)}"


def _route(row: TimelineRow, then: str = "") -> str:
    return f"{_whose(row, 'route')} “{row.data['name']}”{f' {then}' if then else ''}: {row.data['wording']}"


# Reasons why a channel did not accept a message, by Drydock's codes. The receiver's own answer is shown in addition.
ERRORS: dict[str, str] = {
    "status": "it answered with an error",
    "redirect": "it sent us elsewhere, and redirects are not followed",
    "refused": "it refused the message",
    "refused_address": "its address is one that messages may not reach",
    "bad_url": "its URL cannot be used",
    "bad_job": "something in the message cannot be sent",
    "too_large": "the message is too large",
    "dns": "its name could not be resolved",
    "connect": "it could not be reached",
    "tls": "no safe connection: its certificate could not be verified, or it offers no TLS",
    "no_answer": "it ended the connection without an answer",
    "timeout": "it did not answer in time",
    "died": "the sender was ended while it waited",
    "busy": "too much was being sent at once",
    "no_mail_server": "no mail server is set (`EMAIL_HOST`)",
    "some_refused": "not every recipient was taken",
    "unknown": "unknown: the worker stopped before it recorded the result",
    "own-failure": "something went wrong in Drydock: its log says what",
}
# Details about an address or URL, which follow the code after a colon.
ABOUT: dict[str, str] = {
    "azure": "Azure's own",
    "unspecified": "no address",
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
    "port": "a port that is none of the web or of mail",
    "not_literal": "no address",
    "beside_proxy": "not by the proxy",
    "schema": "a service that is not allowed",
    "parameter": "a parameter that is not allowed",
    "unknown_service": "no service is known by it",
    "incomplete": "something is missing in it",
}


def error_words(code: str) -> str:
    """Return the label of an error code; a code of another release as it is."""
    error, _, about = code.partition(":")
    words = ERRORS.get(error, error)
    return f"{words} ({ABOUT.get(about, about)})" if about else words


def _failing(row: TimelineRow, reader: Reader) -> str:
    if row.data.get("gone"):
        return f"The channel {row.data['name']} says that it is gone, and is switched off."
    return f"The channel {row.data['name']} takes nothing: {error_words(row.data['error'])}."


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.CHANNEL_FAILING: _failing,
    EntryKind.CHANNEL_WORKS: lambda row, reader: f"The channel {row.data['name']} works again.",
    EntryKind.CHANNEL_CREATED: lambda row, reader: f"{row.actor} made {_channel(row)}.",
    EntryKind.CHANNEL_CHANGED: channel_changed,
    EntryKind.CHANNEL_DELETED: lambda row, reader: f"{row.actor} deleted {_channel(row)}.",
    EntryKind.CHANNEL_TRIED: lambda row, reader: f"{row.actor} tried {_channel(row)}.",
    EntryKind.ROUTE_CREATED: lambda row, reader: f"{row.actor} made {_route(row)}",
    EntryKind.ROUTE_CHANGED: route_changed,
    EntryKind.ROUTE_DELETED: lambda row, reader: f"{row.actor} deleted {_route(row)}",
    EntryKind.MESSAGE_SENT_AGAIN: lambda row, reader: (
        f"{row.actor} had “{type_label(row.data['moment'])}” sent again through “{row.data['channel']}”."
    ),
}


# Badges for the states of notifications.

BADGES: Mapping[type, Mapping[Any, Badge]] = {
    NotificationHealth: {
        NotificationHealth.STANDS_STILL: Badge("Notifications delayed", "bad", "bell-off"),
        NotificationHealth.ALL_FAIL: Badge("Notifications fail", "bad", "bell-off"),
        NotificationHealth.UNDELIVERED: Badge("Notifications undelivered", "bad", "bell-off"),
        NotificationHealth.SOME_FAIL: Badge("A channel fails", "due", "bell-dot"),
        NotificationHealth.NOBODY: Badge("No notification channel", "quiet", "bell-minus"),
        NotificationHealth.WORKS: Badge("Notifications work", "good", "bell"),
    },
    MessageState: {
        MessageState.WAITING: Badge("waits", "due", "hourglass"),
        MessageState.BATCHED: Badge("being sent", "busy", "send"),
        MessageState.SENT: Badge("delivered", "good", "circle-check"),
        MessageState.DROPPED: Badge("not sent", "quiet", "circle-slash"),
        MessageState.GIVEN_UP: Badge("given up", "bad", "octagon-x"),
        MessageState.UNROUTED: Badge("no channel", "bad", "bell-off"),
    },
    DeliveryState: {
        DeliveryState.QUEUED: Badge("waits", "due", "hourglass"),
        DeliveryState.SENDING: Badge("being sent", "busy", "send"),
        DeliveryState.DELIVERED: Badge("delivered", "good", "circle-check"),
        DeliveryState.DROPPED: Badge("not sent", "quiet", "circle-slash"),
        DeliveryState.GIVEN_UP: Badge("given up", "bad", "octagon-x"),
    },
    ChannelHealth: {
        ChannelHealth.WORKS: Badge("works", "good", "circle-check"),
        ChannelHealth.NEW: Badge("not tried yet", "calm", "circle-dashed"),
        ChannelHealth.HELD: Badge("held back", "due", "circle-pause"),
        ChannelHealth.FAILS: Badge("fails", "bad", "octagon-x"),
        ChannelHealth.OFF: Badge("switched off", "quiet", "circle-off"),
    },
}
