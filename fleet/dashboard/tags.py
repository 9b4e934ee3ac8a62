"""Template tags: times, states and icons. `{% load drydock %}`."""

from datetime import datetime
from typing import Any

import lucide
from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from fleet.dashboard import words
from fleet.dashboard.standing import Standing, standing_of
from fleet.domain.blind_spots import Certainty
from fleet.domain.states import LOOKS, Look, Presence
from fleet.projections.events import EventDetail

register = template.Library()

DASH = "\N{EN DASH}"

TYPE_ICONS = {
    "Freeze": "snowflake",
    "Reboot": "rotate-cw",
    "Redeploy": "truck",
    "Preempt": "zap",
    "Terminate": "trash-2",
}
STEP_LOOKS = {
    "done": Look("done", "good", "circle-check"),
    "now": Look("in progress", "busy", "loader-circle"),
    "overdue": Look("overdue", "bad", "clock-alert"),
    "failed": Look("did not happen", "bad", "circle-x"),
    "ahead": Look("ahead", "quiet", "circle-dashed"),
}
CERTAINTY_LOOKS = {
    Certainty.CERTAIN: Look("certain", "bad", "circle-alert"),
    Certainty.LIKELY: Look("likely", "due", "triangle-alert"),
    Certainty.POSSIBLE: Look("possible", "calm", "circle-question-mark"),
    Certainty.UNKNOWN: Look("cannot be told from here", "quiet", "circle-dashed"),
}

# By `fleet.projections.dry_run.Would`.
WOULD_LOOKS = {
    "approve": Look("approve", "good", "gavel"),
    "later": Look("approve later", "busy", "hourglass"),
    "hold": Look("hold", "due", "circle-pause"),
    "leave": Look("leave to people", "calm", "users"),
    "guarded": Look("left by a guard", "due", "shield-alert"),
    "earlier": Look("an earlier rule", "quiet", "list-ordered"),
}


@register.simple_tag
def icon(name: str, size: int = 16, css: str = "") -> SafeString:
    """A decorative icon; the text beside it says the same."""
    extra = {"aria-hidden": "true", "focusable": "false", "class": f"icon {css}".strip()}
    # The names come from our own tables, and lucide escapes attributes.
    return mark_safe(lucide._render_icon(name, size, **extra))  # noqa: S308


@register.simple_tag(takes_context=True)
def standing(context: Any, detail: EventDetail) -> Standing:
    """What the person who looks may do about this event."""
    return standing_of(context["request"].user, detail, refusal=context.get("refusal"), sent=context.get("sent"))


@register.simple_tag
def type_icon(event_type: str, size: int = 18) -> SafeString:
    return icon(TYPE_ICONS.get(event_type, "circle-alert"), size)


@register.filter
def look(state: Any) -> Look:
    """How a state is shown: label, tone, icon."""
    return LOOKS[state]


@register.filter
def step_look(state: str) -> Look:
    return STEP_LOOKS[state]


@register.simple_tag
def chip(state: Any, css: str = "") -> SafeString:
    """A state as icon and word in its tone."""
    return _chip(LOOKS[state], css)


def _chip(shown: Look, css: str = "") -> SafeString:
    return format_html(
        '<span class="chip tone-{} {}">{}<span>{}</span></span>', shown.tone, css, icon(shown.icon, 14), shown.label
    )


@register.simple_tag
def look_chip(shown: Look) -> SafeString:
    return _chip(shown)


@register.simple_tag
def certainty(sure: Certainty) -> SafeString:
    """How sure a blind spot is."""
    return _chip(CERTAINTY_LOOKS[sure])


@register.simple_tag
def would(done: str) -> SafeString:
    """What a rule would have done about a past event."""
    return _chip(WOULD_LOOKS[done])


@register.simple_tag
def presence_dot(presence: Presence | None, size: int = 14) -> SafeString:
    """The shape alone, for places where the word stands beside it."""
    if presence is None:
        return icon("circle-question-mark", size, "text-quiet")
    shown = LOOKS[presence]
    return icon(shown.icon, size, f"tone-text-{shown.tone}")


@register.simple_tag
def moment(at: datetime | None, now: datetime | None = None) -> SafeString:
    """The absolute time in the reader's time zone; the day only where it is not today."""
    if at is None:
        return format_html('<span class="text-quiet">{}</span>', DASH)
    shown = words.clock(at, now or timezone.now())
    return format_html(
        '<time datetime="{}" class="moment">{}<span class="zone"> {}</span></time>',
        words.iso(at),
        shown,
        words.zone_name(at),
    )


@register.simple_tag
def clock_now(now: datetime) -> str:
    """The server's clock in the reader's time zone; the browser keeps it going."""
    return words.at_clock(now)


@register.simple_tag
def since(at: datetime | None, now: datetime | None = None) -> SafeString:
    """How long ago; the browser keeps it going."""
    if at is None:
        return mark_safe('<span class="text-quiet">never</span>')
    seconds = ((now or timezone.now()) - at).total_seconds()
    return format_html(
        '<time datetime="{0}" title="{0}" data-since="{0}">{1}</time>', words.iso(at), words.ago(seconds)
    )


@register.simple_tag
def countdown(at: datetime | None, now: datetime | None = None) -> SafeString:
    """The time left; the browser keeps it going by the server's clock."""
    if at is None:
        return mark_safe('<span class="countdown is-unknown">no time stated</span>')
    seconds = (at - (now or timezone.now())).total_seconds()
    level = "is-past" if seconds <= 0 else "is-short" if seconds < 120 else "is-near" if seconds < 600 else ""
    shown = words.span(seconds) if seconds > 0 else "due now"
    return format_html(
        '<time class="countdown {}" datetime="{}" data-countdown="{}" role="timer">{}</time>',
        level,
        words.iso(at),
        words.iso(at),
        shown,
    )


@register.filter
def duration(seconds: float | None) -> str:
    return words.duration(seconds)


@register.filter
def impact(seconds: int | None) -> str:
    return words.impact(seconds)


@register.filter
def iso(at: datetime | None) -> str:
    return words.iso(at) if at else ""


@register.filter
def domain_name(value: int | None) -> str:
    """A fault or update domain; a dash where none is stated."""
    return DASH if value is None else str(value)


@register.filter
def diff_tone(line: str) -> str:
    """The class of a line of a unified difference."""
    return {"+": "diff-new", "-": "diff-old", "@": "diff-place"}.get(line[:1], "diff-same")


@register.filter
def offset(seconds: float | None) -> str:
    """A clock's offset: `+0.2 s`."""
    return DASH if seconds is None else f"{seconds:+.1f} s"
