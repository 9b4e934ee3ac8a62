"""Texts of reports: outcomes of events, names of months, headings of tables."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.template import Library
from django.utils.text import capfirst

from fleet.domain.history import Decided, Happened, Month
from fleet.domain.reasons import Reason
from fleet.domain.states import EndedAs
from fleet.domain.timeline import EntryKind
from fleet.projections.approvals import ApprovalRow
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.badges import BY_KIND
from fleet.wording.events import NOTHING_LOST, named
from fleet.wording.say import recorded, say, why_apart
from fleet.wording.sentences import EntryText, Sentence, quoted
from fleet.wording.times import API, Reader

DECIDED: dict[Decided, str] = {
    Decided.UNDER_WAY: "approved by {by}, and being sent to Azure",
    Decided.LAPSED: "approved by {by}, but too late: NotBefore passed before Azure accepted the approval",
    Decided.REFUSED: "approved by {by}, but Azure refused it on every machine",
    Decided.WITHDRAWN: "approved by {by}, and withdrawn",
    Decided.VOID: "approved by {by}, without effect",
    Decided.LEFT: "left to Azure by {by}",
    Decided.UNDECIDED: "not decided",
}
HAPPENED: dict[Happened, str] = {
    Happened.WAITS: "the event has not started yet",
    Happened.RUNS: "the event has started",
    Happened.RAN: "the event lasted {took}",
    Happened.CANCELLED: f"Azure cancelled the event before its start: {NOTHING_LOST}",
    Happened.MAYBE: "the event was cancelled, or started and ended between two polls",
    Happened.DELETED: "the event ended with the deletion of the machine",
    Happened.UNSEEN: "the end of the event was not observed",
}


def _decided(values: Mapping[str, Any]) -> str:
    how = Decided(values["decided"])
    if how is Decided.ACCEPTED:
        text = f"approved by {values['by']}"
        if values["lead"] is None:
            return text
        when = f"{times.duration(abs(values['lead']))} {'before' if values['lead'] >= 0 else 'after'} NotBefore"
        return f"{text} and accepted by Azure {when}"
    if how is Decided.UNDECIDED and values["elsewhere"]:
        return "approved elsewhere"
    return DECIDED[how].format(by=values["by"])


def verdict(values: Mapping[str, Any], reader: Reader) -> str:
    """Return the outcome of an event as a sentence, for example `Freeze of vm1 in web: announced 15 min ahead, approved
    by otto …, and it ran for 1 min.`
    """
    head = f"{named(values['event_type'], values['resources'])} in {values['set']}"
    notice = values["notice"]
    given = "first seen when it had started" if notice is None else f"announced {times.duration(notice)} ahead"
    then = HAPPENED[Happened(values["happened"])].format(took=times.duration(values["took"]))
    inferred = " (inferred)" if values["inferred"] and values["happened"] != Happened.UNSEEN else ""
    text = f"{head}: {given}, {_decided(values)}, and {then}{inferred}."
    return f"A drill. {text}" if values["drill"] else text


# Filters of the Markdown report of an event: `{% load audit %}`. Times are in UTC.
register = Library()
register.filter(recorded)
# Characters with a meaning in Markdown, or in HTML within it.
MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


@register.filter
def plain(value: Reason | datetime | str | None) -> str:
    """Return a reason, a time or a text as one line that Markdown shows literally."""
    if value is None or isinstance(value, datetime):
        return times.at(value, API) if value else "none"
    return MARKUP.sub(r"\\\1", " ".join(say(value, API).split()))


@register.filter
def fenced(text: str | Sequence[str], kind: str) -> str:
    """Return a Markdown code block with this text, or with these lines. The text cannot end the block."""
    text = text if isinstance(text, str) else "\n".join(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


@register.filter
def reason_apart(row: TimelineRow) -> str:
    return why_apart(row, API)


@register.filter
def steps_done(approval: ApprovalRow) -> str:
    """Return the steps that an approval has reached, with their times, and how it ended."""
    steps = "; ".join(f"{plain(step.label)} {plain(step.at)}" for step in approval.steps if step.at)
    return f"{steps}. {plain(approval.reason)}".removesuffix(" ")


def month_named(month: Month) -> str:
    """Return the name of a month, for example `November 2026`."""
    return f"{month.begin:%B} {month.year}"


# Labels of the fields of the audit's search form, by parameter.
FILTER_LABELS = {
    "q": "Search",
    "person": "User",
    "via": "Interface",
    "kind": "Action",
    "event": "Event",
    "since": "Since",
    "until": "Until",
}
# Labels of the codes in the tables of a month's report; types of events are their own labels.
CODES = {
    "other": "Other types",
    "open": "Still open",
    "users": "Users",
    "rules": "Rules",
    "user-approved": "Approved by a user",
    "rule-approved": "Approved by a rule",
    "user-left": "Left to Azure by a user",
    "rule-left": "Left to Azure by a rule",
    "elsewhere": "Approved elsewhere",
    "undecided": "Not decided",
    **{how.value: capfirst(badge.label) for how, badge in BY_KIND[EndedAs].items()},
}


# Titles of the tables of counts of a month, and the first column of each in its file.
COUNTS = {"days": "Events by day", "times": "Time to a decision", "decisions": "Decisions and outcomes"}
FIRST_COLUMNS = {"days": "day", "times": "time_from_seconds", "decisions": "decision"}


def class_named(begin: str, end: str | None) -> str:
    """Return the label of a class of durations in seconds, for example `10 s to 30 s`."""
    first = times.duration(int(begin))
    return f"{first} to {times.duration(int(end))}" if end else f"{first} or more"


DECIDER_COLUMNS = (
    "approvals", "median_seconds_to_decision", "slowest_seconds_to_decision", "confirmed", "lapsed", "refused",
    "withdrawn", "left_to_azure",
)  # fmt: skip
# Columns of each file of a month's report, by table.
COLUMNS: dict[str, tuple[str, ...]] = {
    "events": (
        "event_id", "event_type", "set_id", "set", "resources", "source", "status", "ended_as", "first_seen_at",
        "not_before", "notice_seconds", "expected_notice_seconds", "decided_by", "decided_at",
        "seconds_to_decision", "approval_state", "accepted_at", "started_at", "ended_at", "approved_elsewhere",
    ),
    "notice": (
        "event_type", "region", "events", "expected_notice_seconds", "least_seconds", "median_seconds",
        "most_seconds", "shorter_than_expected", "without_notice",
    ),
    "people": ("person", *DECIDER_COLUMNS),
    "rules": ("rule", *DECIDER_COLUMNS),
}  # fmt: skip

# Lines of a handover that was sent: the parts, and who handles or decided an event.
HANDOVER_PARTS = {"due": "Due", "open": "Open", "missed": "Not decided in time"}
HANDOVER_STATES = {"claimed": "claimed by", "left": "left to Azure by", "approved": "approved by"}


def handover_event(values: Mapping[str, Any], reader: Reader) -> str:
    """Return an event of a handover, such as `Due: Freeze of vm1 in web, NotBefore 14:32, claimed by otto.`"""
    what = f"{HANDOVER_PARTS[values['part']]}: {named(values['event_type'], values['resources'])} in {values['set']}"
    when = f", NotBefore {times.at(values['at'], reader)}" if values["at"] else ""
    return f"{what}{when}, {', '.join(values['state']) or 'unclaimed'}."


def handover_decision(values: Mapping[str, Any], reader: Reader) -> str:
    what = f"{values['event_type'] or 'event'}{' in ' + values['set'] if values['set'] else ''}"
    return f"{values['kind']} by {values['by']}: {what}.{quoted(values['why'])}"


SENTENCES: dict[str, Sentence] = {
    "event-verdict": verdict,
    "handover-event": handover_event,
    "handover-by": lambda values, reader: f"{HANDOVER_STATES[values['did']]} {values['by']}",
    "handover-decision": handover_decision,
    "handover-comment": "“{why}”",
    "handover-unknown": "No handover of the last days has this number.",
    "handover-own": "You sent this handover: a user of the next shift confirms it.",
}

ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.HANDOVER_SENT: (
        "{actor} handed over {since:time} to {until:time}: {open} open, {due} due in 12 h, {decided} decisions,"
        " {missed} missed{more:?, counted up to 100|}."
    ),
    EntryKind.HANDOVER_CONFIRMED: "{actor} confirmed the handover of {by} up to {until:time}.",
    EntryKind.HANDOVER_READ: "{actor} has read what changed until {until:time}.",
}
