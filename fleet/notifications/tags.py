"""Filters that word what templates show of notifications: `{% load notifications %}`."""

from collections.abc import Mapping

from django.template import Library

from fleet.domain.states import EventStatus
from fleet.notifications import payloads
from fleet.notifications.deliveries import ChannelNamed, DeliveryRow
from fleet.notifications.log import WhoWasTold
from fleet.notifications.metrics import Backlog
from fleet.notifications.news import Subject
from fleet.notifications.routing import GROUP
from fleet.operations import clock
from fleet.projections.events.rows import EventRow
from fleet.wording.times import page_reader

register = Library()


@register.filter
def told_line(found: WhoWasTold, event: EventRow) -> str:
    """Who was told of an event when, and through what."""
    return payloads.told_sentence(found, page_reader(clock.now()), over=event.status is EventStatus.ENDED)


@register.filter
def channel_kind(kind: str) -> str:
    """What a kind of channel is called."""
    return payloads.kind_label(kind)


@register.filter
def channel_named(channel: ChannelNamed) -> str:
    return payloads.channel_named(channel)


@register.filter
def moment_named(moment: str) -> str:
    """What a moment is called; a post may be a group or a test besides."""
    return payloads.delivery_label(moment, 0) if moment != GROUP else "several at once"


@register.filter
def of_channel(backlog: Mapping[int, Backlog], channel_id: int) -> Backlog | None:
    """What waits for a channel."""
    return backlog.get(channel_id)


@register.filter
def delivery_named(post: DeliveryRow) -> str:
    """What a post tells, in a few words."""
    return payloads.delivery_label(post.moment, post.count)


@register.filter
def subject_named(subject: Subject) -> str:
    return payloads.subject_named(subject)


@register.filter
def why_not(code: str) -> str:
    """Why a message or a post came to nothing."""
    return payloads.why(code)


@register.filter
def went_wrong(code: str) -> str:
    """What went wrong with an attempt."""
    return payloads.went_wrong(code)
