"""Filters that word what templates show: each asks `fleet.wording`."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.urls import reverse

from fleet.dashboard.tags.markup import DASH, register
from fleet.domain.event_types import EventType, event_type_of
from fleet.domain.reasons import Reason
from fleet.domain.sets import SetSource
from fleet.domain.states import EndedAs
from fleet.operations import clock
from fleet.projections.approvals import ApprovalRow
from fleet.projections.cards import DecisionCard
from fleet.projections.desk.queue import QueueGroup
from fleet.projections.events.rows import EventRow
from fleet.projections.timeline.entries import TimelineRow, Told, by_series
from fleet.wording import approvals, caches, events, machines, sets, timeline, times
from fleet.wording import say as wording
from fleet.wording.badges import STEP_BADGES, Badge, badge_of
from fleet.wording.card import CardWords, card_words
from fleet.wording.desk import LISTS
from fleet.wording.times import page_reader


@register.filter
def list_name(page: str) -> str:
    """What a list is called of which views are kept."""
    return LISTS.get(page, page)


@register.filter
def filters_said(query: str) -> str:
    """The filters in an address, to be read: `kind: scale_set, q: web`."""
    return ", ".join(f"{name}: {value}" for name, value in parse_qsl(query))


register.filter("type_words", event_type_of)


@register.filter
def effect(event: EventRow) -> EventType:
    """The same, as far as it is true of this event."""
    return events.effect_of(event)


@register.filter
def hit_heading(event: EventRow) -> str:
    """The heading above the machines that an event names."""
    return events.hit_heading(event)


@register.filter
def look(state: Any) -> Badge:
    """How a state is shown: label, tone, icon."""
    return badge_of(state)


@register.filter
def step_look(state: str) -> Badge:
    return STEP_BADGES[state]


@register.filter
def duration(seconds: float | None) -> str:
    return times.duration(seconds)


@register.filter
def impact(seconds: int | None) -> str:
    return times.impact(seconds)


@register.filter
def iso(at: datetime | None) -> str:
    return times.iso(at) if at else ""


@register.filter
def ended_as_named(how: str) -> str:
    """How an event ended, as a word."""
    return badge_of(EndedAs(how)).label


@register.filter
def service_url(name: str) -> str:
    """A name of dots alone would lead upwards in an address."""
    return reverse("service", args=[name]) if name.strip(".") else f"{reverse('service')}?{urlencode({'name': name})}"


@register.filter
def domain_name(value: int | None) -> str:
    """A fault or update domain; a dash where none is stated."""
    return DASH if value is None else str(value)


@register.filter
def role(is_replica: bool | None) -> str:
    """A cache node's role; empty where nobody stated it."""
    return caches.ROLES[is_replica]


@register.filter
def diff_tone(line: str) -> str:
    """The class of a line of a unified difference."""
    return {"+": "diff-new", "-": "diff-old", "@": "diff-place"}.get(line[:1], "diff-same")


@register.filter
def offset(seconds: float | None) -> str:
    """A clock's offset: `+0.2 s`."""
    return DASH if seconds is None else f"{round(seconds, 1) + 0.0:+.1f} s"


@register.filter
def set_kind(kind: str) -> str:
    """What a kind of set is called."""
    return sets.KINDS[kind]


@register.filter
def set_source(source: str) -> str:
    """Who says which set a machine is in."""
    return sets.SOURCES[SetSource(source)].label


@register.filter
def platform(name: str) -> tuple[str, str]:
    """What a line that installs the agent is for, and what to know beside it."""
    return machines.PLATFORMS[name]


@register.filter
def inventory_change(code: str) -> str:
    """What an inventory does to a machine, in a word."""
    return machines.CHANGES[code]


@register.filter
def stated_set(said: str) -> str:
    """A set that is stated as `kind:name`, as people say it."""
    kind, _, name = said.partition(":")
    return f"{sets.KINDS[kind]} {name}" if name else DASH


@register.filter
def archive_word(code: str) -> str:
    return timeline.archive_word(code)


@register.filter
def signatures(check: str) -> str:
    """What an agent does about signatures of orders."""
    return machines.SIGNATURES.get(check, DASH)


@register.filter
def say(reason: Reason | str | None) -> str:
    """A reason as a sentence for the person who reads the page."""
    return wording.say(reason, page_reader(clock.now())) if reason else ""


@register.filter
def starts_when(approval: ApprovalRow) -> str:
    """When an approval starts its event: `now`."""
    return approvals.when_at(approval.when, approval.due_at, page_reader(clock.now()))


@register.filter
def told(card: DecisionCard) -> CardWords:
    """The decision card in sentences."""
    return card_words(card, page_reader(clock.now()))


@register.filter
def as_rule(card: DecisionCard) -> str:
    """The address of a new rule that would decide so by itself; empty where none could."""
    if not card.as_rule:
        return ""
    words = told(card)
    event_type, place = card.event.event_type, card.event.set.name
    stated = {**card.as_rule, "name": f"{event_type} in {card.as_rule.get('service', place)}", "reason": words.why}
    return f"{reverse('rule-new')}?{urlencode(stated, doseq=True)}"


@register.filter
def group_query(group: QueueGroup) -> str:
    """The filter of the list of events that shows what stands in a group of the queue."""
    times_of = {"has_not_before": "false"}
    if group.since is not None and group.until is not None:
        times_of = {"due_since": times.iso(group.since), "due_until": times.iso(group.until)}
    return urlencode({"needs_decision": "true", "drill": "false", "type": group.event_type, **times_of})


@register.filter
def named(event: EventRow) -> str:
    """What people call an event: `Reboot of vm1`."""
    return events.named(event.event_type, event.resources)


@register.filter
def says(reasons: Iterable[Reason | str]) -> str:
    """Several in one line."""
    return "; ".join(say(reason) for reason in reasons)


@register.filter
def text(row: TimelineRow) -> str:
    """What an entry of the timeline tells."""
    return wording.text_of(row, page_reader(clock.now()))


@register.filter
def as_told(rows: Iterable[TimelineRow]) -> list[Told]:
    """Rows of a timeline with a series in one line."""
    return by_series(rows)


@register.filter
def who_acted(row: TimelineRow) -> str:
    """The actor of an entry, a machine as a machine."""
    return wording.who_acted(row)


@register.filter
def changes(row: TimelineRow) -> tuple[timeline.Change, ...]:
    """What an act changed, field by field."""
    return timeline.changes(row, page_reader(clock.now()))


@register.filter
def as_recorded(row: TimelineRow) -> bool:
    """Whether an entry shows the sentence that was written with it."""
    return wording.is_as_recorded(row)


@register.filter
def why_apart(row: TimelineRow) -> str:
    """The reason that was given, where the text does not hold it already."""
    return wording.why_apart(row, page_reader(clock.now()))
