"""What comes back from channels: calls that are signed with a channel's secret, each taken once.

They claim events, through the same operation as the pages, and nothing else.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction

from fleet.domain.actor import Actor
from fleet.domain.refusal import Refused
from fleet.models import Channel, Claim, HookCall, ScheduledEvent
from fleet.operations.approvals import claims
from fleet.operations.messages.credentials import UnreadableSecretsError, in_use

# A call that was taken is known for so long: longer than any of them counts as new.
KNOWN_FOR = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class HookChannel:
    """A channel that calls come back to."""

    id: int
    name: str
    signing_secret: str = field(repr=False)


def channel_of(*, channel_id: int, kind: str, now: datetime) -> HookChannel | None:
    """The channel of this kind and row id, if calls may come back to it."""
    row = Channel.objects.filter(pk=channel_id, kind=kind, enabled=True, deleted_at__isnull=True, owner=None).first()
    if row is None:
        return None
    try:
        secret = str(in_use(row, now=now).get("signing_secret") or "")
    except UnreadableSecretsError:
        return None
    return HookChannel(row.pk, row.name, secret) if secret else None


def claim_once(*, channel_id: int, key: str, event_id: str, actor: Actor, now: datetime) -> Claim | None:
    """Claim an event for whoever pressed or acknowledged, unless this very call was taken before (None).

    A call that is refused was taken, too. Raises Refused as `claims.claim` does.
    """
    try:
        with transaction.atomic():
            if not _first(channel_id, key, now=now):
                return None
            return claims.claim(event_id=event_id, actor=actor, now=now)
    except Refused:
        _first(channel_id, key, now=now)
        raise


def event_of(subject: str) -> str:
    """The EventId behind `event:7`; empty where the subject is no event."""
    kind, _, number = subject.partition(":")
    if kind != "event" or not number.isdecimal():
        return ""
    return ScheduledEvent.objects.filter(pk=int(number)).values_list("event_id", flat=True).first() or ""


def _first(channel_id: int, key: str, *, now: datetime) -> bool:
    HookCall.objects.filter(at__lt=now - KNOWN_FOR).delete()
    return HookCall.objects.get_or_create(channel_id=channel_id, key=key, defaults={"at": now})[1]
