"""Texts about rules and no-approval windows, including their errors and dry runs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleet.domain.approvals.guards import ACCEPT_LABELS
from fleet.domain.policy.hours import WEEKDAYS
from fleet.domain.policy.rules import ACTION_LABELS, Action
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.sentences import EntryText, Sentence, fill
from fleet.wording.times import Reader

Values = Mapping[str, Any]

# Names of the choices of a rule or a route.
CHOICES = {
    "event_types": "event type",
    "sources": "source",
    "moments": "moment",
    "severities": "severity",
}
# Places to which a rule, a window or a route is limited.
PLACES = {"set_pattern": "sets named", "service": "the service", "resource_group": "the resource group"}


def rule(values: Values, reader: Reader) -> str:
    """Return a rule as one sentence."""
    types = values.get("event_types")
    parts = [f"{one_of(types)} events" if types else "every event", *conditions(values)]
    text = f"{ACTION_LABELS[Action(values['action'])]}: {', '.join(parts)}"
    if accepts := [said for code, said in ACCEPT_LABELS.items() if code in values.get("accepts", ())]:
        text += f"; even if {one_of(accepts)}"
    if "expires_at" in values:
        text += f"; until {times.at(values['expires_at'], reader)}"
    return f"{text}."


def conditions(values: Values) -> Iterator[str]:
    """Yield each condition of a rule or notification route (place, time, source) as part of a sentence."""
    if "sources" in values:
        yield f"with source {one_of(values['sources'])}"
    if duration := _limits(values, "duration"):
        unknown = ", or with unknown duration" if values.get("unknown_duration") else ""
        yield f"with an announced duration of {duration}{unknown}"
    for name, what in PLACES.items():
        if name in values:
            yield f"{'of' if name == 'service' else 'in'} {what} “{values[name]}”"
    if notice := _limits(values, "notice"):
        yield f"with {notice} left until NotBefore"
    if hours := _hours(values):
        yield f"on {hours}"


def window(values: Values, reader: Reader) -> str:
    """Return when and where a no-approval window applies, as the end of a sentence."""
    begin_end = (("from", "starts_at"), ("until", "ends_at"))
    when = [f"{word} {times.at(values[name], reader)}" for word, name in begin_end if name in values]
    where = [f"{what} “{values[name]}”" for name, what in PLACES.items() if name in values]
    return f"{' '.join(filter(None, [*when, _hours(values)]))}, for {', '.join(where) or 'every set'}"


def _hours(values: Values) -> str:
    """Return the hours of the week as text; empty if all hours are included."""
    days, start, end = values.get("weekdays"), values.get("from_time"), values.get("until_time")
    if not (days or start or end):
        return ""
    named = ", ".join(WEEKDAYS[day] for day in sorted(days)) if days else "every day"
    begins = (start or "00:00")[:5]
    return f"{named}, {f'{begins} to {end[:5]}' if end else f'from {begins}'} ({values.get('time_zone') or 'UTC'})"


def _limits(values: Values, what: str) -> str:
    least, most = values.get(f"min_{what}_seconds"), values.get(f"max_{what}_seconds")
    if least is not None and most is not None:
        return _span(most) if least == most else f"{_span(least)} to {_span(most)}"
    if least is not None:
        return f"at least {_span(least)}"
    return f"at most {_span(most)}" if most is not None else ""


def _span(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def one_of(words: Sequence[str]) -> str:
    """Return words joined with commas and `or`: `a`, `a or b`, or `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def dry_run(values: Values, reader: Reader) -> str:
    """Return the result of a dry run, such as `Would have approved 14 of 31.`"""
    if not values["considered"]:
        return "No event is stored for this time."
    return fill(
        "{hold:?Would have left {hold} of {considered} to Azure"
        "|{leave:?Would have left {leave} of {considered} to users"
        "|Would have approved {approved} of {considered}{later:?; {later} of them once other events were over}"
        "{approved:?; {agreed} of them {agreed:was/were} approved by a user}}}"
        "{guarded:?; {guarded} more match, but a guard would have left them to users}"
        "{earlier:?; {earlier} more would have been decided by earlier rules}.",
        {**values, "approved": values["approve"] + values["later"]},
        reader,
    )


SENTENCES: dict[str, Sentence] = {
    "rule": rule,
    "window": window,
    "rule-unknown": "There is no rule with this id.",
    "window-unknown": "There is no no-approval window with this id.",
    "stop-without-why": "Enter a reason: Drydock shows it to all users.",
    "stopped-already": "{by} stopped all approvals at {at:time} already.",
    "not-stopped": "Approvals are not stopped.",
    "rules-too-many": "There are {most} rules already: delete one that is no longer needed.",
    "rule-name-taken": "There is already a rule with this name.",
    "position-unknown": "The position is a number from 1 to {most}.",
    "field-unknown": "There is no such field.",
    "text-too-long": "The {what} is longer than {most:,} characters.",
    "accepts-without-approving": "Only a rule that approves can accept guards.",
    "choice-unknown": lambda values, reader: (
        f"There is no {CHOICES[values['field']]} “{values['chosen']}”: choose from {', '.join(values['known'])}."
    ),
    "limits-reversed": "The limits are reversed: the {what} cannot be {least} s or more and {most} s or less.",
    "expiry-past": "The expiry has passed: choose a time in the future, or none.",
    "window-once-and-weekly": "Enter either start and end, or weekly hours, not both.",
    "window-without-time": "Enter start and end, or weekly hours.",
    "window-end-past": "The end has passed: choose a time in the future.",
    "window-reversed": "The end must be after the start.",
    "dry-run": dry_run,
    "would-approve": "The rule would have approved the event{prepared:? when every machine was prepared|}.",
    "would-approve-later": "The rule would have approved the event later. {guard}",
    "would-hold": "The rule would have left the event to Azure.",
    "would-leave": "The rule would have left the event to users.",
    "would-be-guarded": "A guard blocked it: {guard}",
    "would-be-earlier": "The earlier rule “{rule}” would have decided the event.",
    "past-presence": "Drydock does not store earlier presence: all enrolled machines of the set count as live.",
    "past-preparation": "Drydock does not store earlier preparation: hooks count as neither running nor failed.",
    "past-fields": "Type, source, duration, NotBefore and Resources are the last known values, which may have changed"
    " during the event.",
    "past-arrangement": "Services, names, requirements of sets and other rules are the current ones.",
    "past-consequences": "The dry run does not change start and end of events: an earlier start would also have meant"
    " an earlier end.",
}


def rule_changed(row: TimelineRow, reader: Reader) -> str:
    after, name, wording = row.after or {}, f"the rule “{row.data['name']}”", row.data["wording"]
    parts = []
    if after.keys() - {"enabled", "position"}:
        parts.append(f"changed {name}: {wording}")
    if "enabled" in after:
        parts.append(f"switched {name} {'on' if after['enabled'] else 'off'}: {wording}")
    if "position" in after:
        parts.append(f"moved {name} to position {after['position']}.")
    return f"{row.actor} {' '.join(parts)}"


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.RULE_CREATED: "{actor} created the rule “{name}” ({after[enabled]:?switched on|off}): {wording}",
    EntryKind.RULE_CHANGED: rule_changed,
    EntryKind.RULE_DELETED: "{actor} deleted the rule “{name}”: {wording}",
    EntryKind.WINDOW_CREATED: "{actor} created the no-approval window “{name}”: {wording}. “{why}”",
    EntryKind.WINDOW_DELETED: "{actor} deleted the no-approval window “{name}”: {wording}.",
    EntryKind.APPROVALS_STOPPED: "{actor} stopped all approvals: Drydock sends no order.{why:quoted}",
    EntryKind.STOP_LIFTED: "{actor} allowed approvals again after the stop by {by}.{why:quoted}",
}
