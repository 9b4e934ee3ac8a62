"""Registry of the kinds of notification channels.

Each kind is a module in this folder. It declares the settings of a channel of this kind, and renders and sends
notifications (see `fleet/notifications/channels/base.py`). `fleet/notifications/registration.py` imports the modules in
the order in which pages list them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.utils.text import capfirst

from fleet.models.fields import Line, ListOf, validate_time_zone, validate_web_address

MOST_LINES = 50


@dataclass(frozen=True, slots=True)
class ChannelKind:
    """A kind of channel: label, one sentence on its purpose, name of a lucide icon, and the `fields` of its settings.

    `secrets` are the fields that are encrypted and never shown again. `messages` is False if the kind mirrors open
    events instead of receiving messages. `personal`: a user may have one of their own. `follows`: it keeps an incident
    or a card for each subject, and receives everything about that subject until the end. `signs`: Drydock creates a
    secret with which it signs messages.
    """

    label: str
    good_for: str
    icon: str
    fields: "Mapping[str, models.Field[Any, Any]]"
    secrets: frozenset[str] = frozenset()
    messages: bool = True
    personal: bool = False
    follows: bool = False
    signs: bool = False

    def __post_init__(self) -> None:
        for name, field in self.fields.items():
            field.set_attributes_from_name(name)


# By name, which is the name of the module; filled by the modules in this folder.
KINDS: dict[str, ChannelKind] = {}


def kinds_where(**wanted: bool) -> list[str]:
    """Return the names of the kinds whose properties have these values, for example `kinds_where(follows=True)`."""
    return [name for name, kind in KINDS.items() if all(getattr(kind, each) is value for each, value in wanted.items())]


class Setting(Line):
    """Text setting of a channel, one line. `pattern` is the required regular expression; `wrong` is the message if it
    does not match.
    """

    def __init__(self, *args: Any, pattern: str = "", wrong: str = "", **kwargs: Any) -> None:
        checks = [RegexValidator(rf"\A(?:{pattern})\Z", wrong)] if pattern else []
        super().__init__(
            *args, **{"max_length": 2000, **kwargs, "validators": [*checks, *kwargs.get("validators", ())]}
        )


class Lines(ListOf):
    """Setting with several lines in order, without duplicates. Pages show a text box with one value in each line."""

    def to_python(self, value: Any) -> Any:
        lines = value.splitlines() if isinstance(value, str) else value
        return list(dict.fromkeys(filter(None, map(self.each.to_python, lines))))

    def validate(self, value: Any, model_instance: Any) -> None:
        if len(value) > MOST_LINES:
            raise ValidationError(f"Enter at most {MOST_LINES} lines.")
        super().validate(value, model_instance)

    def formfield(self, **kwargs: Any) -> Any:
        return LinesField(
            label=capfirst(str(self.verbose_name)),
            required=not self.blank,
            help_text=self.help_text,
            widget=forms.Textarea({"rows": "3"}),
        )


class LinesField(forms.CharField):
    """Form field for a setting with several lines."""

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value


def validate_url(address: str) -> None:
    """Raise ValidationError if the address is not an HTTP URL, or is Drydock's own address."""
    validate_web_address(address)
    if "#" in address:
        raise ValidationError("Enter an address without a fragment (#).")
    port = host_and_port(settings.BASE_URL).rpartition(":")[2]
    if host_and_port(address) in {f"{host.strip('[]')}:{port}".lower() for host in settings.ALLOWED_HOSTS}:
        raise ValidationError("This is Drydock's own address: it would notify itself endlessly.")


def host_and_port(address: str) -> str:
    """Return the host and port of a URL, in lower case."""
    url = urlsplit(address)
    return f"{url.hostname}:{url.port or (443 if url.scheme.lower() == 'https' else 80)}"


TIME_ZONE = Setting(
    blank=True,
    validators=[validate_time_zone],
    help_text="Times are written in it, such as Europe/Berlin, and in UTC. Empty: in UTC alone.",
)
