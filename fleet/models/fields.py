"""Model fields that define valid input once, for page forms, API serializers and direct callers.

In the database they are plain text and JSON. So changed lengths, choices and help texts need no migration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.db import models
from django.utils.text import capfirst

from fleet.domain.policy.hours import zone_of
from fleet.domain.texts import prose, tidy

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    TextField = models.TextField[str, str]
else:
    TextField = models.TextField
# Characters that no web address contains unescaped.
UNSAFE_IN_ADDRESS = re.compile(r"""[\s"<>\\`]""")


def validate_time_zone(name: str) -> None:
    """Raise ValidationError if the name is not an IANA time zone."""
    try:
        zone_of(name)
    except ValueError:
        text = f"There is no time zone “{name}”: use an IANA name such as Europe/Berlin, or UTC."
        raise ValidationError(text) from None


def validate_web_address(text: str) -> None:
    """Raise ValidationError unless the text is an http or https address without user name and password."""
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in url.netloc or UNSAFE_IN_ADDRESS.search(text):
        raise ValidationError("Enter an address that begins with https:// or http://, without user name and password.")


def user_column(
    on_delete: Any = models.PROTECT, *, db_index: bool = True
) -> models.ForeignKey[User | None, User | None]:
    """Return an optional column for a user account."""
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete, null=True, blank=True, related_name="+", db_index=db_index
    )


class Line(TextField):
    """Field for one line of text, stored without surrounding spaces and invisible characters.

    With `paragraph`, line breaks are stored, too.
    """

    def __init__(self, *args: Any, max_length: int = 200, paragraph: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **{"max_length": max_length, **kwargs})
        self.tidy = prose if paragraph else tidy
        self.validators.append(MaxLengthValidator(max_length))

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, _, args, kwargs = super().deconstruct()
        kwargs.pop("max_length", None)
        return name, "django.db.models.TextField", args, kwargs

    def to_python(self, value: Any) -> Any:
        value = super().to_python(value)
        return self.tidy(value) if isinstance(value, str) else value

    def formfield(self, **kwargs: Any) -> Any:
        empty = {"empty_value": self.default} if self.default and self.has_default() else {}
        return super().formfield(**{**({} if self.choices else {"widget": forms.TextInput, **empty}), **kwargs})


class ListOf(models.JSONField):
    """Field for a JSON list of distinct, sorted values. `each` is the model field of one value.

    `ticks` are the choices that a page offers, if they are not the choices of `each`.
    """

    def __init__(
        self, *args: Any, each: models.Field[Any, Any] | None = None, ticks: Iterable[Any] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **{"default": list, "blank": True, **kwargs})
        self.each = each or models.JSONField()
        self.ticks = list(ticks) or list(self.each.choices or ())

    def contribute_to_class(self, cls: Any, name: str, private_only: bool = False) -> None:
        super().contribute_to_class(cls, name, private_only)
        # Serializers look there for constraints.
        self.each.model = cls

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs

    def to_python(self, value: Any) -> Any:
        return sorted({self.each.to_python(one) for one in value})

    def validate(self, value: Any, model_instance: Any) -> None:
        for one in value:
            self.each.clean(one, model_instance)

    def formfield(self, **kwargs: Any) -> Any:
        return forms.TypedMultipleChoiceField(
            label=capfirst(str(self.verbose_name)),
            required=False,
            choices=self.ticks,
            coerce=self.each.to_python,
            widget=forms.CheckboxSelectMultiple,
        )
