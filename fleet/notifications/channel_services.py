"""Creation, change and deletion of notification channels and their secrets, each with a timeline entry.

Secrets appear in no log, timeline entry, response or page. To replace a secret, a user enters a new one.
"""

import base64
import hashlib
import secrets
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model, QuerySet
from rest_framework import serializers

from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.policy.rules import Fault
from fleet.domain.pseudonyms import erased_name
from fleet.domain.reasons import Reason, Refused, require_found, require_version
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import ApiToken
from fleet.notifications.channels import KINDS, ChannelKind, Lines, kinds_where
from fleet.notifications.models import Channel, Message, MessageDelivery, Reference, Route
from fleet.notifications.queries import OWN, for_reader
from fleet.notifications.routing import OPEN_DELIVERIES, TEST
from fleet.operations import audited, wake_up
from fleet.operations.audited import Audit, AuditedForm, AuditedSerializer, Faults, Sent, Values
from fleet.operations.locks import Lock, take
from fleet.operations.rights import require_change
from fleet.operations.timeline.entries import tell

MOST_CHANNELS, MOST_OWN_CHANNELS, MOST_OWN_RECIPIENTS = 100, 5, 3


def in_use(channel: Channel, *, now: datetime) -> dict[str, Any]:
    """Return the decrypted settings and secrets of a channel for sending. They include the previous secret of a webhook
    while it is still valid. Never show or log them. Raises UnreadableSecretsError.
    """
    values = {**channel.settings, **channel.unseal()}
    until = channel.settings.get("earlier_secret_until")
    if until is None or datetime.fromisoformat(until) <= now:
        values.pop("earlier_secret", None)
    return values


def unreadable() -> list[str]:
    """Return the names of enabled channels whose secrets no configured SECRET_KEY decrypts. One query."""
    rows = Channel.objects.filter(enabled=True, deleted_at__isnull=True).exclude(secrets="").order_by("pk")
    # Reading the secrets sets `lost`.
    return [channel.name for channel in rows if not channel.opened and channel.lost]


# Rights to change channels and routes: administrators those of the installation, and each user their own.

M = TypeVar("M", bound=Model)


def owner_for(actor: Actor, *, own: bool) -> User | None:
    """Return the owner for a new channel or route: the actor if `own`, else None (it belongs to the installation).
    Raises Refused: `not-permitted`; `validation` if `own` but the actor is not a user.
    """
    owner: User | None = actor.person if own else None
    if own and owner is None:
        raise Refused("validation", Reason("own-without-person"))
    require_change(actor, own=own)
    return owner


def require_room(rows: QuerySet[M], most: int, too_many: str) -> None:
    """Raise Refused `validation` with the reason `too_many` if there are already `most` rows."""
    if rows.count() >= most:
        raise Refused("validation", Reason(too_many, most=most))


def locked(rows: QuerySet[M], row_id: int, actor: Actor, *, unknown: str) -> M:
    """Lock and return the row with this id, after checking that the actor may change it. Raises Refused:
    `not-permitted`; `not-found` with the reason `unknown`, also for personal rows of other users.
    """
    own_or_shared = rows.filter(for_reader(actor.person), pk=row_id, deleted_at=None)
    row: Any = require_found(own_or_shared.select_for_update(of=("self",)).first(), "not-found", Reason(unknown))
    require_change(actor, own=row.owner_id is not None)
    return row  # type: ignore[no-any-return]


def is_taken(row: Channel | Route) -> bool:
    """Return whether another channel or route of the same owner has the name of this one."""
    others = type(row).objects.filter(owner=row.owner, deleted_at=None, name__iexact=row.name)
    return others.exclude(pk=row.pk or 0).exists()


# Fields of a channel that users state: its name, and the settings and secrets of its kind.


class ChannelForm(AuditedForm):
    """Form for a channel of one kind. Stored secrets are not shown; an empty field leaves the stored secret
    unchanged.
    """

    class Meta(AuditedForm.Meta):
        model, fields = Channel, ("name",)

    def __init__(self, *args: Any, kind: str, secrets_set: Collection[str] = (), **kwargs: Any) -> None:
        self.kind: ChannelKind = KINDS[kind]
        hidden = {"widget": forms.PasswordInput({"autocomplete": "new-password"}), "strip": True}
        fields: dict[str, Any] = {
            name: audited.page_field(field, **(hidden if name in self.kind.secrets else {}))
            for name, field in self.kind.fields.items()
        }
        for name in self.kind.secrets.intersection(secrets_set):
            fields[name].required, fields[name].help_text = False, "Set: enter a new one to replace it."
        self.base_fields = {**type(self).base_fields, **fields}  # type: ignore[misc]
        super().__init__(*args, **kwargs)

    def apply(self, row: Any, optional: Any = ()) -> Faults:
        faults = [*super().apply(row, optional)]
        sent = {name: self.cleaned_data.get(name) for name in self.kind.fields}
        untouched = [name for name in self.kind.secrets if not sent[name]]
        return faults or write_settings(row, {name: sent[name] for name in sent if name not in untouched})


class ChannelFieldsSerializer(AuditedSerializer):
    """Fields of a channel in an API call. An omitted field leaves the value unchanged, and null removes it."""

    class Meta:
        model = Channel
        fields: tuple[str, ...] = ("name", "enabled")

    def get_fields(self) -> dict[str, Any]:
        """Add a field for each setting of any kind. The kind of the channel then validates the value."""
        fields = super().get_fields()
        for name in {name: None for kind in KINDS.values() for name in kind.fields}:
            kinds = [kind for kind, declared in KINDS.items() if name in declared.fields]
            field = KINDS[kinds[0]].fields[name]
            secret = " Never shown again." if any(name in KINDS[kind].secrets for kind in kinds) else ""
            help_text = f"Of {', '.join(f'`{kind}`' for kind in kinds)}.{secret}"
            stated: Any = {"required": False, "allow_null": True, "help_text": help_text, "source": f"stated.{name}"}
            if isinstance(field, Lines):
                line = serializers.CharField(max_length=2000, allow_blank=True)
                fields[name] = audited.ValueList(child=line, max_length=200, **stated)
            elif field.get_internal_type() == "BooleanField":
                fields[name] = serializers.BooleanField(**stated)
            else:
                fields[name] = serializers.CharField(allow_blank=True, max_length=2000, **stated)
        return fields

    def apply(self, row: Any, optional: Any = ()) -> Faults:
        faults = [*super().apply(row, optional)]
        return faults or write_settings(row, self.validated_data.get("stated", {}))


class OwnableSerializer(AuditedSerializer):
    """Serializer for a new channel or route that may be personal (only for the caller)."""

    own = serializers.BooleanField(required=False, default=False, help_text=OWN)

    @property
    def is_own(self) -> bool:
        """Return whether the caller requests a personal channel or route. It determines the owner before the fields are
        validated.
        """
        return self.initial_data.get("own") is True

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name != "own"}


class ChannelRequestSerializer(OwnableSerializer, ChannelFieldsSerializer):
    class Meta(ChannelFieldsSerializer.Meta):
        fields = ("kind", "name", "enabled", "own")


def write_settings(row: Channel, sent: Mapping[str, Any]) -> Iterator[Fault]:
    """Set the submitted settings and secrets on a channel. Yield the faults that concern several fields together."""
    kind, wrong = KINDS[row.kind], set(sent)
    if row.owner_id is not None and not kind.personal:
        yield "kind", Reason("channel-kind-not-personal", known=kinds_where(personal=True))
        return
    for name, value in sent.items():
        if name not in kind.fields:
            yield name, Reason("field-unknown")
            continue
        place = row.opened if name in kind.secrets else row.settings
        place.pop(name, None)
        try:
            if cleaned := value and kind.fields[name].clean(value, None):
                place[name] = cleaned
            wrong.remove(name)
        except ValidationError as error:
            yield from ((name, text) for text in error.messages)
    stated = row.settings | row.opened
    for name, field in kind.fields.items():
        # If secrets cannot be decrypted, it is unknown which were set.
        if not (field.blank or name in stated or name in wrong or (row.lost and name in kind.secrets)):
            yield name, "This field is required."
    if row.owner_id is not None and len(row.settings.get("recipients", ())) > MOST_OWN_RECIPIENTS:
        yield "recipients", Reason("too-many-lines", most=MOST_OWN_RECIPIENTS)
    row.settings["secrets_set"] = sorted(row.opened.keys() & kind.fields.keys())


# Values in the timeline in place of secrets, and of settings of personal channels.
SET, REPLACED, UNREADABLE = "set", "replaced", "unreadable"


class ChannelAudit(Audit):
    """Timeline entries about channels. All users can read them, so they contain no secrets and no full addresses."""

    def values(self, row: Any) -> Values:
        kind, opened = KINDS[row.kind], row.opened
        unread = dict.fromkeys(kind.secrets, UNREADABLE) if row.lost and not opened else {}
        stated = {name: value for name, value in {**row.settings, **opened}.items() if name in kind.fields}
        return {"name": row.name, "enabled": row.enabled, **unread, **stated}

    def recorded(self, row: Any, before: Values | None, after: Values | None) -> tuple[Any, Any]:
        before, after = super().recorded(row, before, after)
        old, new = (
            {name: self.shown(row, name, value) for name, value in values.items()} if values is not None else None
            for values in (before, after)
        )
        if old and new:
            new |= {name: REPLACED for name in new if name in KINDS[row.kind].secrets and old[name] == new[name] == SET}
        return old, new

    def shown(self, row: Channel, name: str, value: Any) -> Any:
        """Return a value as entries show it. Of an address only the host is shown, because the path may be a secret; a
        short hash distinguishes addresses on this host.
        """
        if value is None or name in ("name", "enabled"):
            return value
        if name in KINDS[row.kind].secrets:
            return UNREADABLE if value == UNREADABLE else SET
        sign = hashlib.sha256(str(value).encode()).hexdigest()[:6]
        if row.owner_id is not None:
            return f"{SET}…{sign}"
        if name != "url":
            return value
        url = urlsplit(value)
        origin = f"{url.scheme}://{url.netloc}"
        return origin if value.rstrip("/") == origin else f"{origin}/…{sign}"


CHANNELS = ChannelAudit(
    (),
    created=EntryKind.CHANNEL_CREATED,
    changed=EntryKind.CHANNEL_CHANGED,
    deleted=EntryKind.CHANNEL_DELETED,
    data=lambda row: {
        "channel_id": row.pk,
        "channel": row.name,
        "channel_kind": row.kind,
        "own": row.owner_id is not None,
    },
    version="changed_at",
    right=Right.READ,
)


@transaction.atomic
def create(sent: Sent, *, actor: Actor, now: datetime, kind: str = "", own: bool = False) -> tuple[Channel, str | None]:
    """Create a channel of this `kind`; `own` makes it a personal channel of the actor. Return it with the secret of a
    webhook, which is shown only once (None for other kinds). Raises Refused as `save_audited` does.
    """
    owner = owner_for(actor, own=own)
    take(Lock.CHANNELS)
    others = Channel.objects.filter(owner=owner, deleted_at=None)
    require_room(others, MOST_OWN_CHANNELS if own else MOST_CHANNELS, "channels-too-many")
    row = Channel(kind=kind, owner=owner, created_at=now, changed_at=now, made_with=actor.token if own else None)
    audited.save_audited(sent, actor, CHANNELS, row=row, now=now, check=_faults)
    secret = _new_secret(row, now) if KINDS[row.kind].signs else None
    row.seal(row.opened)
    row.save(update_fields=["settings", "secrets"])
    return row, secret


@transaction.atomic
def change(
    sent: Sent, *, channel_id: int, actor: Actor, now: datetime, expected: Collection[str] | None = None
) -> Channel:
    """Change fields of a channel. `expected` are the accepted versions of the unchanged row; None accepts all. A pause
    after failures ends.

    Raises Refused: `not-found`, and as `save_audited` does.
    """
    row = _locked(channel_id, actor)
    before, row.held_until = dict(row.opened), None
    audited.save_audited(sent, actor, CHANNELS, row=row, now=now, expected=expected, check=_faults)
    if row.opened != before:
        row.seal(row.opened)
        row.save(update_fields=["secrets"])
    return row


@transaction.atomic
def delete(*, channel_id: int, actor: Actor, now: datetime, expected: Collection[str] | None = None) -> Channel:
    """Delete a channel and its secrets. Its messages remain in the delivery log.

    Raises Refused: `not-found`, `not-permitted`, `precondition-failed`; `validation` while a route uses the channel.
    """
    row = _locked(channel_id, actor)
    require_version(row.changed_at, expected)
    routes = Route.objects.filter(channel=row, deleted_at=None).order_by("position", "pk")
    if names := list(routes.values_list("name", flat=True)):
        raise Refused("validation", Reason("channel-of-routes", routes=names))
    audited.delete_audited(row, actor, CHANNELS, now=now, enabled=False, secrets="", deleted_at=now)
    return row


@transaction.atomic
def rotate(
    *, channel_id: int, actor: Actor, now: datetime, expected: Collection[str] | None = None
) -> tuple[Channel, str]:
    """Replace the secret of a webhook. Return the channel and the new secret, which is shown only once. For one day,
    messages are also signed with the previous secret. Raises Refused: `not-found`, `not-permitted`,
    `precondition-failed`; `validation` for other kinds.
    """
    row = _locked(channel_id, actor)
    require_version(row.changed_at, expected)
    if not KINDS[row.kind].signs:
        raise Refused("validation", Reason("channel-without-secret"))
    before = {"secret_made_at": row.settings.get("secret_made_at")}
    if earlier := row.opened.get("secret"):
        row.opened["earlier_secret"] = earlier
        row.settings["earlier_secret_until"] = iso(now + timedelta(days=1))
    secret = _new_secret(row, now)
    row.seal(row.opened)
    row.changed_at = now
    row.save(update_fields=["settings", "secrets", "changed_at"])
    after = {"secret_made_at": row.settings["secret_made_at"]}
    tell(EntryKind.CHANNEL_CHANGED, actor, at=now, before=before, after=after, **CHANNELS.data(row))
    return row, secret


@transaction.atomic
def request_test(*, channel_id: int, actor: Actor, now: datetime) -> str:
    """Queue a test message for a channel, to be sent at once. Return the id of the delivery.

    Raises Refused: `not-found`, `not-permitted`; `validation` if the channel is disabled, receives no messages or has
    another test in progress.
    """
    row = _locked(channel_id, actor)
    if not row.enabled:
        raise Refused("validation", Reason("channel-is-off"))
    if not KINDS[row.kind].messages:
        raise Refused("validation", Reason("channel-takes-no-posts"))
    if MessageDelivery.objects.filter(channel=row, moment=TEST, state__in=OPEN_DELIVERIES).exists():
        raise Refused("validation", Reason("test-under-way"))
    delivery = MessageDelivery.objects.create(channel=row, moment=TEST, created_at=now, due_at=now)
    # A test does not wait for the end of a pause.
    Channel.objects.filter(pk=row.pk).update(held_until=None)
    after = {"delivery": str(delivery.pk)}
    tell(EntryKind.CHANNEL_TRIED, actor, at=now, before=None, after=after, **CHANNELS.data(row))
    transaction.on_commit(wake_up.hint_messages)
    return str(delivery.pk)


def _locked(channel_id: int, actor: Actor) -> Channel:
    return locked(Channel.objects.select_related("owner"), channel_id, actor, unknown="channel-unknown")


def _faults(row: Channel) -> Iterator[Fault]:
    if is_taken(row):
        yield "name", Reason("channel-name-taken")


def _new_secret(row: Channel, now: datetime) -> str:
    """Set a new random secret on the channel, without saving it. Return the secret."""
    row.opened["secret"] = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
    row.settings["secret_made_at"] = iso(now)
    return row.opened["secret"]


# Channels and routes of an erased user, and channels that a revoked token created.


def end_made_with(token: ApiToken, *, actor: Actor, now: datetime) -> None:
    """Disable the channels that were created with this API token. Called inside the transaction that revokes it."""
    own = Channel.objects.select_for_update().filter(made_with=token, enabled=True, deleted_at=None)
    for channel in own.order_by("pk"):
        Channel.objects.filter(pk=channel.pk).update(enabled=False, changed_at=now)
        change = {"before": {"enabled": True}, "after": {"enabled": False}}
        tell(EntryKind.CHANNEL_CHANGED, actor, at=now, **change, **CHANNELS.data(channel))


def empty_own(person: User, now: datetime) -> None:
    """Erase the personal data in a user's own channels and routes. The rows remain for the delivery log."""
    name = erased_name(person.pk)
    channels, routes = Channel.objects.filter(owner=person), Route.objects.filter(owner=person)
    Reference.objects.filter(channel__in=channels).delete()
    Message.objects.filter(route__in=routes).update(data={})
    over = {"enabled": False, "changed_at": now}
    routes.update(name=name, **over)
    channels.update(name=name, settings={}, secrets="", last_error="", last_answer="", **over)
    for rows in (channels, routes):
        rows.filter(deleted_at=None).update(deleted_at=now)
