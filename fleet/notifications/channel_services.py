"""Changes of channels and their secrets, each with its timeline entry.

They stand in no log, no entry, no answer and no page; whoever wants another one writes it anew.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model, QuerySet

from fleet.domain.actor import Actor
from fleet.domain.policy.rules import refuse
from fleet.domain.pseudonyms import erased_name
from fleet.domain.reasons import Reason, Refused, require_found, require_version
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind, differing
from fleet.domain.times import iso
from fleet.models import ApiToken
from fleet.models.cipher import Cipher
from fleet.notifications.kinds import (
    KINDS,
    MOST_CHANNELS,
    MOST_OWN_CHANNELS,
    channel_faults,
    fields_of,
    reaches,
    tidied_setting,
)
from fleet.notifications.models import Channel, MessageDelivery, Reference, Route, RouteVersion
from fleet.notifications.routing import TEST, DeliveryState
from fleet.operations import wake_up
from fleet.operations.locks import Lock, take
from fleet.operations.policy.rules import refuse_unknown
from fleet.operations.rights import require_change
from fleet.operations.timeline.entries import tell

CIPHER = Cipher("drydock messages out")

log = structlog.get_logger(__name__)


class UnreadableSecretsError(Exception):
    """They were encrypted with a SECRET_KEY that is no longer here. `of` says whose they are."""

    def __init__(self, of: str) -> None:
        super().__init__(of)
        self.of = of


def seal(values: Mapping[str, str], *, of: str) -> str:
    """These secrets as a column keeps them. `of` names the row (`channel:7`); there alone they can be read again."""
    return CIPHER.encrypt(json.dumps(dict(values)).encode(), of=of) if values else ""


def unseal(text: str, *, of: str) -> dict[str, str]:
    """The secrets that were sealed, none for an empty text. Raises UnreadableSecretsError."""
    if not text:
        return {}
    plain = CIPHER.decrypt(text, of=of)
    if plain is None:
        log.error("secrets.unreadable", of=of, advice="Add the old SECRET_KEY to SECRET_KEY_FALLBACKS.")
        raise UnreadableSecretsError(of)
    opened: dict[str, str] = json.loads(plain)
    return opened


def name_of(channel: Channel) -> str:
    """What the secrets of a channel are sealed for."""
    return f"channel:{channel.pk}"


def in_use(channel: Channel, *, now: datetime) -> dict[str, Any]:
    """Settings and secrets of a channel together, to send with; a webhook's secret before this one while it counts.
    Never to be shown. Raises UnreadableSecretsError.
    """
    values = {**channel.settings, **unseal(channel.secrets, of=name_of(channel))}
    until = channel.settings.get("earlier_secret_until")
    if until is None or datetime.fromisoformat(until) <= now:
        values.pop("earlier_secret", None)
    return values


def unreadable() -> list[str]:
    """The names of channels, switched on, whose secrets cannot be read. One query."""
    found = []
    for channel in Channel.objects.filter(enabled=True, deleted_at__isnull=True).exclude(secrets="").order_by("pk"):
        try:
            unseal(channel.secrets, of=name_of(channel))
        except UnreadableSecretsError:
            found.append(channel.name)
    return found


# Who may change channels and routes: admins those of the installation, and everybody what they have alone.

M = TypeVar("M", bound=Model)


def owner_for(actor: Actor, *, own: bool, carried: ApiToken | None) -> User | None:
    """Whose something new will be. Raises Refused as `require_over` does."""
    owner: User | None = actor.person if own else None
    if own and owner is None:
        raise Refused("validation", Reason("own-without-person"))
    require_over(actor, owner, carried=carried)
    return owner


def require_over(actor: Actor, owner: User | None, *, carried: ApiToken | None) -> None:
    """Raises Refused `not-permitted` where the actor, or the token that the request came with, may not change what this
    owner (None: the installation) has.
    """
    require_change(actor, own=owner is not None)


def of(rows: QuerySet[M], row_id: int, actor: Actor, *, unknown: Reason, carried: ApiToken | None) -> M:
    """The row of this id, locked, where the actor may change it. Raises Refused: `not-permitted`, and `not-found` also
    for what somebody else has alone.
    """
    found: Any = rows.select_for_update(of=("self",)).filter(pk=row_id, deleted_at=None).first()
    if found is not None and found.owner_id is not None and found.owner_id != getattr(actor.person, "pk", None):
        found = None
    row: Any = require_found(found, "not-found", unknown)
    require_over(actor, row.owner, carried=carried)
    return row  # type: ignore[no-any-return]


# Making and changing channels: each change with its entry, which holds no secret and no address in full.

# So long a webhook is signed with the secret before, too, after its secret was rotated.
GRACE = timedelta(days=1)
UNKNOWN = Reason("channel-unknown")
# How the timeline tells of what it must not show.
SET, REPLACED = "set", "replaced"
UNREADABLE = "unreadable"


def create(
    *,
    actor: Actor,
    now: datetime,
    kind: str,
    name: str,
    values: Mapping[str, Any],
    own: bool = False,
    enabled: bool = True,
    carried: ApiToken | None = None,
) -> tuple[Channel, str | None]:
    """A new channel, and the secret of a webhook, which is returned this once.

    `values` are what its kind wants to be told (`fleet.notifications.kinds`); `own`: for the actor alone. `carried`
    is the token that asks. Raises Refused: `not-permitted`, `validation` (details `errors`).
    """
    owner = owner_for(actor, own=own, carried=carried)
    name, said = tidy(name), _said(kind, values)
    refuse(channel_faults(kind, name, said, personal=own, ours=_ours()))
    with transaction.atomic():
        take(Lock.CHANNELS)
        others = Channel.objects.filter(owner=owner, deleted_at=None)
        most = MOST_OWN_CHANNELS if own else MOST_CHANNELS
        if others.count() >= most:
            raise Refused("validation", Reason("channels-too-many", most=most))
        _refuse_taken(name, owner)
        row = Channel(kind=kind, name=name, owner=owner, enabled=enabled, created_at=now, changed_at=now)
        row.made_with = carried if own else None
        row.settings, hidden = _apart(kind, said)
        made = _made_secret(row, hidden, now=now)
        row.settings["secrets_set"] = _names(row, hidden)
        row.save()
        row.secrets = seal(hidden, of=name_of(row))
        row.save(update_fields=["secrets"])
        after = _told(row, hidden)
        _note(EntryKind.CHANNEL_CREATED, row, actor, now=now, before=None, after=after)
    return row, made


@transaction.atomic
def change(
    *,
    channel_id: int,
    actor: Actor,
    now: datetime,
    name: str | None = None,
    enabled: bool | None = None,
    values: Mapping[str, Any] | None = None,
    carried: ApiToken | None = None,
    expected: Collection[str] | None = None,
) -> Channel:
    """Change what is said of a channel; what is left out stays, and None or nothing in `values` takes a setting back.

    What changes is tried at once, however long it failed before. `expected`: times of its last change that was looked
    at. Raises Refused: `not-found`, `not-permitted`, `precondition-failed`, `validation` (details `errors`).
    """
    row = _of(channel_id, actor, carried)
    require_version(row.changed_at, expected)
    hidden, readable = _opened(row)
    before = _told(row, hidden, readable=readable)
    said = {key: value for key, value in {**row.settings, **hidden}.items() if key in fields_of(row.kind)}
    wanted = _said(row.kind, values or {}, partly=True)
    said = {key: value for key, value in {**said, **wanted}.items() if value is not None}
    if name is not None:
        row.name = tidy(name)
        _refuse_taken(row.name, row.owner, besides=row.pk)
    if enabled is not None:
        row.enabled = enabled
    # Of what cannot be read any more it is enough that the rest is right.
    faults = channel_faults(row.kind, row.name, said, personal=row.owner_id is not None, ours=_ours())
    refuse([fault for fault in faults if readable or fault[0] in wanted or fault[0] not in _secret_names(row.kind)])
    shown, secret = _apart(row.kind, said)
    kept = {key: value for key, value in row.settings.items() if key not in fields_of(row.kind)}
    row.settings = {**kept, **shown}
    secret |= {key: value for key, value in hidden.items() if key not in fields_of(row.kind)}
    row.settings["secrets_set"] = _names(row, secret)
    if readable or secret:
        row.secrets = seal(secret, of=name_of(row))
    after = _told(row, secret, readable=readable or bool(secret))
    after |= {key: REPLACED for key in secret if key in hidden and hidden[key] != secret[key]}
    before, after = differing(before, after)
    if after:
        row.changed_at = now
        row.held_until = None
        row.save(update_fields=["name", "enabled", "settings", "secrets", "changed_at", "held_until"])
        _note(EntryKind.CHANNEL_CHANGED, row, actor, now=now, before=before, after=after)
    return row


@transaction.atomic
def delete(
    *,
    channel_id: int,
    actor: Actor,
    now: datetime,
    carried: ApiToken | None = None,
    expected: Collection[str] | None = None,
) -> Channel:
    """Delete a channel, and forget its secrets; what was sent through it stays in the log.

    Raises Refused: `not-found`, `not-permitted`, `precondition-failed`, `validation` while routes lead to it alone.
    """
    row = _of(channel_id, actor, carried)
    require_version(row.changed_at, expected)
    routes = list(Route.objects.filter(channel=row, deleted_at=None).order_by("position", "pk").values_list("name"))
    if routes:
        raise Refused("validation", Reason("channel-of-routes", routes=[name for (name,) in routes]))
    hidden, readable = _opened(row)
    before = _told(row, hidden, readable=readable)
    row.enabled, row.secrets = False, ""
    row.deleted_at = row.changed_at = now
    row.save(update_fields=["enabled", "secrets", "deleted_at", "changed_at"])
    _note(EntryKind.CHANNEL_DELETED, row, actor, now=now, before=before, after=None)
    return row


@transaction.atomic
def rotate(
    *,
    channel_id: int,
    actor: Actor,
    now: datetime,
    carried: ApiToken | None = None,
    expected: Collection[str] | None = None,
) -> tuple[Channel, str]:
    """A new secret for a webhook, returned this once; it is signed with the one before as well for a day.

    Raises Refused: `not-found`, `not-permitted`, `precondition-failed`, `validation` for another kind.
    """
    row = _of(channel_id, actor, carried)
    require_version(row.changed_at, expected)
    hidden, _ = _opened(row)
    before = {"secret_made_at": row.settings.get("secret_made_at")}
    earlier = hidden.get("secret")
    made = _made_secret(row, hidden, now=now)
    if made is None:
        raise Refused("validation", Reason("channel-without-secret"))
    if earlier:
        hidden["earlier_secret"] = earlier
        row.settings["earlier_secret_until"] = iso(now + GRACE)
    row.secrets = seal(hidden, of=name_of(row))
    row.changed_at = now
    row.save(update_fields=["settings", "secrets", "changed_at"])
    after = {"secret_made_at": row.settings["secret_made_at"]}
    _note(EntryKind.CHANNEL_CHANGED, row, actor, now=now, before=before, after=after)
    return row, made


@transaction.atomic
def request_test(*, channel_id: int, actor: Actor, now: datetime, carried: ApiToken | None = None) -> str:
    """Have a channel told something at once, to see whether it works; the id of the delivery.

    Raises Refused: `not-found`, `not-permitted`, `validation` for a channel that is off, that takes no posts, or of
    which a test is under way.
    """
    row = _of(channel_id, actor, carried)
    if not row.enabled:
        raise Refused("validation", Reason("channel-is-off"))
    if not KINDS[row.kind].messages:
        raise Refused("validation", Reason("channel-takes-no-posts"))
    open_ones = MessageDelivery.objects.filter(channel=row, moment=TEST)
    if open_ones.filter(state__in=[DeliveryState.QUEUED.value, DeliveryState.SENDING.value]).exists():
        raise Refused("validation", Reason("test-under-way"))
    delivery = MessageDelivery.objects.create(channel=row, moment=TEST, created_at=now, due_at=now)
    # Whoever tries a channel does not want to wait until it may be tried again.
    Channel.objects.filter(pk=row.pk).update(held_until=None)
    _note(EntryKind.CHANNEL_TRIED, row, actor, now=now, before=None, after={"delivery": str(delivery.pk)})
    transaction.on_commit(wake_up.hint_messages)
    return str(delivery.pk)


def _of(channel_id: int, actor: Actor, carried: ApiToken | None) -> Channel:
    return of(Channel.objects.select_related("owner"), channel_id, actor, unknown=UNKNOWN, carried=carried)


def _said(kind: str, values: Mapping[str, Any], *, partly: bool = False) -> dict[str, Any]:
    """What somebody says of a channel, tidy; `partly`: with what is taken back. Raises Refused `validation`."""
    if kind not in KINDS:
        return {}
    fields = fields_of(kind)
    refuse_unknown(values, fields)
    said = {name: tidied_setting(fields[name], value) for name, value in values.items()}
    return said if partly else {name: value for name, value in said.items() if value is not None}


def _secret_names(kind: str) -> frozenset[str]:
    return KINDS[kind].secrets


def _apart(kind: str, said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What may be shown, and what may not."""
    hidden = _secret_names(kind)
    shown = {name: value for name, value in said.items() if name not in hidden}
    return shown, {name: value for name, value in said.items() if name in hidden}


def _opened(row: Channel) -> tuple[dict[str, str], bool]:
    try:
        return unseal(row.secrets, of=name_of(row)), True
    except UnreadableSecretsError:
        return {}, False


def _made_secret(row: Channel, hidden: dict[str, str], *, now: datetime) -> str | None:
    """A new secret of our own making, put where it belongs; None for a kind that has none."""
    if not any(field.name == "secret" and field.made for field in KINDS[row.kind].fields):
        return None
    hidden["secret"] = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
    row.settings["secret_made_at"] = iso(now)
    return hidden["secret"]


def _refuse_taken(name: str, owner: Any, *, besides: int | None = None) -> None:
    taken = Channel.objects.filter(owner=owner, deleted_at=None, name__iexact=name)
    if taken.exclude(pk=besides or 0).exists():
        refuse([("name", Reason("channel-name-taken"))])


def _ours() -> set[str]:
    port = reaches(settings.BASE_URL).rpartition(":")[2]
    return {f"{host.strip('[]')}:{port}" for host in settings.ALLOWED_HOSTS}


def _names(row: Channel, hidden: Mapping[str, str]) -> list[str]:
    """Which secrets somebody has said, for who may know that much."""
    return sorted(key for key in hidden if key in fields_of(row.kind))


def _told(row: Channel, hidden: Mapping[str, str], *, readable: bool = True) -> dict[str, Any]:
    """What the timeline may tell of a channel: everybody reads it, so what one has alone is not among it."""
    names = _names(row, hidden)
    shown = {key: value for key, value in row.settings.items() if key in fields_of(row.kind)}
    if row.owner_id is None:
        told = {key: _shortened(value) if key == "url" else value for key, value in shown.items()}
    else:
        told = {key: f"{SET}…{_sign(str(value))}" for key, value in shown.items()}
    unread = {} if readable else dict.fromkeys(_secret_names(row.kind) & set(fields_of(row.kind)), UNREADABLE)
    return {"name": row.name, "enabled": row.enabled, **told, **unread, **dict.fromkeys(names, SET)}


def _shortened(address: str) -> str:
    """Where it leads, and a sign by which it is told from another: what stands behind the host may be a secret."""
    url = urlsplit(address)
    origin = f"{url.scheme}://{url.netloc}"
    return origin if address.rstrip("/") == origin else f"{origin}/…{_sign(address)}"


def _sign(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def _note(
    kind: EntryKind,
    row: Channel,
    actor: Actor,
    *,
    now: datetime,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    told = {"channel_id": row.pk, "channel": row.name, "channel_kind": row.kind, "own": row.owner_id is not None}
    tell(kind, actor, at=now, before=before, after=after, **told)


# What a person had alone, and what a token made, when these end.


def end_made_with(token: ApiToken, *, actor: Actor, now: datetime) -> None:
    """Switch off the channels that a token made, inside the transaction that revokes it."""
    own = Channel.objects.select_for_update().filter(made_with=token, enabled=True, deleted_at=None)
    for channel in own.order_by("pk"):
        Channel.objects.filter(pk=channel.pk).update(enabled=False, changed_at=now)
        named = {"channel_id": channel.pk, "channel": channel.name, "channel_kind": channel.kind, "own": True}
        tell(EntryKind.CHANNEL_CHANGED, actor, at=now, before={"enabled": True}, after={"enabled": False}, **named)


def count_own(person: User) -> int:
    """Return how many channels a person has alone."""
    return Channel.objects.filter(owner=person).count()


def empty_own(person: User, now: datetime) -> None:
    """Erase what is personal in a person's own channels and routes. The rows stay for the log of messages."""
    called = erased_name(person.pk)
    channels, routes = Channel.objects.filter(owner=person), Route.objects.filter(owner=person)
    Reference.objects.filter(channel__in=channels).delete()
    RouteVersion.objects.filter(route__in=routes).update(name=called, wording="")
    over = {"enabled": False, "changed_at": now}
    routes.update(name=called, **over)
    channels.update(name=called, settings={}, secrets="", last_error="", last_answer="", **over)
    for rows in (channels, routes):
        rows.filter(deleted_at=None).update(deleted_at=now)
