"""Words of the room of people: roles, rights and what refuses them."""

from collections.abc import Mapping
from typing import Any

from fleet.domain.people import ADMIN, APPROVER, OPERATOR, ROLES, VIEWER, Right
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.sentences import EntryText, Sentence, listed
from fleet.wording.times import Reader

# What somebody wanted to do, as the beginning of a sentence.
DOING = {
    "this": "This",
    "approve": "Approving",
    "claim": "Claiming",
    "give-back": "Giving a claim back",
    "hold": "Leaving an event to Azure",
    "lift": "Taking back what was left to Azure",
    "withdraw": "Withdrawing",
    "consent": "Being the second person",
    "override": "Overriding a guard that blocks",
    "make-token": "Making a token",
    "make-rule": "Making a rule",
    "begin-wave": "Beginning a wave",
    "stop-wave": "Stopping a wave",
    "drill": "Rehearsing",
    "stop-drill": "Stopping a drill",
    "stop-all": "Stopping all approvals",
    "lift-stop": "Lifting the stop",
}
# Where people have accounts that may claim for them.
OUTSIDE = {"slack": "Slack", "pagerduty": "PagerDuty"}
# What each role may, beside what those before it may.
MAY = {
    VIEWER: "reads everything",
    OPERATOR: "also claims, approves, and leaves events to Azure",
    APPROVER: "is also the second person, and may override guards that block",
    ADMIN: "also manages people, tokens, rules, sets and machines",
}


def named(group: str) -> str:
    """`an operator`"""
    return f"{'an' if group[0] in 'aeiou' else 'a'} {group}"


def role(right: Right) -> str:
    """`an operator`: who has this right."""
    return named(next(group for group, last in ROLES.items() if last is right))


def all_roles() -> str:
    """What each role may, in sentences."""
    return " ".join(f"{named(group).capitalize()} {MAY[group]}." for group in ROLES)


def right_missing(values: Mapping[str, Any], reader: Reader) -> str:
    doing = DOING.get(values["doing"], values["doing"])
    return f"{doing} needs the right of {role(Right(values['right']))}. Ask an admin of your installation."


def scope(values: Mapping[str, Any], reader: Reader) -> str:
    return f"{values['kind'].replace('_', ' ')} {values['pattern']}"


def scope_ends_before(values: Mapping[str, Any], reader: Reader) -> str:
    where = " or ".join(scope({"kind": kind, "pattern": pattern}, reader) for kind, pattern in values["scopes"])
    return f"Your right does not cover the set {values['set']}: it covers {where}."


SENTENCES: dict[str, Sentence] = {
    "right-missing": right_missing,
    "scope-ends-before": scope_ends_before,
    "scope-unnamed-set": (
        "Nobody has named this set yet: only people whose right is not limited to certain sets may act in it."
    ),
    "person-unknown": "There is no person {name}.",
    "superusers-only": "{name} is a superuser: only a superuser may change that.",
    "service-unknown": "{name} is no service account.",
    "service-owner": "“{name}” is no person who may log in: name the one who answers for the service account.",
    "service-purpose": "Say in 1 to {longest} characters what the service account is for.",
    "service-no-login": "{name} is a service account: it comes in by its tokens alone.",
    "forget-service": "{name} is a service account, and no person: end its access instead.",
    "person-forgotten": "{name} was forgotten: nothing of that can be taken back.",
    "forget-oneself": "Nobody forgets themselves: ask another admin.",
    "forget-unconfirmed": "Type {name} to confirm: it cannot be taken back.",
    "last-admin": "This is the last admin: make somebody else an admin first.",
    "name-characters": "A name is made of letters, digits and @ . + - _ without spaces.",
    "name-length": "A name has 1 to {longest} characters.",
    "name-taken": "The name {name} is taken.",
    "scope": scope,
    "group-unknown": "There is no group {name}: choose one of {groups:list}.",
    "password-refused": lambda values, reader: " ".join(values["messages"]),
    "too-many-scopes": "A person has at most {most} scopes: use * and ? in a pattern.",
    "scope-kind": "A scope is one of {kinds:list}, not {kind}.",
    "scope-pattern-length": "The pattern of a scope has 1 to {longest} characters.",
    "no-time-zone": "There is no time zone {name}: use one such as Europe/Berlin.",
    "token-scopes": "Scopes are {scopes:list}; name at least one.",
    "token-name-length": "Give the token a name of up to {longest} characters: what is it for?",
    "token-time": "A token must be valid for some time, and for at most {days} days.",
    "token-needs-right": lambda values, reader: (
        f"A token with the scope `{values['scope']}` needs the right of {role(Right(values['right']))}."
    ),
    "network-unreadable": "“{text}” is no network: write one such as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32.",
    "network-host-bits": "{text} names a host and a network: write {network} for the network, or {host} for the host.",
    "network-too-many": "A token has at most {most} networks.",
    "beyond-carried-addresses": "{network} is not within the addresses from which the token that asks counts.",
    "token-address": "This token does not count from {address}.",
    "beyond-carried-token": "The token that asks does not have the scope `{scope}` itself.",
    "calendar-name-length": "Give the calendar a name of up to {longest} characters.",
    "calendar-too-many": "Nobody needs more than {most} calendars: end one first.",
    "calendar-unknown": "There is no such calendar, or it has ended.",
    "outside-kind": "An account is one of {kinds:list}, not {kind}.",
    "outside-account": "Name the account by its id there, of up to {longest} characters without blanks.",
    "outside-taken": "This account is {name}'s already: an admin can end that first.",
    "outside-unknown": "No account of this id is linked to anybody.",
    "outside-invitation": "This link is not valid any more: press the button once more, and use the new one.",
    "factor-app-there": "You have an authenticator app already: remove it first.",
    "factor-code-wrong": "This code is wrong, or too old. Wait for the next one and try again.",
    "factor-too-many": "Nobody needs more than {most} passkeys: remove one first.",
    "factor-unknown": "This is none of your second factors, or it was removed already.",
    "factor-none": "Recovery codes stand in for a second factor: add one first.",
    "factor-passkey-wrong": "The browser's answer does not fit what was asked. Try again.",
    "token-unknown": "No token has this prefix.",
    "token-is-no-person": "A token may not do this: sign in and do it on a page.",
    "token-ended": "This token has ended already.",
    "token-without-scope": "The token that asks does not have the scope `{scope}`.",
}


def person_changed(row: TimelineRow, reader: Reader) -> str:
    person, did = row.data["person"], row.data["did"]
    match did:
        case "linked" | "unlinked":
            return _account_changed(row)
        case "signed-on" | "signed-off":
            now = "is" if did == "signed-on" else "is no longer"
            account = (row.after or {}).get("account") or (row.before or {}).get("account")
            return f"{row.actor} said that the account {account} of single sign-on {now} {person}'s."
        case "password":
            whose = "their own password" if row.actor == person else f"the password of {person}"
            return f"{row.actor} changed {whose}."
        case "factor-added" | "factor-removed" | "factors-reset" | "codes-first" | "codes-made" | "code-used":
            return _factors_changed(row)
        case "service-made" | "service-changed":
            return _service_changed(row)
        case "session-ended":
            return f"{row.actor} ended a session of {'their own' if row.actor == person else person}."
        case "sessions-ended":
            count = (row.before or {})["sessions"]
            said = f"{count} session{'' if count == 1 else 's'}"
            return f"{row.actor} ended {said} of {'their own' if row.actor == person else person}."
        case "settings":
            return f"{row.actor} changed their own settings: {' and '.join(row.after or {}).replace('_', ' ')}."
    return f"{row.actor} {did} the person {person}: {told(row.after or {})}."


def _service_changed(row: TimelineRow) -> str:
    after = row.after or {}
    if row.data["did"] == "service-made":
        return (
            f"{row.actor} made the service account {row.data['person']} for “{after['purpose']}”:"
            f" {after['owner']} answers for it; {told(after)}."
        )
    said = [f"{after['owner']} answers for it"] if "owner" in after else []
    said += [f"it is for “{after['purpose']}”"] if "purpose" in after else []
    return f"{row.actor} said of the service account {row.data['person']}: {' and '.join(said)}."


# What proves that somebody is who they say.
FACTORS = {"totp": "an authenticator app", "webauthn": "a passkey", "recovery_codes": "recovery codes"}


def _factors_changed(row: TimelineRow) -> str:
    person, did = row.data["person"], row.data["did"]
    before, after = row.before or {}, row.after or {}
    named = f" “{row.data['name']}”" if row.data["name"] else ""
    match did:
        case "factor-added":
            return f"{row.actor} added {FACTORS[after['factor']]}{named} to their account."
        case "factor-removed":
            return f"{row.actor} removed {FACTORS[before['factor']]}{named} from their account."
        case "factors-reset":
            return f"{row.actor} removed all second factors of {person}."
        case "codes-first":
            return f"{row.actor} was given recovery codes."
        case "codes-made":
            return f"{row.actor} made new recovery codes; the old ones have ended."
    return f"{row.actor} used a recovery code; {after['codes']} are left."


def _account_changed(row: TimelineRow) -> str:
    data = row.data
    account = f"the {OUTSIDE[data['where']]} account {data['account']}"
    named = f" (“{data['name']}”)" if data["name"] else ""
    if data["did"] == "unlinked":
        return f"{row.actor} said that {account}{named} is no longer {data['person']}'s."
    return f"{row.actor} said that {account}{named} is {data['person']}'s: what it claims, {data['person']} claims."


def told(changed: Mapping[str, Any]) -> str:
    """What is so from now on about a person."""
    said = []
    if "groups" in changed:
        said.append(", ".join(changed["groups"]) or "no group")
    if "scopes" in changed:
        said.append("in " + " or ".join(changed["scopes"]) if changed["scopes"] else "everywhere")
    if "superuser" in changed:
        said.append("a superuser" if changed["superuser"] else "no longer a superuser")
    if "active" in changed:
        said.append("has access" if changed["active"] else "no longer has access")
    return ", ".join(said)


def token_created(row: TimelineRow, reader: Reader) -> str:
    """Of a person's token, or of one that admits agents."""
    made = row.after or {}
    if "join_token" in made:
        return f"A join token was made by {row.actor}, valid until {times.at(made['expires_at'], reader)}."
    return f"An API token “{row.data['name']}” of {row.data['person']} was made."


def token_expires(row: TimelineRow, reader: Reader) -> str:
    data = row.data
    return f"The API token “{data['name']}” of {data['person']} expires at {times.at(data['expires_at'], reader)}."


# What names somebody, as it is called where they are to be forgotten.
FORGOTTEN: dict[str, tuple[str, str]] = {
    "acts": ("line of the timeline", "lines of the timeline"),
    "sessions": ("session", "sessions"),
    "devices": ("known device", "known devices"),
    "channels": ("channel of their own", "channels of their own"),
    "admin-log": ("line of Django's admin log", "lines of Django's admin log"),
    "auth.User_groups": ("group", "groups"),
    "auth.User_user_permissions": ("permission of Django's", "permissions of Django's"),
    "account.EmailAddress": ("e-mail address", "e-mail addresses"),
    "mfa.Authenticator": ("second factor", "second factors"),
    "socialaccount.SocialAccount": ("account of single sign-on", "accounts of single sign-on"),
    "fleet.SignOn": ("link to the single sign-on", "links to the single sign-on"),
    "fleet.PersonSession": ("line in the list of sessions", "lines in the list of sessions"),
    "fleet.Profile": ("page of settings", "pages of settings"),
    "fleet.Scope": ("scope", "scopes"),
    "fleet.ApiToken": ("API token", "API tokens"),
    "fleet.CalendarFeed": ("calendar", "calendars"),
    "fleet.OutsideAccount": ("account elsewhere", "accounts elsewhere"),
    "fleet.StoredAnswer": ("stored answer of the API", "stored answers of the API"),
    "fleet.SavedView": ("saved view", "saved views"),
    "fleet.JoinToken.created_by": ("join token", "join tokens"),
    "fleet.Rule.author": ("rule", "rules"),
    "fleet.NoApprovalWindow.author": ("no-approval window", "no-approval windows"),
    "fleet.Wave.created_by": ("wave", "waves"),
    "fleet.Approval.decided_by": ("approval", "approvals"),
    "fleet.ServiceAccount": ("service account", "service accounts"),
    "fleet.ServiceAccount.owner": ("service account that they own", "service accounts that they own"),
    "fleet.Approval.decided_for": (
        "approval by a service account of theirs",
        "approvals by service accounts of theirs",
    ),
    "fleet.Approval.consented_by": ("consent as the second person", "consents as the second person"),
    "fleet.Claim.by": ("claim", "claims"),
    "fleet.Hold.by": ("event left to Azure", "events left to Azure"),
    "fleet.Drill.started_by": ("drill", "drills"),
}


def counted_part(what: str, count: int, *, more: bool = False) -> str:
    """So many of what names somebody. A table of another library goes by its own name."""
    one, many = FORGOTTEN.get(what, (f"row of {what}", f"rows of {what}"))
    return f"more than {count:,} {many}" if more else f"{count:,} {one if count == 1 else many}"


def person_forgotten(row: TimelineRow, reader: Reader) -> str:
    gone = [counted_part(what, count) for what, count in row.data["goes"].items()]
    also = f", and with it {listed(gone)}" if gone else ""
    return f"{row.actor} had a person forgotten, who is {row.data['person']} now: the name was erased{also}."


FACTOR_WRONG = "This code is wrong, too old, or was used before."
FACTOR_UNREADABLE = (
    "This code was not accepted, and a second factor of yours cannot be read: use another one, such as a passkey, or"
    " ask an admin to remove yours."
)
PASSKEY_WRONG = "The passkey was not accepted. Try again, or use another way."
CHALLENGE_OVER = "Too many wrong codes. Log in with your password again."
PASSWORD_WRONG = "The password is wrong."  # noqa: S105
LOGIN_WRONG = "The name or the password is wrong."
LOGIN_WAITS = "Too many attempts failed. Wait {wait}, then try again."
LOGIN_REFUSED = (
    "Too many attempts to log in with this name failed. Log in on a device that you have used before, or ask an admin"
    " for a new password."
)

ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.PERSON_CHANGED: person_changed,
    EntryKind.PERSON_FORGOTTEN: person_forgotten,
    EntryKind.TOKEN_CREATED: token_created,
    EntryKind.TOKEN_EXPIRES: token_expires,
    EntryKind.TOKEN_ENDED: "The API token “{name}” of {person} was ended by {actor}.",
    EntryKind.CALENDAR_MADE: "{actor} made the calendar “{name}”, which programs fetch by its address.",
    EntryKind.CALENDAR_ENDED: "The calendar “{name}” of {person} was ended by {actor}.",
    EntryKind.PUSH_KEY_MADE: "A key was made by which browsers' makers know messages of this installation.",
    EntryKind.LOGINS_REFUSED: "{count} attempts to log in as {person} failed in a row. Until {person} logs in on a"
    " device used before, or an admin sets a new password, the password counts on such devices only.",
}


# Words of sessions: in which browser, and how somebody came in.

# How somebody came in, by the code that a session keeps.
WAYS = {
    "password": "password",
    "password-factor": "password and second factor",
    "passkey": "passkey",
    "sign-on": "single sign-on",
    "proxy": "a proxy in front",
    "": "before 0.2.0",
}

SESSION_SENTENCES: dict[str, Sentence] = {
    "session-unknown": "There is no such session, or it has ended.",
}


def new_device(row: TimelineRow, reader: Reader) -> str:
    data = row.data
    where, how = browser(data["browser"], data["system"]), WAYS.get(data["way"], data["way"])
    place = f" from {data['from_address']}" if data["from_address"] else ""
    return f"{data['person']} logged in on a device that was not known: {where}{place}, by {how}."


SESSION_ENTRIES: dict[EntryKind, EntryText] = {EntryKind.NEW_DEVICE: new_device}


def way(code: str) -> str:
    """How somebody came in; a code of a later release as it is."""
    return WAYS.get(code, code)


def browser(name: str, system: str) -> str:
    """`Firefox on Linux`"""
    return f"{name or 'A browser'} on {system}" if system else name or "An unknown browser"


# Words of single sign-on: why nobody is in, what refuses a mapping, and what its entries tell.

# Why somebody is not in: a title, what to do, and the HTTP status.
TROUBLES: dict[str, tuple[str, str, int]] = {
    "refused": (
        "This login was not taken",
        "What came back from your provider was not what was asked for. Log in once more. If that fails again, an admin"
        " finds the reason in the log of the web process.",
        403,
    ),
    "cancelled": ("You are not logged in", "You, or your provider, cancelled the login.", 403),
    "not-permitted": (
        "You may not come in yet",
        "Your provider knows you. An admin of Drydock sees that you were here, and can let you in.",
        403,
    ),
    "somebody-else": (
        "That was somebody else",
        "You were asked to prove who you are, and another account answered. Nothing was done.",
        403,
    ),
    "not-again": (
        "Your provider did not ask again",
        "Drydock wants a fresh proof of who you are, and your provider sent back an old one. Nothing was done.",
        403,
    ),
    "away": (
        "Your provider does not answer",
        "Nobody can log in by single sign-on just now. Whoever is logged in stays so for a while. Try again in a"
        " moment.",
        503,
    ),
    "busy": ("Many are logging in", "Your provider is slow just now. Try again in a moment.", 503),
}

SIGN_ON_SENTENCES: dict[str, Sentence] = {
    "issuer-https": "The issuer has to be an https address, without a login or a query.",
    "issuer-shared": "The issuer has to be one tenant's, not a directory of many.",
    "other-tenant": "The token is of another tenant.",
    "claim-missing": "The token has no usable `{claim}`.",
    "claim-overage": (
        "This account is in more groups than the provider puts into a token, so that nobody can tell which. An admin of"
        " the directory can assign app roles, or send only the groups that are assigned to Drydock."
    ),
    "sign-on-not-mapped": "None of this account's roles or groups at the provider has been given a right here.",
    "sign-on-blocked": "This person is blocked here.",
    "sign-on-ended-there": "The provider no longer lets this account in.",
    "sign-on-taken": "This account at the provider is {name}'s already.",
    "sign-on-has-one": "{name} has an account at the provider already: end that link first.",
    "sign-on-subject": "Name the account by its object id, which never changes; for other providers by its `sub`.",
    "sign-on-no-provider": "Set OIDC_ISSUER first: an account is one at a provider.",
    "sign-on-unknown": "There is no such link.",
    "sign-on-break-glass": "{name} is the break-glass account, which has to work without the provider.",
    "grant-value": "A role or group has 1 to {longest} characters.",
    "grant-taken": "There is a line for {value} already: change that one.",
    "grant-unknown": "There is no such line in the mapping.",
    "too-many-grants": "A mapping has at most {most} lines: use app roles, which are few.",
    "claims-unreadable": "Paste the claims of a token as one JSON object, with its list of roles or groups.",
}


def mapping_changed(row: TimelineRow, reader: Reader) -> str:
    value, did = row.data["value"], row.data["did"]
    if did == "deleted":
        return f"{row.actor} took “{value}” out of the mapping of single sign-on."
    group, scopes = (row.after or {}).get("group"), (row.after or {}).get("scopes")
    said = told({**({"groups": [group]} if group else {}), **({"scopes": scopes} if scopes is not None else {})})
    begins = "mapped" if did == "made" else "changed what single sign-on makes of"
    return f"{row.actor} {begins} “{value}”{' to' if did == 'made' else ':'} {said}."


SIGN_ON_ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.MAPPING_CHANGED: mapping_changed,
    EntryKind.BREAK_GLASS_USED: "The break-glass account {person} was used from {from_address}. Ask why.",
}

SENTENCES |= SESSION_SENTENCES | SIGN_ON_SENTENCES
ENTRIES |= SESSION_ENTRIES | SIGN_ON_ENTRIES
