"""People, their rights and their tokens."""

from dataclasses import dataclass

from django.conf import settings
from rest_framework import serializers

from fleet.accounts.queries import CarriedToken, Me, PersonRow, SessionRow, TokenRow
from fleet.accounts.services import SCOPE_KINDS
from fleet.accounts.sign_on import MOST_GRANTS
from fleet.accounts.sign_on_queries import GrantRow, MappingTrial, SignOnRow, WouldBe
from fleet.api.shapes.derive import shape
from fleet.domain.people import GROUPS, TOKEN_SCOPES
from fleet.domain.sign_on import LONGEST_SUBJECT, LONGEST_VALUE
from fleet.operations.inputs import RequestSerializer
from fleet.projections.people import OwnSettings

ALLOWED_FROM = "Networks from which its calls count, such as `10.0.0.0/8`; none: from everywhere."


class ScopeSerializer(RequestSerializer):
    kind = serializers.ChoiceField(SCOPE_KINDS, help_text="What of a set the pattern is compared with.")
    pattern = serializers.CharField(max_length=200, help_text="Without case; * is any text, ? any character.")


PersonShape = shape(
    PersonRow,
    {
        "pseudonym": "How logs and the sealed lines of the timeline name them, for ever.",
        "superuser": "May do whatever an admin may.",
        "active": "Whether they may come in at all.",
        "service": "It is no person, but a service account, which comes in by tokens alone.",
        "owner": "Who answers for a service account; empty where nobody does any more.",
        "purpose": "What a service account is for.",
        "forgotten": "The name was erased, and with it all that was personal.",
        "tokens": "How many tokens they have that were not ended.",
    },
    group=serializers.ChoiceField([*GROUPS, ""], help_text="The group that counts; empty for somebody in none."),
    scopes=ScopeSerializer(many=True, help_text="Sets in which they may act; none at all: everywhere."),
)
CarriedTokenShape = shape(CarriedToken, {"scopes": "What it may: `read`, `approve`, `admin`."})
OwnSettingsShape = shape(
    OwnSettings,
    {
        "time_zone": "An IANA name, `browser`, or empty for UTC. Pages alone go by it.",
        "shortcuts": "Whether pages listen to the keyboard's shortcuts.",
        "sound": "Whether pages sound when something new needs a decision.",
        "notifications": "Whether the browser notifies then, where it may.",
        "first_steps": "Whether the front page of an empty installation begins with the first steps.",
        "looked_until": "What changed until then, they have read on the page Handover; null before the first time.",
    },
)
MeShape = shape(Me, {"token": "The token of this call; null for a session."}, beside=("person", "settings"))
TokenShape = shape(
    TokenRow,
    {
        "prefix": "Its public beginning, by which it is named.",
        "scopes": "What it may, if its person may: `read`, `approve`, `admin`.",
        "last_used_at": "To the minute.",
        "allowed_from": ALLOWED_FROM,
    },
)
SessionShape = shape(
    SessionRow,
    {
        "browser": "Such as `Firefox`; empty where the browser does not tell.",
        "system": "Such as `Linux`; empty where the browser does not tell.",
        "way": (
            "How they came in: `password`, `password-factor`, `passkey`, `sign-on`, `proxy`; empty for a session that"
            " began before 0.2.0."
        ),
        "address": "From where they logged in; empty where that is not known.",
        "last_address": "From where the session was seen last.",
        "began_at": "Null where that is not known.",
        "last_seen_at": "Right to a few minutes.",
        "this": "Whether this very call came with it.",
    },
)


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """How many sessions have ended."""

    ended: int


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token and its secret."""

    row: TokenRow
    token: str


@dataclass(frozen=True, slots=True)
class NewPerson:
    """A person and the password that was made up."""

    person: PersonRow
    password: str


@dataclass(frozen=True, slots=True)
class Password:
    """Somebody's new password."""

    username: str
    password: str


NewTokenShape = shape(NewToken, {"token": "Shown this once."}, beside=("row",))
NewPersonShape = shape(
    NewPerson, {"password": "Shown this once; they change it on their own page."}, beside=("person",)
)
EndedSessionsShape = shape(EndedSessions, {"ended": "How many have ended."})
PasswordShape = shape(Password, {"password": "Shown this once."})


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


class MakePersonSerializer(RequestSerializer):
    username = serializers.CharField(max_length=150, help_text="Letters, digits and @ . + - _")
    group = serializers.ChoiceField(GROUPS)
    scopes = ScopeSerializer(many=True, required=False, default=list)


class MakeServiceSerializer(MakePersonSerializer):
    owner = serializers.CharField(max_length=150, help_text="The person who answers for it.")
    purpose = serializers.CharField(max_length=200, help_text="What it is for.")


class ChangeServiceSerializer(RequestSerializer):
    owner = serializers.CharField(required=False, max_length=150, help_text="The person who answers for it.")
    purpose = serializers.CharField(required=False, max_length=200, help_text="What it is for.")


class ChangePersonSerializer(RequestSerializer):
    group = serializers.ChoiceField(GROUPS, required=False)
    scopes = ScopeSerializer(many=True, required=False, help_text="All of them; an empty list: everywhere.")
    active = serializers.BooleanField(required=False)


# Single sign-on: the mapping, accounts at the provider, and who would be what.

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
