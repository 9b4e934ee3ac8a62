"""Accounts that are no people: of a pipeline or a script, with somebody who answers for it."""

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models


class ServiceAccount(models.Model):
    """That an account is no person. It comes in by tokens alone. `owner` is the person who answers for it: None, or one
    who may not log in any more, and nobody does.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="service_account"
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    purpose = models.TextField()
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"service account {self.user_id}"


def service_of(account: object) -> ServiceAccount | None:
    """What is said of this account where it is a service account; None for a person. At most one query."""
    if not isinstance(account, User):
        return None
    found: ServiceAccount | None = getattr(account, "service_account", None)
    return found
