"""Changes of routes, personal notifications, registered browsers, and the Web Push key."""

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.people import Place
from fleet.domain.policy.rules import refuse
from fleet.domain.reasons import Reason, Refused, require_version, stored_text
from fleet.domain.sets import PROVISIONAL
from fleet.domain.timeline import EntryKind, differing
from fleet.models import ApiToken
from fleet.models.cipher import Cipher
from fleet.models.facts.events import place_of
from fleet.notifications import channel_services
from fleet.notifications.channel_services import UnreadableSecretsError, of, owner_for, require_over
from fleet.notifications.kinds import MOST_OWN_ROUTES, MOST_ROUTES, route_faults
from fleet.notifications.models import (
    Channel,
    Message,
    MessageDelivery,
    PushKey,
    Route,
    RouteVersion,
    route_of,
)
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.routing import (
    OF_DELIVERY,
    ROUTE_SAID,
    DeliveryState,
    StandingRoute,
    changed_route,
    route_wording,
)
from fleet.operations import wake_up
from fleet.operations.locks import Lock, take
from fleet.operations.policy.rules import refuse_unknown, values_of
from fleet.operations.rights import can_see
from fleet.operations.timeline.entries import tell

UNKNOWN = Reason("route-unknown")
TOLD = (*ROUTE_SAID, "enabled", "position")


def create(
    *,
    actor: Actor,
    now: datetime,
    fields: Mapping[str, Any],
    own: bool = False,
    enabled: bool = True,
    carried: ApiToken | None = None,
) -> Route:
    """A new route, behind the others. `fields` are those of `ROUTE_SAID`; `own`: for the actor alone, through a channel
    of their own. Raises Refused: `not-permitted`, `validation` (details `errors`).
    """
    owner = owner_for(actor, own=own, carried=carried)
    route = _said(StandingRoute(enabled=enabled, owner_id=owner.pk if owner else None), fields)
    with transaction.atomic():
        take(Lock.CHANNELS)
        channel = _check(route, owner)
        others = Route.objects.filter(owner=owner, deleted_at=None)
        most = MOST_OWN_ROUTES if own else MOST_ROUTES
        if others.count() >= most:
            raise Refused("validation", Reason("routes-too-many", most=most))
        last: int = others.aggregate(last=Max("position"))["last"] or 0
        row = Route.objects.create(
            **_columns(route), owner=owner, enabled=enabled, position=last + 1, created_at=now, changed_at=now
        )
        _note(EntryKind.ROUTE_CREATED, row, channel, actor, now=now, before=None, after=values_of(row, TOLD))
    return row


@transaction.atomic
def change(
    *,
    route_id: int,
    actor: Actor,
    now: datetime,
    fields: Mapping[str, Any] | None = None,
    enabled: bool | None = None,
    carried: ApiToken | None = None,
    expected: Collection[str] | None = None,
) -> Route:
    """Change what a route says, or switch it on or off: its next version. What stays as it is writes nothing.

    `expected`: versions that were looked at. Raises Refused: `not-found`, `not-permitted`, `precondition-failed`,
    `validation` (details `errors`).
    """
    take(Lock.CHANNELS)
    row = _of(route_id, actor, carried)
    require_version(row.version, expected)
    before, was = values_of(row, TOLD), route_of(row)
    route = _said(replace(was, enabled=row.enabled if enabled is None else enabled), fields or {})
    channel = _check(route, row.owner)
    for name, value in _columns(route).items():
        setattr(row, name, value)
    row.enabled = route.enabled
    before, after = differing(before, values_of(row, TOLD))
    if not after:
        return row
    _keep(row, was, now=now)
    row.version += 1
    row.changed_at = now
    row.save()
    _note(EntryKind.ROUTE_CHANGED, row, channel, actor, now=now, before=before, after=after)
    return row


@transaction.atomic
def delete(
    *,
    route_id: int,
    actor: Actor,
    now: datetime,
    carried: ApiToken | None = None,
    expected: Collection[str] | None = None,
) -> Route:
    """Delete a route. What it sent keeps naming it. Raises Refused as `change` does."""
    row = _of(route_id, actor, carried)
    require_version(row.version, expected)
    before = values_of(row, TOLD)
    _keep(row, route_of(row), now=now)
    row.enabled = False
    row.deleted_at = row.changed_at = now
    row.save(update_fields=["enabled", "deleted_at", "changed_at"])
    _tell(EntryKind.ROUTE_DELETED, row, _wording(row, row.channel), actor, now=now, before=before, after=None)
    return row


@transaction.atomic
def redeliver(*, message_id: int, actor: Actor, now: datetime, carried: ApiToken | None = None) -> str:
    """Send again what a message was sent with, under the same id; the id of the delivery. With it goes what was sent
    together, and nothing that is no longer so. Raises Refused: `not-found`, `not-permitted`, `not-redeliverable`.
    """
    found = Message.objects.select_related("channel__owner", "delivery", "event__availability_set")
    message = found.filter(pk=message_id).first()
    place = (
        place_of(message.event.availability_set) if message is not None and message.event else Place(PROVISIONAL, "")
    )
    if not can_see(actor, place):
        message = None
    channel = message.channel if message else None
    mine = getattr(actor.person, "pk", None)
    if channel is not None and channel.owner_id not in (None, mine):
        channel = None
    if message is None or (message.channel_id is not None and channel is None):
        raise Refused("not-found", Reason("message-unknown"))
    require_over(actor, channel.owner if channel else None, carried=carried)
    if channel is None or message.delivery is None:
        raise Refused("not-redeliverable", Reason("message-never-sent"))
    if channel.deleted_at is not None or not channel.enabled:
        raise Refused("not-redeliverable", Reason("channel-is-off"))
    _again(message.delivery.pk, now=now)
    told = {"channel_id": channel.pk, "channel": channel.name, "message_id": message.pk, "moment": message.moment}
    tell(
        EntryKind.MESSAGE_SENT_AGAIN,
        actor,
        at=now,
        event_id=message.event_id,
        before={"state": message.delivery.state},
        after={"state": DeliveryState.QUEUED.value},
        **told,
    )
    transaction.on_commit(wake_up.hint_messages)
    return str(message.delivery_id)


def _again(delivery_id: UUID, *, now: datetime) -> None:
    may = [DeliveryState.DELIVERED.value, DeliveryState.GIVEN_UP.value]
    moved = MessageDelivery.objects.filter(pk=delivery_id, state__in=may).update(
        state=DeliveryState.QUEUED.value, created_at=now, due_at=now, settled_at=None, why=""
    )
    if not moved:
        raise Refused("not-redeliverable", Reason("message-under-way"))
    Message.objects.filter(delivery=delivery_id).update(state=OF_DELIVERY[DeliveryState.QUEUED].value, why="")


def _of(route_id: int, actor: Actor, carried: ApiToken | None) -> Route:
    rows = Route.objects.select_related("owner", "channel")
    return of(rows, route_id, actor, unknown=UNKNOWN, carried=carried)


def _said(route: StandingRoute, fields: Mapping[str, Any]) -> StandingRoute:
    refuse_unknown(fields, ROUTE_SAID)
    return changed_route(route, fields)


def _check(route: StandingRoute, owner: User | None) -> Channel | None:
    """The channel to which it leads (None: all). Raises Refused `validation` for what is wrong."""
    found = route_faults(route)
    others = Route.objects.filter(owner=owner, deleted_at=None, name__iexact=route.name).exclude(pk=route.route_id)
    if others.exists():
        found.append(("name", Reason("route-name-taken")))
    channel = None
    if route.channel_id is not None:
        channel = Channel.objects.filter(pk=route.channel_id, owner=owner, deleted_at=None).first()
    if route.channel_id is not None and channel is None:
        found.append(("channel", Reason("channel-unknown" if owner is None else "own-channel-unknown")))
    if route.channel_id is None and owner is not None:
        found.append(("channel", Reason("own-route-without-channel")))
    refuse(found)
    return channel


def _columns(route: StandingRoute) -> dict[str, Any]:
    values = {name: getattr(route, name) for name in ROUTE_SAID}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _wording(row: Route, channel: Channel | None) -> Reason:
    return route_wording(route_of(row), channel.name if channel else "")


def _keep(row: Route, was: StandingRoute, *, now: datetime) -> None:
    """A version that nobody wrote down, since the route came ready-made."""
    named = Channel.objects.filter(pk=was.channel_id).first() if was.channel_id else None
    said = {
        "at": row.created_at,
        "name": was.name,
        "wording": stored_text(route_wording(was, named.name if named else "")),
    }
    RouteVersion.objects.get_or_create(route=row, version=was.version, defaults=said)


def _note(
    kind: EntryKind, row: Route, channel: Channel | None, actor: Actor, *, now: datetime, before: Any, after: Any
) -> None:
    wording = _wording(row, channel)
    RouteVersion.objects.create(route=row, version=row.version, at=now, name=row.name, wording=stored_text(wording))
    _tell(kind, row, wording, actor, now=now, before=before, after=after)


def _tell(
    kind: EntryKind, row: Route, wording: Reason, actor: Actor, *, now: datetime, before: Any, after: Any
) -> None:
    told = {"route_id": row.pk, "version": row.version, "name": row.name, "own": row.owner_id is not None}
    tell(kind, actor, at=now, before=before, after=after, wording=wording, **told)


# A browser that is told: a channel and a route that a person has alone, made and ended together.

KIND = "webpush"
# A phone rings for what needs somebody, and for what is under way; its person may say otherwise on the route.
MOMENTS = (
    NotificationType.FIRST_SEEN,
    NotificationType.CHANGED,
    NotificationType.PROPOSED,
    NotificationType.OVERDUE,
    NotificationType.REFUSED,
    NotificationType.STARTED,
    NotificationType.ENDED,
    NotificationType.SOURCE_QUIET,
    NotificationType.SET_UNWATCHED,
    NotificationType.MAINTENANCE_ANNOUNCED,
    NotificationType.CHANNEL_FAILING,
)


@transaction.atomic
def begin(*, actor: Actor, name: str, endpoint: str, p256dh: str, auth: str, now: datetime) -> Channel:
    """Tell this browser from now on. Raises Refused as `channels.create` and `routes.create` do."""
    if not endpoint.startswith("https://"):
        raise Refused("validation", Reason("browser-endpoint"))
    values = {"endpoint": endpoint, "p256dh": p256dh, "auth": auth}
    channel, _ = channel_services.create(actor=actor, now=now, kind=KIND, name=name, values=values, own=True)
    fields = {"name": name, "channel_id": channel.pk, "moments": [moment.value for moment in MOMENTS]}
    create(actor=actor, now=now, fields=fields, own=True)
    return channel


@transaction.atomic
def end(*, actor: Actor, channel_id: int, now: datetime) -> Channel:
    """Tell it no more, and forget its keys. Raises Refused `not-found` or `not-permitted`."""
    own = Channel.objects.filter(pk=channel_id, kind=KIND, owner=actor.person, deleted_at=None)
    if not own.exists():
        raise Refused("not-found", Reason("channel-unknown"))
    for route_id in Route.objects.filter(channel=channel_id, deleted_at=None).values_list("pk", flat=True):
        delete(route_id=route_id, actor=actor, now=now)
    return channel_services.delete(channel_id=channel_id, actor=actor, now=now)


# The key by which the makers of browsers know this installation: made at first use, its private half encrypted.

NAME = "vapid"
CIPHER = Cipher("drydock push key")


@dataclass(frozen=True, slots=True)
class PushKeys:
    """`public` as browsers take it, `private` in DER."""

    public: str
    private: bytes = field(repr=False)


def keys(*, now: datetime) -> PushKeys:
    """The one key of the installation. Raises UnreadableSecretsError where no SECRET_KEY that is here reads it."""
    row = PushKey.objects.filter(name=NAME).first() or _made(now)
    private = CIPHER.decrypt(row.private_key, of=NAME)
    if private is None:
        raise UnreadableSecretsError(NAME)
    return PushKeys(row.public_key, private)


@transaction.atomic
def _made(now: datetime) -> PushKey:
    key = ec.generate_private_key(ec.SECP256R1())
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    row, made = PushKey.objects.get_or_create(
        name=NAME,
        defaults={
            "public_key": base64.urlsafe_b64encode(point).decode().rstrip("="),
            "private_key": CIPHER.encrypt(private, of=NAME),
            "created_at": now,
        },
    )
    if made:
        tell(EntryKind.PUSH_KEY_MADE, DRYDOCK, at=now)
    return row
