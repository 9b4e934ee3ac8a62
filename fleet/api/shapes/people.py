"""People, their rights and their tokens."""

from typing import Any

from django.conf import settings
from rest_framework import serializers

from fleet.api.shapes.base import Time, texts
from fleet.api.shapes.requests import RequestSerializer
from fleet.operations.membership import SCOPE_KINDS
from fleet.operations.people import SCOPES
from fleet.operations.rights import GROUPS


class ScopeSerializer(RequestSerializer):
    kind = serializers.ChoiceField(SCOPE_KINDS, help_text="What of a set the pattern is compared with.")
    pattern = serializers.CharField(max_length=200, help_text="Without case; * is any text, ? any character.")


class PersonSerializer(serializers.Serializer[Any]):
    username = serializers.CharField()
    group = serializers.ChoiceField([*GROUPS, ""], help_text="The group that counts; empty for somebody in none.")
    superuser = serializers.BooleanField(help_text="May do whatever an admin may.")
    active = serializers.BooleanField(help_text="Whether they may come in at all.")
    scopes = ScopeSerializer(many=True, help_text="Sets in which they may act; none at all: everywhere.")
    joined_at = Time()
    last_login_at = Time(allow_null=True)
    tokens = serializers.IntegerField(help_text="How many tokens they have that were not ended.")


class CarriedTokenSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    scopes = texts("What it may: `read`, `approve`, `admin`.")
    expires_at = Time(allow_null=True)


class MeSerializer(PersonSerializer):
    time_zone = serializers.CharField(help_text="An IANA name, `browser`, or empty for UTC. Pages alone go by it.")
    shortcuts = serializers.BooleanField(help_text="Whether pages listen to the keyboard's shortcuts.")
    token = CarriedTokenSerializer(allow_null=True, help_text="The token of this call; null for a session.")


class ChoicesSerializer(RequestSerializer):
    time_zone = serializers.CharField(
        required=False, allow_blank=True, max_length=100, help_text="An IANA name, `browser`, or empty for UTC."
    )
    shortcuts = serializers.BooleanField(required=False)


class TokenSerializer(serializers.Serializer[Any]):
    prefix = serializers.CharField(help_text="Its public beginning, by which it is named.")
    name = serializers.CharField()
    scopes = texts("What it may, if its person may: `read`, `approve`, `admin`.")
    created_at = Time()
    expires_at = Time(allow_null=True)
    last_used_at = Time(allow_null=True, help_text="To the minute.")
    ended_at = Time(allow_null=True)


class NewTokenSerializer(TokenSerializer):
    token = serializers.CharField(help_text="Shown this once.")


class MakeTokenSerializer(RequestSerializer):
    name = serializers.CharField(max_length=200, help_text="What it is for.")
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES), min_length=1, help_text="What it may.")
    expires_in_seconds = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=366 * 86400,
        default=lambda: settings.API_TOKEN_SECONDS,
        help_text="Default: the setting API_TOKEN_SECONDS.",
    )


class MakePersonSerializer(RequestSerializer):
    username = serializers.CharField(max_length=150, help_text="Letters, digits and @ . + - _")
    group = serializers.ChoiceField(GROUPS)
    scopes = ScopeSerializer(many=True, required=False, default=list)


class NewPersonSerializer(PersonSerializer):
    password = serializers.CharField(help_text="Shown this once; they change it on their own page.")


class ChangePersonSerializer(RequestSerializer):
    group = serializers.ChoiceField(GROUPS, required=False)
    scopes = ScopeSerializer(many=True, required=False, help_text="All of them; an empty list: everywhere.")
    active = serializers.BooleanField(required=False)


class PasswordSerializer(serializers.Serializer[Any]):
    username = serializers.CharField()
    password = serializers.CharField(help_text="Shown this once.")
