"""Serializers of users, their rights and their tokens."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from django.conf import settings
from rest_framework import serializers

from fleet.accounts.queries import ALLOWED_FROM, Me, PersonRow, ScopeRow, SessionRow, TokenRow
from fleet.accounts.services import SCOPE_KINDS
from fleet.accounts.sign_on import MOST_GRANTS
from fleet.accounts.sign_on_queries import ROLE, SCOPES, GrantRow, MappingTrial, SignOnRow, WouldBe
from fleet.api.shapes.derive import SHAPES, shape
from fleet.domain.people import GROUPS, TOKEN_SCOPES
from fleet.domain.shapes import InApi
from fleet.domain.sign_on import LONGEST_SUBJECT, LONGEST_VALUE
from fleet.operations.inputs import RequestSerializer


class ScopeSerializer(RequestSerializer):
    """A scope, which operations take as a pair of kind and pattern."""

    kind = serializers.ChoiceField(SCOPE_KINDS, help_text="The property of a set that the pattern is compared with.")
    pattern = serializers.CharField(max_length=200, help_text="Without case; * is any text, ? any character.")

    def validate(self, sent: dict[str, str]) -> Any:
        return sent["kind"], sent["pattern"]


SHAPES[ScopeRow] = ScopeSerializer
PersonShape = shape(
    PersonRow, group=serializers.ChoiceField([*GROUPS, ""], help_text="The highest group; empty for a user in none.")
)
MeShape = shape(Me)
TokenShape = shape(TokenRow)
SessionShape = shape(SessionRow)


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """Number of sessions that ended."""

    ended: Annotated[int, "How many have ended."]


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token and its secret."""

    row: Annotated[TokenRow, InApi.FLATTENED]
    token: Annotated[str, "Shown only in this answer."]


@dataclass(frozen=True, slots=True)
class NewPerson:
    """A user and the password that was generated."""

    person: Annotated[PersonRow, InApi.FLATTENED]
    password: Annotated[str, "Shown only in this answer; users change it on their own page."]


@dataclass(frozen=True, slots=True)
class Password:
    """The new password of a user."""

    username: str
    password: Annotated[str, "Shown only in this answer."]


NewTokenShape = shape(NewToken)
NewPersonShape = shape(NewPerson)
EndedSessionsShape = shape(EndedSessions)
PasswordShape = shape(Password)


class ChoicesSerializer(RequestSerializer):
    time_zone = serializers.CharField(
        required=False, allow_blank=True, max_length=100, help_text="An IANA name, `browser`, or empty for UTC."
    )
    shortcuts = serializers.BooleanField(required=False)
    sound = serializers.BooleanField(required=False)
    notifications = serializers.BooleanField(required=False)
    first_steps = serializers.BooleanField(required=False)


class EndSessionsSerializer(RequestSerializer):
    person = serializers.CharField(
        required=False,
        max_length=150,
        help_text="All of this person's, by an admin. Left out: one's own, but this one.",
    )


class MakeTokenSerializer(RequestSerializer):
    name = serializers.CharField(max_length=200, help_text="What it is for.")
    scopes = serializers.ListField(
        child=serializers.ChoiceField(list(TOKEN_SCOPES)), min_length=1, help_text="What it may."
    )
    expires_in_seconds = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=366 * 86400,
        default=lambda: settings.API_TOKEN_SECONDS,
        help_text="Default: the setting API_TOKEN_SECONDS.",
    )
    allowed_from = serializers.ListField(
        child=serializers.CharField(max_length=64),
        required=False,
        max_length=50,
        default=list,
        help_text=f"{ALLOWED_FROM} `10.0.0.7` is `10.0.0.7/32`; a network with bits of a host is refused.",
    )

    def validate(self, sent: dict[str, Any]) -> dict[str, Any]:
        seconds = sent.pop("expires_in_seconds")
        return {**sent, "expires_in": timedelta(seconds=seconds)}


class MakePersonSerializer(RequestSerializer):
    username = serializers.CharField(max_length=150, help_text="Letters, digits and @ . + - _")
    group = serializers.ChoiceField(GROUPS)
    scopes = ScopeSerializer(many=True, required=False, default=list)


class MakeServiceSerializer(MakePersonSerializer):
    owner = serializers.CharField(max_length=150, help_text="The user who owns it.")
    purpose = serializers.CharField(max_length=200, help_text="What it is for.")


class ChangeServiceSerializer(RequestSerializer):
    owner = serializers.CharField(required=False, max_length=150, help_text="The user who owns it.")
    purpose = serializers.CharField(required=False, max_length=200, help_text="What it is for.")


class ChangePersonSerializer(RequestSerializer):
    group = serializers.ChoiceField(GROUPS, required=False)
    scopes = ScopeSerializer(many=True, required=False, help_text="All of them; an empty list: everywhere.")
    active = serializers.BooleanField(required=False)


# Single sign-on: the mapping, accounts at the provider, and what a mapping would change.

GRANTED_GROUP = "The group that the role or group gives here."

GrantShape = shape(GrantRow, group=serializers.ChoiceField(GROUPS, help_text=GRANTED_GROUP))
SignOnShape = shape(SignOnRow)
shape(WouldBe)
MappingDryRunShape = shape(MappingTrial, name="MappingDryRun")


class GrantRequestSerializer(RequestSerializer):
    value = serializers.CharField(max_length=LONGEST_VALUE, help_text=ROLE)
    group = serializers.ChoiceField(GROUPS, help_text=GRANTED_GROUP)
    scopes = ScopeSerializer(many=True, required=False, default=list, help_text=SCOPES)


class ChangeGrantSerializer(RequestSerializer):
    group = serializers.ChoiceField(GROUPS, required=False, help_text=GRANTED_GROUP)
    scopes = ScopeSerializer(many=True, required=False, help_text="All of them; an empty list: everywhere.")


class MappingDryRunRequestSerializer(RequestSerializer):
    mapping = serializers.ListField(
        child=GrantRequestSerializer(),
        required=False,
        max_length=MOST_GRANTS,
        help_text="Lines in the place of those that count.",
    )
    claims = serializers.DictField(required=False, help_text="Claims of a token. Nothing of them is kept.")


class LinkSerializer(RequestSerializer):
    username = serializers.CharField(max_length=150, help_text="A person here.")
    subject = serializers.CharField(
        max_length=LONGEST_SUBJECT, help_text="The account's object id at Entra ID; elsewhere its `sub`."
    )
