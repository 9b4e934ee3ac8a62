"""Wording of waves: conditions, results, and the entries about waves."""

from collections.abc import Mapping
from typing import Any

from fleet.domain.states import ApprovalState
from fleet.domain.timeline import EntryKind
from fleet.domain.waves import WaveState
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.badges import badge_of
from fleet.wording.sentences import EntryText, Sentence, fill, listed, quoted
from fleet.wording.times import Reader


def event_named(event: Mapping[str, Any]) -> str:
    """Return the name of an event, such as `Reboot of vm1 and vm2`."""
    return f"{event['type'] or 'event'} of {listed(event['resources']) or 'no named machine'}"


def _about(template: str, *, many: str = "") -> Sentence:
    """Return a sentence about `{event}`, which is replaced by its name; `many` is the template for several
    `machines`.
    """

    def filled(values: Mapping[str, Any], reader: Reader) -> str:
        chosen = many if many and len(values["machines"]) > 1 else template
        return fill(chosen, {**values, "event": event_named(values["event"])}, reader)

    return filled


def why_out(values: Mapping[str, Any]) -> str:
    """Return why the wave continued without an event, without a full stop."""
    label = badge_of(ApprovalState(values["state"])).label
    return (values["why"] or label.lower()).rstrip(".")


def summary(values: Mapping[str, Any], reader: Reader) -> str:
    were = "was" if values["back"] == 1 else "were"
    text = f"{values['back']} of {values['count']} events {were} started in turn and came back."
    out = "; ".join(f"{event_named(one['event'])} ({why_out(one)})" for one in values["left_out"])
    return f"{text} Left out: {out}." if out else text


def member_ahead(values: Mapping[str, Any], reader: Reader) -> str:
    return "One event goes before it." if values["count"] == 1 else f"{values['count']} events go before it."


def in_the_way(values: Mapping[str, Any], reader: Reader) -> str:
    more = f" So do {values['count'] - 1} more." if values["count"] > 1 else ""
    return f"{values['event_id']} blocks the wave: {values['reason']}{more}"


SENTENCES: dict[str, Sentence] = {
    "wave-turn": _about("It is the turn of the {event}."),
    "wave-not-back": _about(
        "{machines:list} has not come back within {seconds:span} after the {event} had ended.",
        many="{machines:list} have not come back within {seconds:span} after the {event} had ended.",
    ),
    "wave-unheard": _about("No machine of {set} has been heard for {seconds:span} while the {event} is under way."),
    "wave-waits-for-return": _about(
        "It waits until {machines:list} is live again after the {event}; it stops after {seconds:span}.",
        many="It waits until {machines:list} are live again after the {event}; it stops after {seconds:span}.",
    ),
    "wave-waits-for-end": _about("It waits until the {event} has ended."),
    "wave-waits-for-azure": _about(
        "It waits for the {event}: NotBefore is past, and Azure may start it at any moment."
    ),
    "wave-waits-for-order": _about("It waits for the {event}, which is on its way to Azure."),
    "wave-summary": summary,
    "wave-kept": "{reason} But: {against}",
    "wave-stopped": "Wave {wave} stopped: {reason}",
    "wave-stopped-by": "{by} stopped it.{comment:quoted}",
    "wave-member-waits": "It waits.",
    "wave-member-turn": "It is its turn.",
    "wave-member-ahead": member_ahead,
    "wave-member-started": "Started.",
    "wave-member-left-to-azure": "Left to Azure: NotBefore is past.",
    "wave-member-on-its-way": "On its way to Azure.",
    "wave-member-not-back": "Ended. {machines:are} not back yet.",
    "wave-member-back": "{machines:?Ended, and its machines are live|Ended}.",
    "wave-member-left-out": lambda values, reader: f"Left out: {why_out(values)}.",
    "wave-of-one": "A wave takes at least two events that wait for a decision.",
    "wave-of-many": "A wave takes at most {most} events.",
    "wave-of-services": "The events of a wave belong to one service, or to one set.",
    "wave-already-decided": "One of these events is already approved.",
    "wave-unknown-event": "No machine has reported an event with the id {event_id}.",
    "wave-takes-no-drill": "A drill runs by itself: a wave takes real events only.",
    "wave-running-elsewhere": "Another wave is under way in this service. Wait until it is over.",
    "wave-running": "Wave {wave} is under way here. Wait for it, or stop it.",
    "wave-stands-in-the-way": in_the_way,
    "wave-waits-for-no-second": "{guard} A wave does not wait for a second person: propose this event by itself.",
    "wave-over": lambda values, reader: (
        f"The wave is over: {badge_of(WaveState(values['state'])).label.lower()}. {values['why']}"
    ),
    "unknown-wave": "There is no wave with this id.",
}


def began(row: TimelineRow, reader: Reader) -> str:
    events = "; ".join(event_named(event) for event in row.data["named"])
    count = len(row.data["named"])
    return f"{row.actor} began wave {row.data['wave']}, {count} events in turn: {events}.{quoted(row.why)}"


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.WAVE_BEGAN: began,
    EntryKind.WAVE_ENDED: "Wave {wave} is done: {reason}",
    EntryKind.WAVE_STOPPED: "Wave {wave} stopped: {reason}",
}
