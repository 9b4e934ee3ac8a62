"""Where the tags and filters of the templates are registered."""

import re
from datetime import datetime
from functools import lru_cache
from typing import Any

import lucide
from django.template import Library
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from fleet.dashboard.places import ADMIN, PLACES, area_of
from fleet.domain.event_types import event_type_of
from fleet.domain.people import Rights
from fleet.domain.states import Presence
from fleet.operations import clock
from fleet.wording import times
from fleet.wording.badges import badge_of, state_of

register = Library()

# Where nothing is known.
DASH = "\N{EN DASH}"


# Tags that write markup: icons, states, times that the browser keeps going, and the navigation.

# What `.icon` says of every icon in `drydock.css`, and the lines between paths: a long page has hundreds of icons.
SAID_BY_CSS = re.compile(
    r' (?:fill="none"|stroke="currentColor"|stroke-(?:width|linecap|linejoin)="\w+")|\n\s*| (?=/>)'
)


@register.simple_tag
@lru_cache(maxsize=1024)
def icon(name: str, size: int = 16, css: str = "") -> SafeString:
    """A decorative icon; the text beside it says the same."""
    drawn = lucide._render_icon(name, size, **{"aria-hidden": "true", "class": f"icon {css}".strip()})
    # The names come from our own tables, and lucide escapes attributes.
    return mark_safe(SAID_BY_CSS.sub("", drawn))  # noqa: S308


@register.simple_tag
def posts(name: str, of: Any) -> SafeString:
    """The attributes of a form of the decision panel: plain, and with htmx in its place."""
    address = reverse(name, args=(of,))
    return format_html('method="post" action="{0}" hx-post="{0}" hx-target="#decision" hx-swap="outerHTML"', address)


@register.simple_tag(takes_context=True)
def live(context: Any, part: str, address: str, every: int = 0, css: str = "", **scope: Any) -> SafeString:
    """The attributes of a part that keeps itself new: asked for again when something in its `scope` (an event, a set, a
    machine; without any of them anything at all) has changed, and `every` so many seconds.
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
    """The navigation around a page: the four places, which of them it stands in, and the tabs there for its reader.
    `here` is how the page's own tab is marked: it is this page, or the list to which this page belongs.
    """
    request = context["request"]
    rights = getattr(request, "rights", Rights())
    name = request.resolver_match.url_name or "" if request.resolver_match else ""
    # Some pages lie behind one list today and behind another tomorrow.
    behind = context.get("lies_behind") or name
    area = area_of(behind)
    tab = area.tab_of(behind) if area else None
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
    """A state, or a row that has one, as icon and word in its tone."""
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
    """The shape alone, for places where the word stands beside it."""
    if presence is None:
        return icon("circle-question-mark", size, "text-quiet")
    shown = badge_of(presence)
    return icon(shown.icon, size, f"tone-text-{shown.tone}")


@register.simple_tag(takes_context=True)
def moment(context: Any, at: datetime | None) -> SafeString:
    """The absolute time in the reader's time zone; the day only where it is not today."""
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
    """The server's clock in the reader's time zone; the browser keeps it going."""
    return times.at_clock(_now(context))


@register.simple_tag(takes_context=True)
def since(context: Any, at: datetime | None) -> SafeString:
    """How long ago; the browser keeps it going."""
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
def countdown(context: Any, at: datetime | None) -> SafeString:
    """The time left; the browser keeps it going by the server's clock."""
    if at is None:
        return mark_safe('<span class="countdown is-unknown">no time stated</span>')
    seconds = (at - _now(context)).total_seconds()
    level = "is-past" if seconds <= 0 else "is-short" if seconds < 120 else "is-near" if seconds < 600 else ""
    shown = times.span(seconds) if seconds > 0 else "due now"
    return format_html(
        '<time class="countdown {0}" datetime="{1}" data-countdown="{1}" role="timer">{2}</time>',
        level,
        times.iso(at),
        shown,
    )


def _now(context: Any) -> datetime:
    return context.get("now") or clock.now()
