"""Fields of requests whose limits the schema states and an operation refuses in its own words: those of routes."""

from collections.abc import Iterable

from rest_framework import serializers

from fleet.api.shapes.strict import ToldList, ToldNumber, ToldText

MAX_NUMBER = 2**31 - 1
WEEKDAYS = "Numbers from 0 (Monday) to 6; empty: every day."
FROM_TIME = "Local time, included, such as `22:00`; null: from midnight."
UNTIL_TIME = "Local time, not included; may pass midnight; null: until midnight."
TIME_ZONE = "An IANA name such as `Europe/Berlin`."
SET_PATTERN = "A name with `*` and `?`, without case; empty: every set."
SERVICE = "A service, with `*` and `?`; empty: every one."
RESOURCE_GROUP = "A resource group, with `*` and `?`; empty: every one."


def seconds(help_text: str) -> serializers.IntegerField:
    told = {"minimum": 0, "maximum": MAX_NUMBER}
    return ToldNumber(
        told=told, required=False, allow_null=True, min_value=-MAX_NUMBER, max_value=2**62, help_text=help_text
    )


def text(help_text: str, *, most: int, required: bool = False) -> serializers.CharField:
    told = {"maxLength": most}
    return ToldText(told=told, required=required, allow_blank=True, max_length=10_000, help_text=help_text)


def words(help_text: str, known: Iterable[str]) -> serializers.ListField:
    told = {"items": {"enum": list(known)}}
    child = serializers.CharField(max_length=100)
    return ToldList(told=told, child=child, required=False, max_length=50, help_text=help_text)


def days() -> serializers.ListField:
    told = {"items": {"minimum": 0, "maximum": 6}}
    child = serializers.IntegerField(min_value=-9, max_value=9)
    return ToldList(told=told, child=child, required=False, max_length=50, help_text=WEEKDAYS)
