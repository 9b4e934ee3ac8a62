"""Single sign-on: the mapping, accounts at the provider, and who would be what."""

from rest_framework import serializers

from fleet.api.shapes.derive import shape
from fleet.api.shapes.people import ScopeSerializer
from fleet.api.shapes.strict import RequestSerializer
from fleet.domain.people import GROUPS
from fleet.domain.sign_on import LONGEST_SUBJECT, LONGEST_VALUE
from fleet.operations.people.mapping import MOST_GRANTS
from fleet.projections.sign_on import GrantRow, MappingTrial, SignOnRow, WouldBe

SCOPES = "Sets in which they may act; none at all: everywhere."
GROUP = "The group by the mapping; empty: nothing at all."

GrantShape = shape(
    GrantRow,
    {"value": "A role or group, as the token has it."},
    group=serializers.ChoiceField(GROUPS, help_text="What whoever has it is here."),
    scopes=ScopeSerializer(many=True, help_text=SCOPES),
)
SignOnShape = shape(
    SignOnRow,
    {
        "subject": "What names it for good: Entra's object id, elsewhere `sub`.",
        "name": "What it was called there last.",
        "person": "Whose it is here; empty where nobody has let it in.",
        "values": "The roles or groups that it had last.",
        "refused": "Why it was not let in, as a sentence; null where it was.",
        "seen_at": "When it last logged in; null where it was only announced.",
        "checked_at": "When the provider last said yes.",
        "good_until": "Until when its sessions go on without another yes.",
    },
)
WouldShape = shape(
    WouldBe,
    {
        "name": "What the account is called.",
        "person": "Whose it is here.",
        "values": "Its roles or groups.",
        "group_now": "The group of now; empty: none.",
        "changes": "Whether anything would be another.",
    },
    properties=("changes",),
    group=serializers.CharField(help_text=GROUP),
    scopes_now=ScopeSerializer(many=True, help_text="Where they may act now."),
    scopes=ScopeSerializer(many=True, help_text=SCOPES),
)
MappingDryRunShape = shape(
    MappingTrial,
    {
        "rows": "Accounts that are known, those first that would change; at most 500.",
        "changed": "How many of them would change.",
        "pasted": "Whoever the claims are about; null without any.",
        "fault": "What is wrong with the claims, as a sentence.",
        "left_without": "Whether nobody would be an admin.",
    },
    name="MappingDryRun",
)


class GrantRequestSerializer(RequestSerializer):
    value = serializers.CharField(max_length=LONGEST_VALUE, help_text="A role or group, as the token has it.")
    group = serializers.ChoiceField(GROUPS, help_text="What whoever has it is here.")
    scopes = ScopeSerializer(many=True, required=False, default=list, help_text=SCOPES)


class ChangeGrantSerializer(RequestSerializer):
    group = serializers.ChoiceField(GROUPS, required=False, help_text="What whoever has it is here.")
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
