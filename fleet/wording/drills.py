"""Wording of drills. No sentence claims that Azure knows a drill."""

from collections.abc import Mapping
from typing import Any

from fleet.domain.drills import Outcome
from fleet.domain.states import Presence
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.badges import badge_of
from fleet.wording.orders import refusal
from fleet.wording.sentences import EntryText, Sentence, listed
from fleet.wording.times import Reader

STEPS = {
    "began": "Began",
    "announced": "Announced",
    "decided": "Decided",
    "agreed": "Second person agreed",
    "sent": "Order sent",
    "accepted": "Accepted",
    "started": "Started",
    "ended": "Ended",
    "over": "Over",
    "told": "Told",
    "has-order": "Has the order",
    "gone": "Gone",
    "prepare-began": "Prepare hooks began",
    "prepare-ended": "Prepare hooks ended",
    "recover-began": "Recover hooks began",
    "recover-ended": "Recover hooks ended",
    "asked": "Asked to start it",
    "answered": "Answered",
}


def in_drill(text: str) -> str:
    """Return a timeline sentence marked as a drill, without Azure except in people's comments."""
    return f"Drill: {without_azure(text)}"


def without_azure(text: str) -> str:
    """Return the text with the rehearsal in the place of Azure. A quoted comment at the end is unchanged."""
    said, quote, comment = text.partition("“")
    said = said.replace("at Azure", "in the rehearsal")
    if said.startswith("Azure"):
        said = f"The rehearsal{said.removeprefix('Azure')}"
    return f"{said.replace('Azure', 'the rehearsal')}{quote}{comment}"


def went_round(values: Mapping[str, Any], reader: Reader) -> str:
    unheard = (
        f" The end of the recover hooks on {listed(values['unheard'])} was never heard." if values["unheard"] else ""
    )
    if values["approved"]:
        return f"It was approved, started and ended.{unheard}"
    return f"It was not approved in time: it started automatically at NotBefore.{unheard}"


def refused(values: Mapping[str, Any], reader: Reader) -> str:
    # No document lists the event of a drill: an agent that searches for it there does not support drills.
    too_old = values["reason"] == "not-listed"
    return "its agent is too old for drills" if too_old else refusal(values["reason"])


SENTENCES: dict[str, Sentence] = {
    "rehearsed": lambda values, reader: without_azure(values["said"]),
    "drill-left-out": lambda values, reader: (
        f"it was {badge_of(Presence(values['presence'])).label} when the drill began"
    ),
    "drill-refused": refused,
    "drill-unheard-of": "it had the order, and nothing more was heard of it",
    "drill-unreached": "the order never reached it",
    "drill-overtaken": "A real event was announced ({event_type:or of unknown type}): it has priority.",
    "drill-nobody-could": "No machine of the set could take part.",
    "drill-went-round": went_round,
    "drill-machine-saw-real": "A machine saw that Azure announced something real.",
    "drill-gone-before-start": "It was gone on every machine before it had started.",
    "drill-nobody-began": "No machine began to rehearse.",
    "drill-unheard": lambda values, reader: f"Nothing more was heard of {listed(values['machines']) or 'any machine'}.",
    "drill-stopped-by": "{by} stopped it.{comment:quoted}",
    "drill-over-before-answer": "The drill was over before the approval was answered.",
    "drill-step": lambda values, reader: STEPS[values["step"]],
    "drill-step-by": "by {by:or a rule}",
    "drill-step-to": "to {machine}",
    "drill-step-accepted": "by a rehearsal, not by Azure",
    "drill-next-over": "It is over. {reason}",
    "drill-next-telling": "The machines receive the drill: the event appears in the queue in a moment.",
    "drill-next-ended": "The event is over. The drill closes as soon as the recover hooks have ended.",
    "drill-next-started": "It has started, and ends automatically after {seconds} s.",
    "drill-next-second": "It is proposed: a second person has to agree, as with a real event.",
    "drill-next-watch": "It is approved: watch it start.",
    "drill-next-decide": "Decide now, as you would about a real event: on the event's page, or through the API.",
    "drill-of-no-set": "There is no such set.",
    "drill-of-no-type": "The type must be one of {types:list}.",
    "drill-out-of-bounds": "The {what} of a drill must be {least} to {most:,} seconds.",
    "drill-of-no-machine": "The set has no machine {machines:list}.",
    "drill-of-silent-machines": "{machines:list} cannot rehearse: only live machines can.",
    "drill-no-live-machine": "No machine of this set is live, so none could take part in a drill.",
    "drill-open": "A drill of this set is under way already.",
    "drill-over": "The drill is over already.",
    "real-event-open": "A real event of this set is open ({event_type:or of unknown type}): rehearse when it is over.",
    "unknown-drill": "There is no such drill.",
}


def ended(row: TimelineRow, reader: Reader) -> str:
    return f"Over: {badge_of(Outcome(row.data['outcome'])).label}. {row.data['reason']}"


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.DRILL_BEGAN: "{actor} began a drill of {set}: {type} for {machines:list}, not before"
    " {not_before:time}, with {live} machines.{why:quoted}",
    EntryKind.DRILL_STEP: "{machine} takes no part: {reason}.",
    EntryKind.DRILL_ENDED: ended,
}
