"""Drydock's template tags and filters: `{% load drydock %}`."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

import lucide
from django.template import Library
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from fleet.dashboard.places import ADMIN, PLACES, place_of
from fleet.domain.event_types import event_type_of
from fleet.domain.people import Rights
from fleet.domain.reasons import Reason
from fleet.domain.sets import SetSource
from fleet.domain.states import Presence
from fleet.operations import clock
from fleet.projections.cards import DecisionCard
from fleet.projections.desk.queue import QueueGroup
from fleet.projections.events.rows import BlastRadius
from fleet.projections.timeline.entries import by_series
from fleet.wording import approvals, blind_spots, caches, events, machines, sets, timeline, times
from fleet.wording import say as wording
from fleet.wording.badges import STEP_BADGES, badge_of, state_of
from fleet.wording.card import card_words
from fleet.wording.desk import LISTS, RELAY_TITLES
from fleet.wording.times import Reader, page_reader

register = Library()

# Placeholder for unknown values.
DASH = "\N{EN DASH}"


# Tags that write markup: icons, states, times that the browser updates, and the navigation.

# Attributes that `.icon` in `drydock.css` sets for every icon, and the whitespace between paths: a long page has
# hundreds of icons.
SAID_BY_CSS = re.compile(
    r' (?:fill="none"|stroke="currentColor"|stroke-(?:width|linecap|linejoin)="\w+")|\n\s*| (?=/>)'
)


@register.simple_tag
@lru_cache(maxsize=1024)
def icon(name: str, size: int = 16, css: str = "") -> SafeString:
    """Return a decorative icon as SVG. It is hidden from screen readers, because the text next to it has the same
    meaning.
    """
    drawn = lucide._render_icon(name, size, **{"aria-hidden": "true", "class": f"icon {css}".strip()})
    # The names come from our own tables, and lucide escapes attributes.
    return mark_safe(SAID_BY_CSS.sub("", drawn))  # noqa: S308


@register.simple_tag
def posts(name: str, of: Any) -> SafeString:
    """Return the HTML attributes of a form in the decision panel. `name` is the URL name, `of` its argument. The form
    works with and without htmx.
    """
    address = reverse(name, args=(of,))
    return format_html('method="post" action="{0}" hx-post="{0}" hx-target="#decision" hx-swap="outerHTML"', address)


@register.simple_tag(takes_context=True)
def live(context: Any, part: str, address: str, every: int = 0, css: str = "", **scope: Any) -> SafeString:
    """Return the HTML attributes of a part that refreshes itself from `address`: after a change of an object in its
    `scope`, and every `every` seconds.

    The scope is an event, a set or a machine; without a scope, every change refreshes the part.
    """
    query = f"{context['query']}&" if context.get("query") else ""
    return format_html(
        'id="{}" class="{}" data-live="{}"{} hx-get="{}?{}part={}" hx-trigger="refresh" hx-swap="outerHTML"',
        part.replace("_", "-"),
        f"{css} region".strip(),
        " ".join(f"{kind}:{which}" for kind, which in scope.items()) or "any",
        format_html(' data-every="{}"', every) if every else "",
        address,
        query,
        part,
    )


@register.simple_tag
def type_icon(event_type: str, size: int = 18) -> SafeString:
    return icon(event_type_of(event_type).icon, size)


@register.simple_tag(takes_context=True)
def places(context: Any) -> dict[str, Any]:
    """Return the navigation of a page: the areas, the current area, and the tabs that the reader may open.

    `here` is the tab of this page, or of the list to which this page belongs.
    """
    request = context["request"]
    rights = getattr(request, "rights", Rights())
    name = request.resolver_match.url_name or "" if request.resolver_match else ""
    # Some pages belong to different lists at different times.
    area, tab = place_of(context.get("lies_behind") or name)
    return {
        "places": PLACES,
        "admin": ADMIN.tabs_for(rights),
        "area": area,
        "tab": tab,
        "here": "page" if tab and tab.address == name else "true",
        "tabs": area.tabs_for(rights) if area else (),
    }


@register.simple_tag
def chip(state: Any, css: str = "") -> SafeString:
    """Return the badge of a state (or of a row that has one): icon and word in the colour of its tone."""
    shown = badge_of(state)
    return format_html(
        '<span class="chip tone-{} {}" data-state="{}">{}<span>{}</span></span>',
        shown.tone,
        css,
        state_of(state),
        icon(shown.icon, 14),
        shown.label,
    )


@register.simple_tag
def presence_dot(presence: Presence | None, size: int = 14) -> SafeString:
    """Return only the icon of a presence, to be used next to the word."""
    if presence is None:
        return icon("circle-question-mark", size, "text-quiet")
    shown = badge_of(presence)
    return icon(shown.icon, size, f"tone-text-{shown.tone}")


@register.simple_tag(takes_context=True)
def moment(context: Any, at: datetime | None) -> SafeString:
    """Return the time in the reader's time zone, with the day unless it is today."""
    if at is None:
        return format_html('<span class="text-quiet">{}</span>', DASH)
    return format_html(
        '<time datetime="{}" class="moment">{}<span class="zone"> {}</span></time>',
        times.iso(at),
        times.clock(at, _now(context)),
        times.zone_name(at),
    )


@register.simple_tag(takes_context=True)
def clock_now(context: Any) -> str:
    """Return the current server time in the reader's time zone. The browser keeps it running."""
    return times.at_clock(_now(context))


@register.simple_tag(takes_context=True)
def since(context: Any, at: datetime | None) -> SafeString:
    """Return how long ago the time was, such as `5 min ago`. The browser keeps it up to date."""
    if at is None:
        return mark_safe('<span class="text-quiet">never</span>')
    now = _now(context)
    return format_html(
        '<time datetime="{0}" title="{1} {2}" data-since="{0}">{3}</time>',
        times.iso(at),
        times.clock(at, now),
        times.zone_name(at),
        times.ago((now - at).total_seconds()),
    )


@register.simple_tag(takes_context=True)
def age(context: Any, at: datetime) -> SafeString:
    """Return the time that has passed since then, such as `5 min`. The browser keeps it up to date."""
    return format_html(
        '<time datetime="{0}" data-since="{0}" data-age>{1}</time>',
        times.iso(at),
        times.age((_now(context) - at).total_seconds()),
    )


@register.simple_tag(takes_context=True)
def countdown(context: Any, at: datetime | None) -> SafeString:
    """Return the time that is left until then. The browser counts down by the server's clock."""
    if at is None:
        return mark_safe('<span class="countdown is-unknown">no time stated</span>')
    seconds = (at - _now(context)).total_seconds()
    level = "is-past" if seconds <= 0 else "is-short" if seconds < 120 else "is-near" if seconds < 600 else ""
    shown = times.span(seconds) if seconds > 0 else "due now"
    return format_html(
        '<span class="countdown {0}" data-countdown="{1}" role="timer">{2}</span>',
        level,
        times.iso(at),
        shown,
    )


@register.simple_tag(takes_context=True)
def time_left(context: Any, since: datetime, until: datetime | None) -> SafeString:
    """Return a bar of the time that is left of that from `since` to `until`. The browser shortens it."""
    if until is None:
        return mark_safe("")
    left = (until - _now(context)).total_seconds()
    return format_html(
        '<progress class="time-left" max="{}" value="{}" data-left="{}" aria-hidden="true"></progress>',
        max(1, round((until - since).total_seconds())),
        max(0, round(left)),
        times.iso(until),
    )


@register.simple_tag
def squares(blast: BlastRadius) -> SafeString:
    """Return a square for each machine of the set: affected, remaining live, or unavailable. The text follows it."""
    # Larger sets are shown as text only.
    if blast.total > 16:
        return mark_safe("")
    counts = {"hit": blast.hit, "up": blast.stay_up, "away": blast.total - blast.hit - blast.stay_up}
    kinds = [(kind,) for kind, count in counts.items() for _ in range(count)]
    marks = format_html_join("", '<i class="square square-{}"></i>', kinds)
    return format_html('<span class="squares" aria-hidden="true">{}</span>', marks)


@register.simple_tag
def closes(at: datetime | None) -> SafeString:
    """Return the HTML attribute of a button or box that the browser disables at this time, by the server's clock."""
    return format_html('data-closes="{}"', times.iso(at)) if at is not None else mark_safe("")


def _now(context: Any) -> datetime:
    return context.get("now") or clock.now()


def for_reader(word: Callable[[Any, Reader], Any]) -> Callable[[Any], Any]:
    """Return a template filter that calls `word` with a value and the reader of the page."""
    return lambda value: word(value, page_reader(clock.now()))


# Filters that only call a function or a table, by their names in templates.
FILTERS: Mapping[str, Callable[[Any], Any]] = {
    "archive_word": timeline.archive_word,
    "as_recorded": wording.is_as_recorded,
    "as_told": by_series,
    "changes": for_reader(timeline.changes),
    # The class of a line of a unified difference.
    "diff_tone": lambda line: {"+": "diff-new", "-": "diff-old", "@": "diff-place"}.get(line[:1], "diff-same"),
    # A fault or update domain; a dash where none is stated.
    "domain_name": lambda value: DASH if value is None else str(value),
    "duration": times.duration,
    # Facts about the event's type that apply to this event.
    "effect": events.effect_of,
    # The filters of a URL as readable text: `kind: scale_set, q: web`.
    "filters_said": lambda query: ", ".join(f"{name}: {value}" for name, value in parse_qsl(query)),
    "hit_heading": events.hit_heading,
    "impact": times.impact,
    # Effect of an inventory on a machine.
    "inventory_change": lambda code: machines.CHANGES.get(code, code),
    "iso": lambda at: times.iso(at) if at else "",
    "list_name": lambda page: LISTS.get(page, page),
    "look": badge_of,
    "named": lambda event: events.named(event.event_type, event.resources),
    # A clock's offset: `+0.2 s`.
    "offset": lambda seconds: DASH if seconds is None else f"{round(seconds, 1) + 0.0:+.1f} s",
    "platform": lambda name: machines.PLATFORMS[name],
    "relay_title": lambda health: RELAY_TITLES[health],
    "role": lambda is_replica: caches.ROLES[is_replica],
    "set_kind": lambda kind: sets.KINDS[kind],
    "set_source": lambda source: sets.SOURCES[SetSource(source)].label,
    "shared_advice": blind_spots.shared_advice,
    "signatures": lambda check: machines.SIGNATURES.get(check, DASH),
    # When an approval starts its event, such as `now`.
    "starts_when": for_reader(lambda row, reader: approvals.when_at(row.when, row.due_at, reader)),
    "step_look": lambda state: STEP_BADGES[state],
    "text": for_reader(wording.text_of),
    "told": for_reader(card_words),
    "type_words": event_type_of,
    "who_acted": wording.who_acted,
    "why_apart": for_reader(wording.why_apart),
}
for _name, _filter in FILTERS.items():
    register.filter(_name, _filter)


@register.filter
def service_url(name: str) -> str:
    """Return the URL of a service. A name of dots alone is passed as a parameter, because a URL path would lead to
    another page.
    """
    return reverse("service", args=[name]) if name.strip(".") else f"{reverse('service')}?{urlencode({'name': name})}"


@register.filter
def stated_set(said: str) -> str:
    """Return the words for a set that is written as `kind:name`."""
    kind, _, name = said.partition(":")
    return f"{sets.KINDS[kind]} {name}" if name else DASH


@register.filter
def say(reason: Reason | str | None) -> str:
    """Return a reason as a sentence for the reader of the page."""
    return wording.say(reason, page_reader(clock.now())) if reason else ""


@register.filter
def says(reasons: Iterable[Reason | str]) -> str:
    """Return several reasons as sentences in one line."""
    return "; ".join(say(reason) for reason in reasons)


@register.filter
def as_rule(card: DecisionCard) -> str:
    """Return the URL of the form for a rule that would make this decision automatically; empty if no rule could."""
    if not card.as_rule:
        return ""
    event_type, place = card.event.event_type, card.event.set.name
    why = card_words(card, page_reader(clock.now())).why
    stated = {**card.as_rule, "name": f"{event_type} in {card.as_rule.get('service', place)}", "reason": why}
    return f"{reverse('rule-new')}?{urlencode(stated, doseq=True)}"


@register.filter
def group_query(group: QueueGroup) -> str:
    """Return the URL query with which the list of events shows the events of this group."""
    times_of = {"has_not_before": "false"}
    if group.since is not None and group.until is not None:
        times_of = {"due_since": times.iso(group.since), "due_until": times.iso(group.until)}
    return urlencode({"needs_decision": "true", "drill": "false", "type": group.event_type, **times_of})
