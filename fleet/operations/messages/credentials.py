"""Secrets of channels: encrypted at rest with SECRET_KEY, and opened only to send.

They stand in no log, no entry, no answer and no page; whoever wants another one writes it anew.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import structlog

from fleet.models import Channel
from fleet.models.cipher import Cipher

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
