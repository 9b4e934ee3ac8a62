"""What callers send."""

from typing import Any

from django.conf import settings
from rest_framework import serializers

from fleet.domain.sets import MAX_NEEDS, NAMED_KINDS
from fleet.operations.inputs import RequestSerializer, Time


def comment_field(**kwargs: Any) -> serializers.CharField:
    return serializers.CharField(max_length=2000, allow_blank=True, **kwargs)


class WhySerializer(RequestSerializer):
    comment = comment_field(required=False, default="", help_text="Why; it stands in the timeline.")


class NameSetSerializer(RequestSerializer):
    name = serializers.CharField(
        required=False, max_length=200, help_text="The name that a provisional set gets; another one has its name."
    )
    kind = serializers.ChoiceField(
        NAMED_KINDS, required=False, help_text="With a name; `availability_set` if nothing is said."
    )
    service = serializers.CharField(
        required=False, allow_blank=True, max_length=200, help_text="What it belongs to; empty for nothing."
    )

    second_person = serializers.BooleanField(
        required=False, help_text="Whether approving in it always takes a second person."
    )
    step_up = serializers.BooleanField(
        required=False,
        help_text="Whether whoever approves in it is asked again who they are; no token approves in it then.",
    )
    step_up_spares_services = serializers.BooleanField(
        required=False,
        help_text=(
            "Whether service accounts approve in it all the same: nobody can ask them. A person's token never does."
        ),
    )
    needs_live = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MAX_NEEDS,
        help_text="How many live machines it needs to do its work; 0 where nobody says.",
    )

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if not values:
            raise serializers.ValidationError(
                "Say a name, a service, `second_person`, `step_up`, `step_up_spares_services` or `needs_live`."
            )
        return values


class MergeSetSerializer(RequestSerializer):
    into = serializers.IntegerField(
        min_value=1, max_value=2**63 - 1, help_text="The id of the set that remains; this one goes into it."
    )


class AdmissionsRequestSerializer(WhySerializer):
    ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**63 - 1),
        min_length=1,
        max_length=1000,
        help_text="Ids of those who wait.",
    )


class AdmissionRuleSerializer(WhySerializer):
    until = Time(allow_null=True, help_text="At most 7 days from now; null ends it at once.")


class MoveRequestSerializer(WhySerializer):
    set = serializers.IntegerField(
        allow_null=True, min_value=1, help_text="The id of a set that has a name; null lifts the machine's confinement."
    )


class JoinTokenRequestSerializer(RequestSerializer):
    comment = comment_field(help_text="What it is for.")
    expires_in_seconds = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=366 * 86400,
        default=lambda: settings.JOIN_TOKEN_SECONDS,
        help_text="Default: the setting JOIN_TOKEN_SECONDS.",
    )
    set = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=300,
        default="",
        help_text="As `kind:name`: the set in which machines that enrol by it are, and no other.",
    )
    set_id = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        default=None,
        help_text="The same by the id of a set that is here, where two have one name.",
    )
    max_uses = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=100_000,
        default=None,
        help_text="How many machines it admits; as many as ask if nothing is said.",
    )
