"""Creation, change and deletion of routes; repeated deliveries; registration of browsers; and the Web Push key."""

import base64
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max
from rest_framework import serializers

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.people import Place, Right
from fleet.domain.policy.rules import Fault, refuse
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.sets import PROVISIONAL
from fleet.domain.shapes import names_of
from fleet.domain.timeline import EntryKind
from fleet.models.cipher import Cipher
from fleet.models.facts.events import place_of
from fleet.notifications import channel_services, models
from fleet.notifications.channels import kinds_where
from fleet.notifications.labels import ALL_CHANNELS
from fleet.notifications.models import Channel, Message, MessageDelivery, PushKey, Route
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.queries import for_reader
from fleet.notifications.routing import OF_DELIVERY, REDELIVERABLE, DeliveryState, RouteConditions
from fleet.operations import wake_up
from fleet.operations.audited import Audit, AuditedForm, AuditedSerializer, Sent, delete_audited, save_audited
from fleet.operations.locks import Lock, take
from fleet.operations.rights import can_see, require_change
from fleet.operations.timeline.entries import tell

MOST_ROUTES, MOST_OWN_ROUTES = 200, 10
NO_CHANNEL = "There is no channel with this id."
# Fields that users state for a route.
FIELDS: tuple[str, ...] = ("name", "channel", *names_of(RouteConditions))


class RouteForm(AuditedForm):
    """Form for a route to channels of this owner. A personal route must name a channel."""

    class Meta(AuditedForm.Meta):
        model, fields = Route, FIELDS

    def __init__(self, *args: Any, owner: User | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        through: Any = self.fields["channel"]
        theirs = Channel.objects.filter(owner=owner, deleted_at=None, kind__in=kinds_where(messages=True))
        through.queryset = theirs.order_by("name", "pk")
        through.empty_label = "choose one" if owner else ALL_CHANNELS
        through.widget.attrs["class"] = "form-select"


class RouteFieldsSerializer(AuditedSerializer):
    """Fields of a route in an API call. An omitted field leaves the value unchanged; in a new route, it matches
    everything.
    """

    class Meta:
        model, fields = Route, FIELDS
        extra_kwargs = {
            "name": {"required": False, "allow_blank": True},
            "channel": {
                "pk_field": serializers.IntegerField(min_value=1, max_value=2**62),
                "error_messages": {"does_not_exist": NO_CHANNEL},
            },
        }


class RouteChangeSerializer(RouteFieldsSerializer):
    class Meta(RouteFieldsSerializer.Meta):
        fields = (*FIELDS, "enabled")


class RouteRequestSerializer(channel_services.OwnableSerializer, RouteChangeSerializer):
    class Meta(RouteChangeSerializer.Meta):
        fields = (*FIELDS, "enabled", "own")


ROUTES = Audit(
    (*(f"{name}_id" if name == "channel" else name for name in FIELDS), "enabled", "position"),
    created=EntryKind.ROUTE_CREATED,
    changed=EntryKind.ROUTE_CHANGED,
    deleted=EntryKind.ROUTE_DELETED,
    data=lambda row: {
        "route_id": row.pk,
        "version": row.version,
        "name": row.name,
        "own": row.owner_id is not None,
        "wording": row.wording(row.channel),
    },
    version="version",
    right=Right.READ,
)


@transaction.atomic
def create(sent: Sent, *, actor: Actor, now: datetime, own: bool = False) -> Route:
    """Create a route, after the existing ones. With `own`, it is personal and uses a channel of the actor. Raises
    Refused as `save_audited` does.
    """
    owner = channel_services.owner_for(actor, own=own)
    take(Lock.CHANNELS)
    others = Route.objects.filter(owner=owner, deleted_at=None)
    channel_services.require_room(others, MOST_OWN_ROUTES if own else MOST_ROUTES, "routes-too-many")
    last: int = others.aggregate(last=Max("position"))["last"] or 0
    row = Route(owner=owner, position=last + 1, created_at=now, changed_at=now)
    return save_audited(sent, actor, ROUTES, row=row, now=now, check=_faults)


@transaction.atomic
def change(sent: Sent, *, route_id: int, actor: Actor, now: datetime, expected: Collection[str] | None = None) -> Route:
    """Change, enable or disable a route. The version of the route increases. `expected` are the accepted current
    versions; None accepts all.

    Raises Refused: `not-found`, and as `save_audited` does.
    """
    take(Lock.CHANNELS)
    row = _locked(route_id, actor)
    row.changed_at = now
    return save_audited(sent, actor, ROUTES, row=row, now=now, expected=expected, check=_faults)


@transaction.atomic
def delete(*, route_id: int, actor: Actor, now: datetime, expected: Collection[str] | None = None) -> Route:
    """Delete a route. Messages that it created still refer to it. Raises Refused as `change` does."""
    row = _locked(route_id, actor)
    marks = {"enabled": False, "deleted_at": now, "changed_at": now, "version": row.version}
    delete_audited(row, actor, ROUTES, now=now, expected=expected, **marks)
    return row


def tried_route(
    sent: Sent, *, person: User | None, route_id: int | None = None, own: bool = False, inside: str = ""
) -> Route:
    """Validate a route for a dry run and return it, not saved. With `route_id`, it is the saved route with the
    submitted changes. `own`: it is a route of `person` alone. `inside`: prefix of field names in errors. Raises
    Refused: `not-found`, `validation`.
    """
    row = Route(owner=person if own else None)
    if route_id is not None:
        saved = Route.objects.filter(for_reader(person), pk=route_id, deleted_at=None).first()
        row = require_found(saved, "not-found", Reason("route-unknown"))
    # It need not have a name.
    refuse([*sent.apply(row, ("name",))] or [*step_faults(row)], inside=inside)
    return row


def step_faults(row: Route) -> Iterator[Fault]:
    """Yield the contradictions between the fields of an escalation step."""
    steps = [row.unclaimed_after_seconds, row.before_decide_by_seconds]
    if None not in steps:
        yield "before_decide_by_seconds", Reason("two-steps")
    if row.moments and steps != [None, None]:
        yield "moments", Reason("step-with-moments")


def _faults(row: Route) -> Iterator[Fault]:
    yield from step_faults(row)
    if channel_services.is_taken(row):
        yield "name", Reason("route-name-taken")
    if row.channel is None and row.owner is not None:
        yield "channel", Reason("own-route-without-channel")
    elif row.channel and (row.channel.owner_id != row.owner_id or row.channel.deleted_at is not None):
        yield "channel", NO_CHANNEL


def _locked(route_id: int, actor: Actor) -> Route:
    rows = Route.objects.select_related("owner", "channel")
    return channel_services.locked(rows, route_id, actor, unknown="route-unknown")


@transaction.atomic
def redeliver(*, message_id: int, actor: Actor, now: datetime) -> str:
    """Send the delivery of a message again, with the same id and all messages that still apply. Return the id. Raises
    Refused: `not-found`, `not-permitted`, `not-redeliverable`.
    """
    messages = Message.objects.select_related("channel", "delivery", "event__availability_set")
    message = require_found(messages.filter(pk=message_id).first(), "not-found", Reason("message-unknown"))
    place = place_of(message.event.availability_set) if message.event else Place(PROVISIONAL, "")
    channel = message.channel
    owner_id = channel.owner_id if channel else None
    if not can_see(actor, place) or owner_id not in (None, getattr(actor.person, "pk", None)):
        raise Refused("not-found", Reason("message-unknown"))
    require_change(actor, own=owner_id is not None)
    if channel is None or message.delivery is None:
        raise Refused("not-redeliverable", Reason("message-never-sent"))
    if channel.deleted_at is not None or not channel.enabled:
        raise Refused("not-redeliverable", Reason("channel-is-off"))
    rows = MessageDelivery.objects.filter(pk=message.delivery.pk, state__in=REDELIVERABLE)
    if not rows.update(state=DeliveryState.QUEUED.value, created_at=now, due_at=now, settled_at=None, why=""):
        raise Refused("not-redeliverable", Reason("message-under-way"))
    Message.objects.filter(delivery=message.delivery).update(state=OF_DELIVERY[DeliveryState.QUEUED].value, why="")
    about = {"channel_id": channel.pk, "channel": channel.name, "message_id": message.pk, "moment": message.moment}
    about |= {"before": {"state": message.delivery.state}, "after": {"state": DeliveryState.QUEUED.value}}
    tell(EntryKind.MESSAGE_SENT_AGAIN, actor, at=now, event_id=message.event_id, **about)
    transaction.on_commit(wake_up.hint_messages)
    return str(message.delivery_id)


# A browser that receives notifications: a personal channel and a route, created and deleted together.

KIND = "webpush"
# Default types for a phone: those that need a decision, and those about events in progress. The user may change them on
# the route.
MOMENTS = (
    NotificationType.FIRST_SEEN,
    NotificationType.CHANGED,
    NotificationType.PROPOSED,
    NotificationType.OVERDUE,
    NotificationType.REFUSED,
    NotificationType.PREPARE_FAILED,
    NotificationType.STARTED,
    NotificationType.ENDED,
    NotificationType.RECOVER_FAILED,
    NotificationType.SOURCE_QUIET,
    NotificationType.SET_UNWATCHED,
    NotificationType.MAINTENANCE_ANNOUNCED,
    NotificationType.CHANNEL_FAILING,
)


@transaction.atomic
def register_browser(*, actor: Actor, name: str, endpoint: str, p256dh: str, auth: str, now: datetime) -> Channel:
    """Create a personal channel for a browser, and a route for it. `endpoint`, `p256dh` and `auth` are from the
    browser's push subscription. Raises Refused as `create` of channels and of routes do.
    """
    if not endpoint.startswith("https://"):
        raise Refused("validation", Reason("browser-endpoint"))
    values = {"kind": KIND, "name": name, "endpoint": endpoint, "p256dh": p256dh, "auth": auth}
    sent = channel_services.ChannelRequestSerializer(data=values)
    channel, _ = channel_services.create(sent, actor=actor, now=now, own=True)
    route = {"name": name, "channel": channel.pk, "moments": [moment.value for moment in MOMENTS]}
    create(RouteFieldsSerializer(data=route), actor=actor, now=now, own=True)
    return channel


@transaction.atomic
def remove_browser(*, actor: Actor, channel_id: int, now: datetime) -> Channel:
    """Delete the channel of a browser with its keys and routes. Raises Refused: `not-found`, `not-permitted`."""
    own = Channel.objects.filter(pk=channel_id, kind=KIND, owner=actor.person, deleted_at=None)
    if not own.exists():
        raise Refused("not-found", Reason("channel-unknown"))
    for route_id in Route.objects.filter(channel=channel_id, deleted_at=None).values_list("pk", flat=True):
        delete(route_id=route_id, actor=actor, now=now)
    return channel_services.delete(channel_id=channel_id, actor=actor, now=now)


# The key that identifies this installation to push services: created at first use, its private half encrypted.

NAME = "vapid"
CIPHER = Cipher("drydock push key")


@dataclass(frozen=True, slots=True)
class PushKeys:
    """VAPID key pair of the installation: `public` as browsers expect it (base64url), `private` as DER."""

    public: str
    private: bytes = field(repr=False)


def push_keys(*, now: datetime) -> PushKeys:
    """Return the VAPID key pair of the installation. It is created at the first call. Raises UnreadableSecretsError if
    no configured SECRET_KEY decrypts it.
    """
    row = PushKey.objects.filter(name=NAME).first() or _made(now)
    private = CIPHER.decrypt(row.private_key, of=NAME)
    if private is None:
        raise models.UnreadableSecretsError(NAME)
    return PushKeys(row.public_key, private)


@transaction.atomic
def _made(now: datetime) -> PushKey:
    key = ec.generate_private_key(ec.SECP256R1())
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    row, is_new = PushKey.objects.get_or_create(
        name=NAME,
        defaults={
            "public_key": base64.urlsafe_b64encode(point).decode().rstrip("="),
            "private_key": CIPHER.encrypt(private, of=NAME),
            "created_at": now,
        },
    )
    if is_new:
        tell(EntryKind.PUSH_KEY_MADE, DRYDOCK, at=now)
    return row
