"""A browser that is told: a channel and a route that a person has alone, made and ended together."""

from datetime import datetime

from django.db import transaction

from fleet.domain.actor import Actor
from fleet.domain.messages.moments import Moment
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused
from fleet.models import Channel, Route
from fleet.operations.messages import channels, routes

KIND = "webpush"
# A phone rings for what needs somebody, and for what is under way; its person may say otherwise on the route.
MOMENTS = (
    Moment.FIRST_SEEN, Moment.CHANGED, Moment.PROPOSED, Moment.OVERDUE, Moment.REFUSED, Moment.STARTED, Moment.ENDED,
    Moment.SOURCE_QUIET, Moment.SET_UNWATCHED, Moment.MAINTENANCE_ANNOUNCED, Moment.CHANNEL_FAILING,
)  # fmt: skip


@transaction.atomic
def begin(*, actor: Actor, name: str, endpoint: str, p256dh: str, auth: str, now: datetime) -> Channel:
    """Tell this browser from now on. Raises Refused as `channels.create` and `routes.create` do."""
    if not endpoint.startswith("https://"):
        raise Refused("validation", Reason("browser-endpoint"))
    values = {"endpoint": endpoint, "p256dh": p256dh, "auth": auth}
    channel, _ = channels.create(actor=actor, now=now, kind=KIND, name=name, values=values, own=True)
    fields = {"name": name, "channel_id": channel.pk, "moments": [moment.value for moment in MOMENTS]}
    routes.create(actor=actor, now=now, fields=fields, own=True)
    return channel


@transaction.atomic
def end(*, actor: Actor, channel_id: int, now: datetime) -> Channel:
    """Tell it no more, and forget its keys. Raises Refused `not-found` or `not-permitted`."""
    own = Channel.objects.filter(pk=channel_id, kind=KIND, owner=actor.person, deleted_at=None)
    if not own.exists():
        raise Refused("not-found", Reason("channel-unknown"))
    for route_id in Route.objects.filter(channel=channel_id, deleted_at=None).values_list("pk", flat=True):
        routes.delete(route_id=route_id, actor=actor, now=now)
    return channels.delete(channel_id=channel_id, actor=actor, now=now)
