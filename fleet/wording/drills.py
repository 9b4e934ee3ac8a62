"""Texts of drills. They never state that Azure knows about a drill."""

from fleet.domain.timeline import EntryKind
from fleet.wording.orders import refusal
from fleet.wording.sentences import EntryText, Sentence

STEPS = {
    "began": "Drill started",
    "announced": "Announced",
    "decided": "Decided",
    "agreed": "Second person agreed",
    "sent": "Order sent",
    "accepted": "Accepted",
    "started": "Event started",
    "ended": "Event ended",
    "over": "Drill over",
    "told": "Drill received",
    "has-order": "Order received",
    "gone": "Event ended",
    "prepare-began": "Prepare hooks began",
    "prepare-ended": "Prepare hooks ended",
    "recover-began": "Recover hooks began",
    "recover-ended": "Recover hooks ended",
    "asked": "Start requested",
    "answered": "Start confirmed",
}


def in_drill(text: str) -> str:
    """Return a timeline sentence marked as a drill. Azure is not mentioned, except in a user's comment."""
    return f"Drill: {without_azure(text)}"


def without_azure(text: str) -> str:
    """Return the text with the word for Azure replaced by that for the rehearsal. A quoted comment at the end is
    unchanged.
    """
    said, quote, comment = text.partition("“")
    said = said.replace("at Azure", "in the rehearsal")
    if said.startswith("Azure"):
        said = f"The rehearsal{said.removeprefix('Azure')}"
    return f"{said.replace('Azure', 'the rehearsal')}{quote}{comment}"


SENTENCES: dict[str, Sentence] = {
    "rehearsed": lambda values, reader: without_azure(values["said"]),
    "drill-left-out": "its agent was {presence:Presence} when the drill started",
    # No document lists the event of a drill: an agent that searches for it there does not support drills.
    "drill-refused": lambda values, reader: (
        "the agent is too old for drills" if values["reason"] == "not-listed" else refusal(values["reason"])
    ),
    "drill-unheard-of": "its agent received the order and reported nothing more",
    "drill-unreached": "its agent did not receive the order",
    "drill-overtaken": "Azure announced a real event ({event_type:or of unknown type}), which has priority.",
    "drill-nobody-could": "No machine of the set could take part.",
    "drill-went-round": "The event was {approved:?approved, started and ended|not approved in time and started at"
    " NotBefore}.{unheard:? {unheard:list} did not report the end of the recover hooks.}",
    "drill-machine-saw-real": "A machine reported a real event.",
    "drill-gone-before-start": "The event disappeared on every machine before its start.",
    "drill-nobody-began": "No machine started the drill.",
    "drill-unheard": "No further report from {machines:?{machines:list}|any machine}.",
    "drill-stopped-by": "{by} stopped the drill.{comment:quoted}",
    "drill-over-before-answer": "The drill was over before the approval was answered.",
    "drill-step": lambda values, reader: STEPS[values["step"]],
    "drill-step-by": "by {by:or a rule}",
    "drill-step-to": "to {machine}",
    "drill-step-accepted": "by the agent, not by Azure",
    "drill-next-over": "The drill is over. {reason}",
    "drill-next-telling": "The machines receive the drill. The event appears in the queue in a few seconds.",
    "drill-next-ended": "The event is over. The drill closes as soon as the recover hooks have ended.",
    "drill-next-started": "The event has started and ends automatically after {seconds} s.",
    "drill-next-second": "The event is proposed: a second person has to agree, as for a real event.",
    "drill-next-watch": "The event is approved and starts soon.",
    "drill-next-decide": "Decide now, as for a real event: on the page of the event or with the API.",
    "drill-of-no-set": "There is no such set.",
    "drill-of-no-type": "The type must be one of {types:list}.",
    "drill-out-of-bounds": "The {what} of a drill must be {least} to {most:,} seconds.",
    "drill-of-no-machine": "The set has no machine {machines:list}.",
    "drill-of-silent-machines": "{machines:list} cannot take part: only live machines can.",
    "drill-no-live-machine": "No machine of this set is live. A drill needs a live machine.",
    "drill-open": "A drill of this set is under way already.",
    "drill-over": "The drill is over already.",
    "real-event-open": "A real event of this set is open ({event_type:or of unknown type}): wait until it is over.",
    "unknown-drill": "There is no such drill.",
}


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.DRILL_BEGAN: "{actor} started a drill in {set}: {type} for {machines:list}, not before"
    " {not_before:time}, with {live} machines.{why:quoted}",
    EntryKind.DRILL_STEP: "{machine} does not take part: {reason}.",
    EntryKind.DRILL_ENDED: "Result: {outcome:Outcome}. {reason}",
}
