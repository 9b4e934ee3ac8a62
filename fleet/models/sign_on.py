"""Single sign-on: what a provider's roles and groups make of people here, and who has come from there."""

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from fleet.domain.people import GROUPS
from fleet.domain.sign_on import Grant
from fleet.models.cipher import Cipher

CIPHER = Cipher("drydock refresh tokens")


class SignOnGrant(models.Model):
    """One line of the mapping: whoever's claim holds `value` is in `group`, in `scopes` (`[kind, pattern]` each)."""

    value = models.TextField(unique=True)
    group = models.TextField()
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(group__in=list(GROUPS)), name="sign_on_grant_group_known")]

    def __str__(self) -> str:
        return f"{self.value}: {self.group}"

    @property
    def grant(self) -> Grant:
        return Grant(self.value, self.group, tuple((kind, pattern) for kind, pattern in self.scopes))


class SignOn(models.Model):
    """An account at the provider, and whose it is here; nobody's while `user` is None: who was refused, or has only
    been announced.

    `subject` names it for good, `name` as it was called there last; `values` are the roles or groups of its last
    token. Sessions that began there end at `good_until`. `look_at`: when the provider is asked again, by the refresh
    token, which is encrypted; None where it is not. `refused` is the stored reason of the last refusal.
    """

    issuer = models.TextField()
    subject = models.TextField()
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="sign_on"
    )
    name = models.TextField(blank=True, default="")
    values = models.JSONField(default=list)
    refused = models.TextField(blank=True, default="")
    refresh_token = models.TextField(blank=True, default="")
    seen_at = models.DateTimeField(null=True, blank=True)
    linked_at = models.DateTimeField(null=True, blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)
    good_until = models.DateTimeField(null=True, blank=True)
    look_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="sign_on_subject_once")]
        indexes = [
            models.Index(fields=["look_at"], condition=Q(look_at__isnull=False), name="sign_on_due"),
            models.Index(fields=["seen_at"], condition=Q(user=None), name="sign_on_strangers"),
        ]

    def __str__(self) -> str:
        return f"{self.name or self.subject} at {self.issuer}"

    def keep_refresh_token(self, token: str) -> None:
        """Encrypted, for this row alone; an empty one is forgotten."""
        self.refresh_token = CIPHER.encrypt(token.encode(), of=self.subject) if token else ""

    def read_refresh_token(self) -> str:
        """Empty where there is none, or where no key that is known here reads it."""
        plain: Any = CIPHER.decrypt(self.refresh_token, of=self.subject) if self.refresh_token else None
        return plain.decode() if plain else ""
