"""Where the database can name a person, and what becomes of it when that person is forgotten.

Each column that holds text, JSON or bytes, or that leads to an account, stands in `COLUMNS` or in `NAMES_NOBODY`; but
where a row goes with its account (`Fate.GOES`), nothing has to be said of its other columns. A test compares both with
the models. Columns are named `app.Model.column`.
"""

from collections.abc import Mapping
from enum import StrEnum


class Fate(StrEnum):
    """What becomes of a column when somebody is forgotten."""

    # The one place that says whom a pseudonym means: the name gives way to the pseudonym.
    NAME = "name"
    # It is emptied.
    EMPTIED = "emptied"
    # The row goes, of all whom this column leads to.
    GOES = "goes"
    # It leads to the account, and shows what that is called then.
    LEADS = "leads"
    # A name in a text of ours, which gives way to the pseudonym.
    REPLACED = "replaced"
    # Emptied where the person had it alone; what is the installation's stays.
    OWN = "own"
    # Sealed. It names the pseudonym; lines of before 0.2.0 hold the name, which is shown nowhere any more.
    SEALED = "sealed"
    # People's own words, and those of receivers: nobody knows whom they name. They stay.
    TYPED = "typed"
    # From where and with what somebody acted, under a seal. It stays.
    TRACE = "trace"


def _each(fate: Fate, columns: str) -> dict[str, Fate]:
    return dict.fromkeys((name if name.count(".") == 2 else f"fleet.{name}" for name in columns.split()), fate)


COLUMNS: Mapping[str, Fate] = {
    **_each(Fate.NAME, "auth.User.username"),
    **_each(Fate.EMPTIED, "auth.User.first_name auth.User.last_name auth.User.email auth.User.password"),
    **_each(
        Fate.GOES,
        "auth.User_groups.user auth.User_user_permissions.user admin.LogEntry.user Profile.user Scope.user"
        " ApiToken.user CalendarFeed.user OutsideAccount.user KnownDevice.user StoredAnswer.user SavedView.owner"
        " PersonSession.user ServiceAccount.user SignOn.user account.EmailAddress.user mfa.Authenticator.user"
        " socialaccount.SocialAccount.user",
    ),
    # Found without a column that leads to the account: sessions by what they hold, failed logins by their key.
    **_each(Fate.GOES, "sessions.Session.session_data LoginAttempts.key"),
    **_each(
        Fate.LEADS,
        "JoinToken.created_by Rule.author NoApprovalWindow.author Wave.created_by Approval.decided_by"
        " Approval.consented_by Claim.by Hold.by Drill.started_by Channel.owner Route.owner"
        " Approval.decided_for ServiceAccount.owner ApiToken.made_by AvailabilitySet.lowering_by"
        " AccountLink.account AccountLink.person",
    ),
    **_each(
        Fate.REPLACED,
        "Admission.admitted_by Stop.stopped_by Stop.lifted_by Wave.reason Approval.reason Approval.overrides"
        " Drill.reason",
    ),
    **_each(
        Fate.OWN,
        "Channel.name Channel.settings Channel.secrets Channel.last_error Channel.last_answer Route.name"
        " RouteVersion.name RouteVersion.wording Reference.value",
    ),
    **_each(Fate.SEALED, "Entry.actor Entry.text Entry.before Entry.after Entry.data"),
    **_each(
        Fate.TYPED,
        "JoinToken.comment Rule.name Rule.reason NoApprovalWindow.name NoApprovalWindow.reason Stop.why Stop.lifted_why"
        " Wave.comment Wave.token_name Approval.comment Approval.token_name Approval.consent_comment"
        " Approval.rule_wording Claim.comment Claim.token_name Hold.reason Hold.token_name Hold.rule_wording"
        " Drill.comment Drill.token_name Entry.why Entry.token_name Message.data DeliveryAttempt.answer",
    ),
    **_each(Fate.TRACE, "Entry.request_id Entry.address Approval.request_id Approval.trace_id"),
}

# What says something of machines, of Azure or of the installation itself.
NAMES_NOBODY: Mapping[str, str] = {
    "fleet.AccountLink": "kind",
    "fleet.Admission": "ask_hash vm_id resource_name said attested address agent_version",
    "fleet.Approval": "state via when decided_on",
    "fleet.ArchiveFile": "kind manifest hash",
    "fleet.ArchiveState": "name fault held",
    "fleet.AvailabilitySet": "key kind name subscription resource_group service apart lowering",
    "fleet.Cache": "host source tier service",
    "fleet.Channel": "kind",
    "fleet.Claim": "via",
    "fleet.Coverage": "state reason",
    "fleet.Cursor": "name",
    "fleet.DeliveryAttempt": "error",
    "fleet.DocumentBody": "hash body flags",
    "fleet.Drill": "via outcome",
    "fleet.Entrance": "policy chosen subscriptions",
    "fleet.Entry": "kind via",
    "fleet.FormerName": "hash",
    "fleet.Hold": "via",
    "fleet.HookCall": "key",
    "fleet.Instruction": "what data delivered_by outcome reason",
    "fleet.InventoryMachine": (
        "resource_id name subscription resource_group set_kind set_name set_subscription set_resource_group"
        " placement_group vm_id zone region size os_type"
    ),
    "fleet.JoinToken": "prefix secret_hash set_name confined_to",
    "fleet.LastRun": "name via snapshot times",
    "fleet.LatestDocument": "document_hash",
    "fleet.Machine": (
        "vm_id resource_name called stated_set token_set confined_to set_source set_warnings zone region size os_type"
        " compute agent_version credential_hash warnings"
    ),
    "fleet.Maintenance": "source status",
    "fleet.Message": "moment subject only_if severity service state why",
    "fleet.MessageDelivery": "moment group state why",
    "fleet.NoApprovalWindow": "weekdays time_zone set_pattern service resource_group",
    "fleet.Nonce": "nonce",
    "fleet.Notification": "source raw raw_base64 raw_hash type ip_address flags",
    "fleet.Observation": "kind data flag",
    "fleet.OpenTrouble": "key code of names values",
    "fleet.Order": "state spelled delivered_by outcome azure_body reason",
    "fleet.Preparation": "prepare_outcome prepare_failed_hook recover_outcome recover_failed_hook",
    "fleet.PresenceRow": "signatures",
    "fleet.PushKey": "name public_key private_key",
    "fleet.Reference": "subject",
    "fleet.RefusedEnrolment": "code vm_id name address reason",
    "fleet.Rehearsal": "left_out gone_reason",
    "fleet.Route": ("moments event_types sources severities set_pattern service resource_group weekdays time_zone"),
    "fleet.Rule": "action event_types sources set_pattern service resource_group weekdays time_zone accepts",
    "fleet.ScheduledEvent": "event_type resource_type source description resources event_id status ended_as certainty"
    " warnings kept",
    "fleet.Seal": "previous_hash hash",
    "fleet.SetAside": "what reason",
    "fleet.SetBlindSpot": "code set_name part certainty values",
    "fleet.SetCount": "judged_by",
    "fleet.Sighting": "event_type resource_type source description resources spelled status",
    "fleet.SigningKey": "key_id public_key private_key introduced_by introduction retired_by retirement",
    "fleet.SignOnGrant": "value group scopes",
    "fleet.Spool": "spool",
    "fleet.UnusedKey": "found_by proved_by ask_hash",
    "fleet.WaitingReport": "what about",
    "fleet.Wave": "service state via",
    "fleet.WrongClock": "process kind",
    # It goes with the address that it confirms, or the account that it is of.
    "account.EmailConfirmation": "key",
    "socialaccount.SocialToken": "token token_secret",
    "socialaccount.SocialApp": "provider provider_id name client_id secret key settings",
    "auth.Group": "name",
    "auth.Permission": "name codename",
    "contenttypes.ContentType": "app_label model",
    "sessions.Session": "session_key",
}


def names_nobody() -> frozenset[str]:
    return frozenset(f"{model}.{name}" for model, names in NAMES_NOBODY.items() for name in names.split())


def with_fate(fate: Fate) -> tuple[str, ...]:
    """The columns of which this becomes."""
    return tuple(name for name, found in COLUMNS.items() if found is fate)
