"""Texts about events: known effects of event types, unusual values, and timeline entries."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fleet.domain.event_types import EventType, event_type_of
from fleet.domain.history import Happened, happened
from fleet.domain.states import Certainty, EndedAs
from fleet.domain.timeline import EntryKind
from fleet.projections.events.rows import EventRow
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.badges import badge_of
from fleet.wording.sentences import EntryText, Sentence, counted, some
from fleet.wording.times import Reader

NOTHING_LOST = "no machine was affected and nothing was lost"
# No start was observed, so the effect of the type is uncertain.
UNSEEN_STARTS = (Happened.MAYBE, Happened.UNSEEN)


def outcome_of(event: EventRow) -> Happened:
    """Return what Azure did with an event, as far as it was observed."""
    return happened(event.status, started=event.started_at is not None, ended_as=event.ended_as)


def effect_of(event: EventRow) -> EventType:
    """Return the facts about the event's type, limited to those that apply to this event: a cancelled event had no
    effect.
    """
    known, outcome = event_type_of(event.event_type), outcome_of(event)
    inferred = " (inferred)" if event.certainty is Certainty.INFERRED else ""
    if event.drill and not event.open:
        return replace(known, effect=f"A drill: {NOTHING_LOST}.", lost="")
    if outcome is Happened.CANCELLED:
        return replace(known, effect=f"Azure cancelled it{inferred}: {NOTHING_LOST}.", lost="")
    if outcome in UNSEEN_STARTS:
        return replace(known, effect=f"No machine saw the start. Effect of a start: {known.effect}", lost="")
    return known


def hit_heading(event: EventRow) -> str:
    """Return the heading above the list of machines that an event names."""
    outcome = outcome_of(event)
    if outcome is Happened.CANCELLED or (event.drill and not event.open):
        return "Machines that would have been affected"
    if outcome in UNSEEN_STARTS:
        return "Machines that may have been affected"
    return "Affected machines" if event.open else "Machines that were affected"


def named(event_type: str, resources: Sequence[str]) -> str:
    """Return the name of an event, such as `Reboot of vm1` or `Freeze of vm1, vm2 and 3 more`."""
    return f"{event_type or 'Event'} of {some(resources, 3) or 'no named machine'}"


def _blast(values: Mapping[str, Any], reader: Reader) -> str:
    if not values["total"]:
        return "no machine of the set is known"
    needs = values.get("min_live")
    required = f" (minimum {needs})" if needs is not None else ""
    stay = "stays" if 1 in (values["stay_up"], values["total"]) else "stay"
    return f"{values['stay_up']} of {counted(values['total'], 'machine')} {stay} live{required}"


SENTENCES: dict[str, Sentence] = {
    "version-moved": "The event changed after it was loaded.",
    "advice-own-event": "A user in your organisation requested this event. It waits for an approval or NotBefore, like"
    " every event. Microsoft advises approving such events at once.",
    "advice-hardware-fails": "Announced days ahead: the host's hardware is predicted to fail. Microsoft advises"
    " redeploying the machine yourself as soon as possible, before it fails.",
    "advice-spot-rebalance": "Azure recommends moving the load off this spot machine: it may be evicted soon. There is"
    " nothing to approve.",
    "advice-starts-nothing": "Nothing: this is advice, and Azure starts nothing.",
    "event-over": "Nothing: the event is over.",
    "event-runs": "The event ends automatically. Until then there may be further, shorter impacts.",
    "starts-any-moment": "Azure may start the event at any moment: it stated no NotBefore.",
    "drill-starts": "The drill starts at {at:time}. Azure is not involved.",
    "starts-overdue": "Azure may start the event at any moment: NotBefore was {at:time}.",
    "starts-after": "Azure starts the event after {at:time}.{watched:?| No live agent lists the event, so Drydock may"
    " not see the start.}",
    "no-resources": "Azure names no machine in Resources.",
    "unknown-resources": "No agent of this set is known for {names:list}.",
    "spans-update-domains": "The event names machines of the update domains {domains:list}"
    "{unknown:? and machines whose update domain is unknown}; Azure documents one domain at a time. Check which"
    " machines it affects before you approve it.",
    "blast-radius": _blast,
    "seen-by": "seen by {seen} of {total}{not_seen_by:?, not by {not_seen_by:some 3}}",
    "sighting-gone": "no longer listed",
    "sighting-listed": "listed",
    "differs-in-type": "type {event_type}",
    "differs-in-time": "NotBefore {not_before:time}",
    "differs-in-resources": "Resources {resources:commas}",
}
# Names of an event's fields, if they are not the field's own.
LABELS = {"not_before": "NotBefore", "resources": "Resources", "event_type": "type", "duration_seconds": "duration"}


def changed_values(changes: Iterable[tuple[str, Any, Any]], reader: Reader) -> str:
    """Return the changed fields of an event as text, such as `type from Freeze to Reboot; source from …`. `changes` are
    (field, before, after).
    """

    def shown(field: str, value: Any) -> str:
        if field == "resources":
            return ", ".join(value or ()) or "none"
        if value in (None, ""):
            return "not stated"
        return times.at(value, reader) if field == "not_before" else str(value)

    return "; ".join(
        f"{LABELS.get(field, field)} from {shown(field, old)} to {shown(field, new)}" for field, old, new in changes
    )


def _changed(row: TimelineRow, reader: Reader) -> str:
    changes = ((field, *values) for field, values in row.data["changes"].items())
    return f"Azure changed {changed_values(changes, reader)}."


def _ended(row: TimelineRow, reader: Reader) -> str:
    label = badge_of(EndedAs(row.data["ended_as"] or EndedAs.UNKNOWN)).label
    return f"Ended: {label}." if row.data.get("certainty") == "seen" else f"Ended: {label} (inferred)."


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.EVENT_SEEN: "{event_type:or An event of unknown type} for {resources:?{resources:commas}|no named"
    " machine}{not_before:?, not before {not_before:time}}; first seen by machine {by}.",
    EntryKind.EVENT_SIGHTED: "Seen by {names:?{names:list}|a machine of another set}.",
    EntryKind.EVENT_CHANGED: _changed,
    EntryKind.EVENT_STARTED: "Started for {resources:?{resources:commas}|no named machine}{approved_elsewhere:? before"
    " NotBefore, without an approval by Drydock}.",
    EntryKind.EVENT_ENDED: _ended,
    EntryKind.EVENT_REOPENED: "A newer document lists the event again, so it is open again.",
    EntryKind.EVENT_UNWATCHED: "No live agent lists the event any more, so Drydock may miss its start and end.",
    EntryKind.EVENT_WATCHED: "A live agent lists the event again.",
    EntryKind.FOREIGN_SIGHTING: "Machine {name} of another set lists this event. Its report does not count.",
}
