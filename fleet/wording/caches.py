"""Texts about caches: what notifications mean for programs, and timeline entries."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.caches.notifications import LONGEST, TYPES, NotificationType
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.sentences import EntryText, Sentence, counted, some, within_quotes
from fleet.wording.times import Reader

NO_APPROVAL = (
    "Maintenance notifications arrive seconds to minutes before the maintenance, which cannot be approved or delayed. "
    "Hooks on the machines can react to them."
)


@dataclass(frozen=True, slots=True)
class NotificationWords:
    """Texts of a notification type.

    `label` is its name on pages, `tone` the colour of its mark in a picture. `meaning` is a sentence for developers of
    programs that use the cache; `happens` is the timeline's text about the node.
    """

    label: str
    tone: str
    meaning: str
    happens: str


NOTIFICATIONS: dict[NotificationType, NotificationWords] = {
    NotificationType.SCHEDULED: NotificationWords(
        "Scheduled",
        "due",
        "Prepare. The time is approximate: the node may stop up to 3 minutes earlier.",
        "maintenance is announced",
    ),
    NotificationType.STARTING: NotificationWords(
        "Starting", "due", "Stop writing or open the circuit breaker: about 20 seconds are left.", "maintenance begins"
    ),
    NotificationType.START: NotificationWords(
        "Start",
        "busy",
        "The node stops within seconds and closes its connections. Send nothing to this node.",
        "the node stops within seconds",
    ),
    NotificationType.FAILOVER_COMPLETE: NotificationWords(
        "Failover complete",
        "calm",
        "The replica is now the primary. Refresh the topology; writing is safe again.",
        "is the primary now",
    ),
    NotificationType.ENDED: NotificationWords(
        "Ended", "quiet", "All nodes are available. Clients can read from the replica again.", "maintenance ended"
    ),
    NotificationType.SCALE_COMPLETE: NotificationWords(
        "Scale complete", "calm", "Nodes were added or removed. Refresh the topology.", "nodes were added or removed"
    ),
}

TIERS: dict[str, str] = {
    "basic": "Tier Basic has one node: the cache is unavailable until the maintenance ends.",
    "standard": "Tier Standard fails over to the replica: connections are lost for a few seconds.",
    "premium": "Tier Premium fails over to the replica, shard by shard: connections are lost for a few seconds.",
}


def _kind(name: str | None) -> NotificationType | None:
    return TYPES.get(name.lower()) if name else None


def _label(values: Mapping[str, Any], reader: Reader) -> str:
    kind = _kind(values["type"])
    return NOTIFICATIONS[kind].label if kind else values["type"] or "no type stated"


def _meaning(values: Mapping[str, Any], reader: Reader) -> str:
    kind, tier = _kind(values["type"]), values["tier"]
    if kind is None:
        return "Azure does not document this type."
    if tier == "basic" and kind is NotificationType.START:
        return "The only node stops within seconds: the cache is unavailable until the end. Use another store."
    if tier == "basic" and kind is NotificationType.ENDED:
        return "The node is available. Clients can use the cache again; its data may be lost."
    if values["is_replica"] and kind in (NotificationType.STARTING, NotificationType.START):
        return "A replica stops: read from the primary instead. Writing is not affected."
    return NOTIFICATIONS[kind].meaning


def _effect(values: Mapping[str, Any], reader: Reader) -> str:
    if values["tier"] != "basic" and values["was_replica"]:
        return "A replica is affected: there is no failover. Read from the primary meanwhile."
    return TIERS.get(values["tier"], "The tier is unknown: Basic is unavailable, Standard and Premium fail over.")


def _cut_off(values: Mapping[str, Any], reader: Reader) -> str:
    """Return the sentence about connections lost in a maintenance, such as `8 machines lost their connection to orders.
    All reconnected within 2 s.`
    """
    lost = f"{counted(values['count'], 'machine')} lost {'its' if values['count'] == 1 else 'their'} connection"
    lost = f"{lost} to {values['host']}{' without a notification' if values['unannounced'] else ''}."
    if values["away"]:
        return f"{lost} Not reconnected yet: {some(values['away'], 3)}."
    return f"{lost} All reconnected within {times.duration(max(1.0, math.ceil(values['seconds'] or 0)))}."


SENTENCES: dict[str, Sentence] = {
    "notification-label": _label,
    "notification-meaning": _meaning,
    "maintenance-effect": _effect,
    "tier-effect": lambda values, reader: TIERS.get(values["tier"], ""),
    "listeners-cut-off": _cut_off,
    "listeners-came": "{count} machines listen to {host}.",
    "start-unheard": "No agent listened for part of this time: the start may have been missed.",
    "end-unheard": "No agent listened for part of this time: the end may have been missed.",
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


def _heard(row: TimelineRow, reader: Reader) -> str:
    data, kind = row.data, _kind(row.data["type"])
    late = " This notification arrived after the start." if data["late"] else ""
    if kind is None:
        what = f"a notification of the type {within_quotes(data['type'])}" if data["type"] else "a line without a type"
        return f"{data['host']}: {what}.{late}"
    failed_over = kind is NotificationType.FAILOVER_COMPLETE
    role = "" if failed_over else ROLES[data["is_replica"]]
    node = "an unnamed node" if data["port"] is None else f"node {data['port']}{f' ({role})' if role else ''}"
    text = f"{data['host']}, {node}{' ' if failed_over else ': '}{NOTIFICATIONS[kind].happens}"
    if data["start_time"]:
        joint = "at" if kind in (NotificationType.ENDED, NotificationType.STARTING) else "for"
        text += f" {joint} {times.at(data['start_time'], reader)}"
    if kind is NotificationType.SCHEDULED:
        text += ", perhaps up to 3 minutes earlier"
    return f"{text}.{late}"


def _listened(row: TimelineRow, reader: Reader) -> str:
    seconds = row.data["after_seconds"]
    again = f" again after {times.duration(max(0.0, seconds))}" if seconds is not None else ""
    return f"{row.actor} listens to {row.data['host']}{again}."


HEARD = (
    EntryKind.MAINTENANCE_SCHEDULED, EntryKind.MAINTENANCE_STARTING, EntryKind.MAINTENANCE_STARTED,
    EntryKind.MAINTENANCE_FAILED_OVER, EntryKind.MAINTENANCE_ENDED, EntryKind.MAINTENANCE_SCALED,
    EntryKind.NOTIFICATION_UNKNOWN,
)  # fmt: skip
ENTRIES: dict[EntryKind, EntryText] = {
    **dict.fromkeys(HEARD, _heard),
    EntryKind.MAINTENANCE_NEVER_STARTED: "{host}: maintenance was announced{expected_at:? at {expected_at:time}}, but"
    " did not start.",
    EntryKind.MAINTENANCE_END_NOT_SEEN: "{host}: maintenance started, but no agent received the end ({port:?node {port}"
    "|an unnamed node}).",
    EntryKind.CACHE_LISTENED: _listened,
    EntryKind.CACHE_LOST: "{actor} {listened:?lost the connection|cannot listen} to"
    " {host}{listened:? during the maintenance}{reason:in brackets}{listened:?, as expected}.",
    EntryKind.CACHE_LOST_UNANNOUNCED: "{actor} lost the connection to {host} without a notification{reason:in"
    " brackets}. Azure sends none for reboots by users and for monthly patching.",
    EntryKind.CACHE_REFUSED: "{host} refuses {actor}{reason:in brackets}.",
    EntryKind.CACHE_UNSUPPORTED: "{host} publishes no maintenance notifications{reason:in brackets}.",
}
