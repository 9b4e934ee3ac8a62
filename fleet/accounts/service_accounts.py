"""Service accounts, and periodic maintenance of credentials: expiry notifications, revocation of credentials that an
expired token created, and removal of expired sessions.
"""

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q
from rest_framework import serializers

from fleet.accounts import logins, sessions
from fleet.accounts import services as account_services
from fleet.accounts.services import MakePersonSerializer, PersonAudit, PersonForm
from fleet.domain.actor import COMMAND_LINE, DRYDOCK, Actor
from fleet.domain.reasons import Reason, require_found
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken, ServiceAccount
from fleet.models.people import service_of
from fleet.operations import control
from fleet.operations.audited import AuditedForm, AuditedSerializer, Sent, Values, save_audited
from fleet.operations.rights import require_administrator
from fleet.operations.timeline.entries import tell

# Days before expiry at which a token is reported, if it is valid for at least twice as long.
WEEK, DAY = 7, 1
# Limit per run.
MOST = 500


def tidy_up(*, now: datetime) -> None:
    """Run all periodic maintenance of credentials once."""
    tell_expiring(now=now)
    end_what_ended_tokens_made(now=now)
    logins.forget_sessions(now=now)


@transaction.atomic
def tell_expiring(*, now: datetime) -> int:
    """Write a timeline entry for each token that expires within a week, and another one within a day. Return the number
    of entries. Row locks ensure that concurrent runs write each entry once.
    """
    day, week = now + timedelta(days=DAY), now + timedelta(days=WEEK)
    in_a_week = Q(notified_days=None, expires_at__gt=day, expires_at__lte=week) & _lives(2 * WEEK)
    in_a_day = (
        (Q(notified_days=None) | Q(notified_days__gt=DAY))
        & Q(expires_at__gt=now, expires_at__lte=day)
        & _lives(2 * DAY)
    )
    rows = ApiToken.objects.select_for_update(of=("self",), skip_locked=True).select_related("user")
    expiring = list(
        rows.filter(in_a_week | in_a_day, revoked_at=None, user__is_active=True).order_by("expires_at", "pk")[:MOST]
    )
    for row in expiring:
        row.notified_days = DAY if row.expires_at is not None and row.expires_at <= day else WEEK
        row.save(update_fields=["notified_days"])
        names = {"person": row.user.get_username(), "name": row.name, "token": row.prefix}
        tell(EntryKind.TOKEN_EXPIRES, DRYDOCK, at=now, expires_at=row.expires_at, **names)
    return len(expiring)


@transaction.atomic
def end_what_ended_tokens_made(*, now: datetime) -> int:
    """Revoke everything that was created with an API token which has since expired or been revoked. Return the number
    of these API tokens.

    Created tokens stop working even before this runs, because each use also checks the token that created them.
    """
    over = Q(revoked_at__isnull=False) | Q(expires_at__lte=now)
    left = (
        Q(made__revoked_at=None, made__isnull=False)
        | Q(join_tokens__revoked_at=None, join_tokens__isnull=False)
        | Q(channels__enabled=True, channels__deleted_at=None, channels__isnull=False)
    )
    ended = list(ApiToken.objects.filter(over).filter(left).distinct().order_by("pk")[:MOST])
    for row in ended:
        sessions.end_made_with(row, actor=DRYDOCK, now=now)
    return len(ended)


def _lives(days: int) -> Q:
    return Q(expires_at__gte=F("created_at") + timedelta(days=days))


# Service accounts: created by administrators, owned by a user, and authenticated by tokens alone.


def _owner_named(name: str) -> User:
    owner = User.objects.filter(username=name, is_active=True, service_account=None).first()
    if owner is None:
        raise ValidationError("Enter the name of a user who has access: they own the service account.")
    return owner


def _purpose(text: str) -> Any:
    return ServiceAccount._meta.get_field("purpose").clean(text, None)


class ServiceForm(AuditedForm):
    owner = forms.CharField(label="Owner", max_length=150)

    class Meta(AuditedForm.Meta):
        model, fields = ServiceAccount, ("owner", "purpose")

    def clean_owner(self) -> User:
        return _owner_named(self.cleaned_data["owner"])

    def clean_purpose(self) -> Any:
        return _purpose(self.cleaned_data["purpose"])


class NewServiceForm(PersonForm):
    """Form for a new service account. Owner and purpose are attributes of the user object until they are stored."""

    owner, purpose = ServiceForm.base_fields["owner"], ServiceForm.base_fields["purpose"]
    clean_owner, clean_purpose = ServiceForm.clean_owner, ServiceForm.clean_purpose


class ChangeServiceSerializer(AuditedSerializer):
    owner = serializers.CharField(required=False, max_length=150, help_text="The user who owns it.")

    class Meta:
        model, fields = ServiceAccount, ("owner", "purpose")
        extra_kwargs = {"purpose": {"required": False}}

    def validate_owner(self, name: str) -> User:
        return _owner_named(name)

    def validate_purpose(self, text: str) -> Any:
        return _purpose(text)


class MakeServiceSerializer(MakePersonSerializer):
    """Serializer for a new service account in an API call; it has the fields of `NewServiceForm`."""

    validate_owner, validate_purpose = ChangeServiceSerializer.validate_owner, ChangeServiceSerializer.validate_purpose

    def get_fields(self) -> Any:
        own = ChangeServiceSerializer().get_fields()
        for field in own.values():
            field.required = True
        return super().get_fields() | own


class ServiceAudit(PersonAudit):
    """Timeline entries about service accounts: owner and purpose, and for a new account its rights."""

    def values(self, row: Any) -> Values:
        rights = super().values(row) if isinstance(row, User) else {}
        return {"owner": row.owner and row.owner.get_username(), "purpose": row.purpose, **rights}


MADE, CHANGED = ServiceAudit("service-made"), ServiceAudit("service-changed", of="user.username")


@transaction.atomic
def make(sent: Sent, *, now: datetime, actor: Actor = COMMAND_LINE) -> ServiceAccount:
    """Create a service account. It never has a password. Raises Refused as `save_audited` does."""
    require_administrator(actor)
    user: Any = account_services.make_account(sent, MADE, password=None, actor=actor, now=now)
    control.note(control.OWNER, user, user.owner, now=now)
    return ServiceAccount.objects.create(user=user, owner=user.owner, purpose=user.purpose, created_at=now)


@transaction.atomic
def change(sent: Sent, *, username: str, now: datetime, actor: Actor = COMMAND_LINE) -> ServiceAccount:
    """Change the owner or purpose of a service account. Raises Refused: `unknown-person`, and as `save_audited`
    does.
    """
    user = account_services.changeable(username, actor)
    row = require_found(service_of(user), "validation", Reason("service-unknown", name=username))
    former = row.owner
    save_audited(sent, actor, CHANGED, row=row, now=now)
    if row.owner != former:
        # Keep the former owner in the record of control.
        control.note(control.OWNER, user, former, now=now)
        control.note(control.OWNER, user, row.owner, now=now)
    return row
