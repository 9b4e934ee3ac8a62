"""Wording of caches: the meaning of notifications for programs, and the entries about caches."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.caches.notifications import LONGEST, TYPES, NotificationType
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.sentences import EntryText, Sentence, counted, some, spoken, within_quotes
from fleet.wording.times import Reader

NO_APPROVAL = (
    "These notifications are made for programs: they come seconds to minutes ahead, and cannot be answered. "
    "There is nothing to approve; hooks on the machines act on them."
)


@dataclass(frozen=True, slots=True)
class NotificationWords:
    """Texts of a notification type.

    `label` is its name on pages, `tone` the tone of its mark in a picture. `meaning` is one sentence for a program that
    uses the cache, `happens` the timeline's text about the node.
    """

    label: str
    tone: str
    meaning: str
    happens: str


NOTIFICATIONS: dict[NotificationType, NotificationWords] = {
    NotificationType.SCHEDULED: NotificationWords(
        "Scheduled",
        "due",
        "Get ready. The time is approximate: the node may go up to 3 minutes earlier.",
        "maintenance is announced",
    ),
    NotificationType.STARTING: NotificationWords(
        "Starting", "due", "Stop writing or break the circuit: about 20 seconds are left.", "maintenance begins"
    ),
    NotificationType.START: NotificationWords(
        "Start",
        "busy",
        "The node goes within seconds and closes its connections. Send nothing to it.",
        "the node goes within seconds",
    ),
    NotificationType.FAILOVER_COMPLETE: NotificationWords(
        "Failover complete",
        "calm",
        "The replica is the primary now. Refresh the topology; writing is safe again.",
        "is the primary now",
    ),
    NotificationType.ENDED: NotificationWords(
        "Ended", "quiet", "All nodes are back. Readers of the replica may return.", "maintenance ended"
    ),
    NotificationType.SCALE_COMPLETE: NotificationWords(
        "Scale complete", "calm", "Nodes were added or removed. Refresh the topology.", "nodes were added or removed"
    ),
}

TIERS: dict[str, str] = {
    "basic": "Basic has one node: it is down until the maintenance ends.",
    "standard": "Standard fails over to the replica: a few seconds of lost connections.",
    "premium": "Premium fails over to the replica, shard by shard: a few seconds of lost connections.",
}


def _kind(name: str | None) -> NotificationType | None:
    return TYPES.get(name.lower()) if name else None


def _label(values: Mapping[str, Any], reader: Reader) -> str:
    kind = _kind(values["type"])
    return NOTIFICATIONS[kind].label if kind else values["type"] or "no type stated"


def _meaning(values: Mapping[str, Any], reader: Reader) -> str:
    kind, tier = _kind(values["type"]), values["tier"]
    if kind is None:
        return "A type that is not documented; it is kept as it was heard."
    if tier == "basic" and kind is NotificationType.START:
        return "The one node goes within seconds: the cache is down until it ends. Use another store."
    if tier == "basic" and kind is NotificationType.ENDED:
        return "The node is back. Programs may return to the cache; what it held may be gone."
    if values["is_replica"] and kind in (NotificationType.STARTING, NotificationType.START):
        return "A replica goes: move its readers to the primary. Writing is not affected."
    return NOTIFICATIONS[kind].meaning


def _effect(values: Mapping[str, Any], reader: Reader) -> str:
    if values["tier"] != "basic" and values["was_replica"]:
        return "A replica is affected: nothing fails over, and its readers should use the primary meanwhile."
    return TIERS.get(values["tier"], "The tier is not known: Basic is down, Standard and Premium fail over.")


def _cut_off(values: Mapping[str, Any], reader: Reader) -> str:
    """Return a sentence such as `8 listeners of orders cut off, back within 2 s.`"""
    cut = counted(values["count"], "listener")
    said = f"{cut} of {values['host']} cut off{' without any notice' if values['unannounced'] else ''}"
    if values["away"]:
        return f"{said}; not back yet: {some(values['away'], 3)}."
    return f"{said}, back within {times.duration(max(1.0, math.ceil(values['seconds'] or 0)))}."


SENTENCES: dict[str, Sentence] = {
    "notification-label": _label,
    "notification-meaning": _meaning,
    "maintenance-effect": _effect,
    "tier-effect": lambda values, reader: TIERS.get(values["tier"], ""),
    "listeners-cut-off": _cut_off,
    "listeners-came": "{count} machines listen to {host}.",
    "start-unheard": "There was no listener for some of the time: it may have happened unnoticed.",
    "end-unheard": "There was no listener for some of the time: its end may have been missed.",
    "no-text": "not UTF-8",
    "line-too-long": f"longer than {LONGEST} characters",
    "line-empty": "empty",
    "line-cut": "cut by the agent",
    "type-missing": "no NotificationType",
    "type-unknown": "unknown type",
    "flags-left-out": "and more",
    "value-without-key": "a value without a key",
    "key-without-value": "“{key}” has no value",
    "key-unknown": "unknown key “{key}”",
    "value-unreadable": "{key} cannot be read: “{value}”",
    "key-twice": "{key} is stated more than once",
}


# A node's role, by whether it is a replica; None if the role was not stated.
ROLES: dict[bool | None, str] = {True: "replica", False: "primary", None: ""}


def _node(port: int | None, is_replica: bool | None = None) -> str:
    """Return a phrase such as `node 15000 (primary)`; values that are not stated are omitted."""
    if port is None:
        return "an unnamed node"
    role = ROLES[is_replica]
    return f"node {port} ({role})" if role else f"node {port}"


def _heard(row: TimelineRow, reader: Reader) -> str:
    data, kind = row.data, _kind(row.data["type"])
    late = " It arrived after its start." if data["late"] else ""
    if kind is None:
        what = f"a notification of the type {within_quotes(data['type'])}" if data["type"] else "a line without a type"
        return f"{data['host']}: {what}; it is kept as it was heard.{late}"
    failed_over = kind is NotificationType.FAILOVER_COMPLETE
    text = f"{data['host']}, {_node(data['port'], None if failed_over else data['is_replica'])}"
    text += f"{' ' if failed_over else ': '}{NOTIFICATIONS[kind].happens}"
    if data["start_time"]:
        joint = "at" if kind in (NotificationType.ENDED, NotificationType.STARTING) else "for"
        text += f" {joint} {times.at(data['start_time'], reader)}"
    if kind is NotificationType.SCHEDULED:
        text += ", perhaps up to 3 minutes earlier"
    return f"{text}.{late}"


def _never_started(row: TimelineRow, reader: Reader) -> str:
    due = f" at {times.at(row.data['expected_at'], reader)}" if row.data["expected_at"] else ""
    return f"{row.data['host']}: maintenance was announced{due}, and nothing followed."


def _end_not_seen(row: TimelineRow, reader: Reader) -> str:
    return f"{row.data['host']}: maintenance began, and no agent received its end ({_node(row.data['port'])})."


def _reason(row: TimelineRow) -> str:
    return f" ({spoken(row.data['reason'])})" if row.data["reason"] else ""


def _listened(row: TimelineRow, reader: Reader) -> str:
    seconds = row.data["after_seconds"]
    again = f" again after {times.duration(max(0.0, seconds))}" if seconds is not None else ""
    return f"{row.actor} listens to {row.data['host']}{again}."


def _lost(row: TimelineRow, reader: Reader) -> str:
    host = row.data["host"]
    if not row.data["listened"]:
        return f"{row.actor} cannot listen to {host}{_reason(row)}."
    return f"{row.actor} lost {host} during its maintenance{_reason(row)}: that is expected."


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.MAINTENANCE_SCHEDULED: _heard,
    EntryKind.MAINTENANCE_STARTING: _heard,
    EntryKind.MAINTENANCE_STARTED: _heard,
    EntryKind.MAINTENANCE_FAILED_OVER: _heard,
    EntryKind.MAINTENANCE_ENDED: _heard,
    EntryKind.MAINTENANCE_SCALED: _heard,
    EntryKind.NOTIFICATION_UNKNOWN: _heard,
    EntryKind.MAINTENANCE_NEVER_STARTED: _never_started,
    EntryKind.MAINTENANCE_END_NOT_SEEN: _end_not_seen,
    EntryKind.CACHE_LISTENED: _listened,
    EntryKind.CACHE_LOST: _lost,
    EntryKind.CACHE_LOST_UNANNOUNCED: lambda row, reader: (
        f"{row.actor} lost {row.data['host']} without any notice{_reason(row)};"
        " reboots by users and monthly patching send none."
    ),
    EntryKind.CACHE_REFUSED: lambda row, reader: f"{row.data['host']} refuses {row.actor}{_reason(row)}.",
    EntryKind.CACHE_UNSUPPORTED: lambda row, reader: (
        f"{row.data['host']} publishes no maintenance notifications{_reason(row)}."
    ),
}
