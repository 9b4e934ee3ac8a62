"""Texts about waves: conditions, results, and timeline entries."""

from collections.abc import Mapping
from typing import Any

from fleet.domain.states import ApprovalState
from fleet.domain.timeline import EntryKind
from fleet.domain.waves import WaveState
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.badges import badge_of
from fleet.wording.sentences import EntryText, Sentence, event_named, quoted
from fleet.wording.times import Reader


def why_out(values: Mapping[str, Any]) -> str:
    """Return why a wave continued without an event, as a sentence without the full stop."""
    label = badge_of(ApprovalState(values["state"])).label
    return (values["why"] or label.lower()).rstrip(".")


def summary(values: Mapping[str, Any], reader: Reader) -> str:
    were = "was" if values["back"] == 1 else "were"
    text = f"{values['back']} of {values['count']} events {were} started in turn, and their machines are live again."
    out = "; ".join(f"{event_named(one['event'])} ({why_out(one)})" for one in values["left_out"])
    return f"{text} Skipped: {out}." if out else text


def in_the_way(values: Mapping[str, Any], reader: Reader) -> str:
    more = f" {values['count'] - 1} more block the wave." if values["count"] > 1 else ""
    return f"{values['event_id']} blocks the wave: {values['reason']}{more}"


SENTENCES: dict[str, Sentence] = {
    "wave-turn": "Next: {event:event}.",
    "wave-not-back": "{machines:list} {machines:was/were} not live again within {seconds:span} after the end of the"
    " {event:event}.",
    "wave-unheard": "No agent of {set} has reported for {seconds:span} while the {event:event} is under way.",
    "wave-waits-for-return": "Waiting until {machines:list} {machines:is/are} live again after the {event:event}, at"
    " most {seconds:span}.",
    "wave-waits-for-end": "Waiting for the end of the {event:event}.",
    "wave-waits-for-azure": "Waiting for the {event:event}: NotBefore has passed, and Azure may start it at any"
    " moment.",
    "wave-waits-for-order": "Waiting for the {event:event}, which Drydock is sending to Azure.",
    "wave-summary": summary,
    "wave-kept": "{reason} But: {against}",
    "wave-stopped": "Wave {wave} stopped: {reason}",
    "wave-stopped-by": "{by} stopped the wave.{comment:quoted}",
    "wave-member-waits": "Waiting.",
    "wave-member-turn": "Next.",
    "wave-member-ahead": "{count:One event is/{count} events are} before this one.",
    "wave-member-started": "Started.",
    "wave-member-left-to-azure": "Left to Azure: NotBefore has passed.",
    "wave-member-on-its-way": "Sent to Azure.",
    "wave-member-not-back": "Ended. {machines:are} not live yet.",
    "wave-member-back": "{machines:?Ended, and its machines are live|Ended}.",
    "wave-member-left-out": lambda values, reader: f"Skipped: {why_out(values)}.",
    "wave-of-one": "A wave needs at least two events that need a decision.",
    "wave-of-many": "A wave has at most {most} events.",
    "wave-of-services": "All events of a wave must belong to one service or one set.",
    "wave-already-decided": "One of these events is already approved.",
    "wave-unknown-event": "No machine has reported an event with the id {event_id}.",
    "wave-takes-no-drill": "A wave can contain real events only, no drills.",
    "wave-running-elsewhere": "Another wave is under way in this service. Wait until it is over.",
    "wave-running": "Wave {wave} is under way here. Wait for it, or stop it.",
    "wave-stands-in-the-way": in_the_way,
    "wave-waits-for-no-second": "{guard} A wave cannot wait for a second person: propose this event separately.",
    "wave-over": lambda values, reader: (
        f"The wave is over: {badge_of(WaveState(values['state'])).label.lower()}. {values['why']}"
    ),
    "unknown-wave": "There is no wave with this id.",
}


def began(row: TimelineRow, reader: Reader) -> str:
    events = "; ".join(event_named(event) for event in row.data["named"])
    count = len(row.data["named"])
    return f"{row.actor} started wave {row.data['wave']} with {count} events: {events}.{quoted(row.why)}"


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.WAVE_BEGAN: began,
    EntryKind.WAVE_ENDED: "Wave {wave} is done: {reason}",
    EntryKind.WAVE_STOPPED: "Wave {wave} stopped: {reason}",
}
