"""Texts about accounts: roles, refusals and timeline entries."""

from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.template import Library

from fleet.domain.people import ADMIN, APPROVER, OPERATOR, ROLES, VIEWER, Right
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.sentences import EntryText, Sentence, counted, fill, listed
from fleet.wording.times import Reader

# Template filters: `{% load accounts %}`.
register = Library()
# Refused actions, as the beginning of a sentence.
DOING = {
    "this": "This",
    "approve": "Approving",
    "claim": "Claiming",
    "give-back": "Releasing a claim",
    "hold": "Leaving an event to Azure",
    "lift": "No longer leaving an event to Azure",
    "note": "Adding a note",
    "silence": "Silencing notifications",
    "hand-over": "Handing over a shift",
    "withdraw": "Withdrawing",
    "consent": "Agreeing as the second person",
    "override": "Overriding a guard that blocks",
    "make-token": "Creating a token",
    "make-rule": "Creating a rule",
    "begin-wave": "Starting a wave",
    "stop-wave": "Stopping a wave",
    "drill": "Starting a drill",
    "stop-drill": "Stopping a drill",
    "stop-all": "Stopping all approvals",
    "lift-stop": "Allowing approvals again",
}
# Services whose accounts can be linked to users, to claim for them.
OUTSIDE = {"slack": "Slack", "pagerduty": "PagerDuty"}
# Rights that each role adds to the roles before it.
MAY = {
    VIEWER: "reads everything",
    OPERATOR: "also claims, approves, and leaves events to Azure",
    APPROVER: "also confirms proposals of other users, and may override guards that block",
    ADMIN: "also manages users, tokens, rules, sets and machines",
}


def named(group: str) -> str:
    """Return the name of a group with an article, for example `an operator`."""
    return f"{'an' if group[0] in 'aeiou' else 'a'} {group}"


def role(right: Right) -> str:
    """Return the lowest role that has this right, with an article, for example `an operator`."""
    return named(next(group for group, last in ROLES.items() if last is right))


def all_roles() -> str:
    """Return one sentence for each role, which states what the role may do."""
    return " ".join(f"{named(group).capitalize()} {MAY[group]}." for group in ROLES)


def right_missing(values: Mapping[str, Any], reader: Reader) -> str:
    doing = DOING.get(values["doing"], values["doing"])
    return f"{doing} needs the right of {role(Right(values['right']))}. Ask an administrator of your installation."


def scope(values: Mapping[str, Any], reader: Reader) -> str:
    return f"{values['kind'].replace('_', ' ')} {values['pattern']}"


def scope_ends_before(values: Mapping[str, Any], reader: Reader) -> str:
    where = " or ".join(scope({"kind": kind, "pattern": pattern}, reader) for kind, pattern in values["scopes"])
    return f"You cannot act in the set {values['set']}. Your access covers: {where}. Ask an administrator."


SENTENCES: dict[str, Sentence] = {
    "right-missing": right_missing,
    "scope-ends-before": scope_ends_before,
    "scope-unnamed-set": (
        "This set has no name yet: only users whose rights are not limited to certain sets may act in it."
    ),
    "person-unknown": "There is no user {name}.",
    "superusers-only": "{name} is a superuser: only a superuser may change that.",
    "service-unknown": "{name} is no service account.",
    "service-no-login": "{name} is a service account: it authenticates by tokens only.",
    "forget-service": "{name} is a service account, not a user: block its access instead.",
    "person-forgotten": "{name} was erased, which cannot be undone.",
    "forget-oneself": "You cannot erase your own account: ask another administrator.",
    "forget-unconfirmed": "Type {name} to confirm: this cannot be undone.",
    "last-admin": "This is the last administrator: give another user the role first.",
    "name-taken": "The name {name} is taken.",
    "scope": scope,
    "password-refused": lambda values, reader: " ".join(values["messages"]),
    "token-needs-right": lambda values, reader: (
        f"A token with the scope `{values['scope']}` needs the right of {role(Right(values['right']))}."
    ),
    "network-unreadable": "“{text}” is no network: enter one such as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32.",
    "network-host-bits": "{text} names a host and a network: write {network} for the network, or {host} for the host.",
    "network-too-many": "A token has at most {most} networks.",
    "beyond-carried-addresses": "{network} is not within the addresses of the token of this call.",
    "token-address": "This token is not accepted from {address}.",
    "beyond-carried-token": "The token of this call does not have the scope `{scope}` itself.",
    "calendar-too-many": "You have {most} calendars, the maximum: delete one first.",
    "calendar-unknown": "There is no such calendar, or it was deleted.",
    "outside-kind": "An account is one of {kinds:list}, not {kind}.",
    "outside-account": "Name the account by its id there, of up to {longest} characters without blanks.",
    "outside-taken": "This account is linked to {name}: an administrator can unlink it first.",
    "outside-unknown": "No account with this id is linked to a user.",
    "outside-invitation": "This link has expired: press the button again, and use the new link.",
    "factor-app-there": "You have an authenticator app already: remove it first.",
    "factor-code-wrong": "This code is wrong, or too old. Wait for the next one and try again.",
    "factor-too-many": "You have {most} passkeys, the maximum: remove one first.",
    "factor-unknown": "You have no such second factor, or it was removed.",
    "factor-none": "Recovery codes replace a lost second factor: add one first.",
    "factor-passkey-wrong": "The browser's answer does not match the request. Try again.",
    "session-unknown": "There is no such session, or it has ended.",
    "token-unknown": "No token has this prefix.",
    "token-is-no-person": "A token is not permitted to do this: sign in and use the page.",
    "token-ended": "This token is already revoked or expired.",
    "token-without-scope": "The token of this call does not have the scope `{scope}`.",
    "issuer-https": "The issuer must be an https address without a user name or a query.",
    "issuer-shared": "The issuer must be that of one tenant, not of a directory of many.",
    "other-tenant": "The token is of another tenant.",
    "claim-missing": "The token has no usable `{claim}`.",
    "claim-overage": (
        "This account is in more groups than the provider lists in a token. An administrator of the directory can"
        " assign app roles, or send only the groups that are assigned to Drydock."
    ),
    "sign-on-not-mapped": "The mapping gives no rights to the roles or groups of this account.",
    "sign-on-blocked": "The access of this user is blocked.",
    "sign-on-ended-there": "The provider no longer admits this account.",
    "sign-on-taken": "This account at the provider is linked to {name}.",
    "sign-on-has-one": "{name} is linked to another account at the provider: unlink that first.",
    "sign-on-subject": "Name the account by its object id, which never changes; for other providers by its `sub`.",
    "sign-on-no-provider": "Set OIDC_ISSUER first.",
    "sign-on-unknown": "There is no such link.",
    "sign-on-break-glass": "{name} is the emergency account, which must work without the provider.",
    "grant-taken": "There already is a line for {value}: change that one.",
    "grant-unknown": "There is no such line in the mapping.",
    "too-many-grants": "A mapping has at most {most} lines: use app roles, which are few.",
    "claims-unreadable": "Paste the claims of a token as one JSON object, with its list of roles or groups.",
}


# Names of second factors.
FACTORS = {"totp": "an authenticator app", "webauthn": "a passkey", "recovery_codes": "recovery codes"}
# Changes of a user, by the code `did` of the entry.
PERSON_CHANGES = {
    "linked": "{actor} linked the {outside} account {account}{named} to {person}. Its claims count as claims of"
    " {person}.",
    "unlinked": "{actor} unlinked the {outside} account {account}{named} from {person}.",
    "signed-on": "{actor} linked the account {after[account]} of single sign-on to {person}.",
    "signed-off": "{actor} unlinked the account {before[account]} of single sign-on from {person}.",
    "password": "{actor} changed {whose} password.",
    "factor-added": "{actor} added {factor}{named} to their account.",
    "factor-removed": "{actor} removed {factor}{named} from their account.",
    "factors-reset": "{actor} removed all second factors of {person}.",
    "codes-first": "{actor} received recovery codes.",
    "codes-made": "{actor} created new recovery codes; the old ones have ended.",
    "code-used": "{actor} used a recovery code; {after[codes]} are left.",
    "service-made": (
        "{actor} created the service account {person} for “{after[purpose]}”, owned by {after[owner]}: {rights}."
    ),
    "service-changed": "{actor} changed the service account {person}: {service}.",
    "session-ended": "{actor} ended a session of {own}.",
    "sessions-ended": "{actor} ended {sessions} of {own}.",
    "settings": "{actor} changed their settings: {settings}.",
    "made": "{actor} created the user {person}: {rights}.",
    "changed": "{actor} changed the user {person}: {rights}.",
}


def person_changed(row: TimelineRow, reader: Reader) -> str:
    data, before, after = row.data, row.before or {}, row.after or {}
    is_own = row.actor == data["person"]
    service = [f"{name} “{after[name]}”" for name in ("owner", "purpose") if name in after]
    values = {
        **data,
        "actor": row.actor,
        "before": before,
        "after": after,
        "own": "their own" if is_own else data["person"],
        "whose": "their own" if is_own else f"{data['person']}'s",
        "outside": OUTSIDE.get(data.get("where", ""), ""),
        "named": f" “{data['name']}”" if data.get("name") else "",
        "factor": FACTORS.get(after.get("factor") or before.get("factor") or "", ""),
        "service": listed(service),
        "sessions": counted(before.get("sessions", 0), "session"),
        "settings": listed(name.replace("_", " ") for name in after),
        "rights": told(after),
    }
    return fill(PERSON_CHANGES[data["did"]], values, reader)


def told(changed: Mapping[str, Any]) -> str:
    """Return the changed rights of a user as text."""
    parts = []
    if "groups" in changed:
        parts.append(", ".join(changed["groups"]) or "no group")
    if "scopes" in changed:
        parts.append("in " + " or ".join(changed["scopes"]) if changed["scopes"] else "everywhere")
    if "superuser" in changed:
        parts.append("a superuser" if changed["superuser"] else "no longer a superuser")
    if "active" in changed:
        parts.append("has access" if changed["active"] else "no longer has access")
    return ", ".join(parts)


def token_created(row: TimelineRow, reader: Reader) -> str:
    """Return the text of a timeline entry about a new API token or join token."""
    made = row.after or {}
    # Entries from before 0.2.0 state `join_token`.
    if {"join_token", "set_name"} & made.keys():
        return f"{row.actor} created a join token, valid until {times.at(made['expires_at'], reader)}."
    return f"An API token “{row.data['name']}” of {row.data['person']} was created."


def token_expires(row: TimelineRow, reader: Reader) -> str:
    data = row.data
    return f"The API token “{data['name']}” of {data['person']} expires at {times.at(data['expires_at'], reader)}."


# Rows that are erased with a user or name them afterwards. Other tables use the name of their model.
FORGOTTEN = {
    "acts": ("entry of the timeline", "entries of the timeline"),
    "sessions": ("session", "sessions"),
    "devices": ("known device", "known devices"),
    "channels": ("channel of their own", "channels of their own"),
    "admin-log": ("entry of Django's admin log", "entries of Django's admin log"),
    "auth.User_groups": ("group", "groups"),
    "auth.User_user_permissions": ("permission of Django's", "permissions of Django's"),
    "mfa.Authenticator": ("second factor", "second factors"),
    "socialaccount.SocialAccount": ("account of single sign-on", "accounts of single sign-on"),
    "fleet.ApiToken": ("API token", "API tokens"),
    "fleet.SignOn": ("link to single sign-on", "links to single sign-on"),
    "fleet.PersonSession": ("listed session", "listed sessions"),
    "fleet.OutsideAccount": ("account in Slack or PagerDuty", "accounts in Slack or PagerDuty"),
    "fleet.ServiceAccount.owner": ("service account that they own", "service accounts that they own"),
    "fleet.Approval.decided_for": ("approval by their service accounts", "approvals by their service accounts"),
    "fleet.Approval.consented_by": ("consent as the second person", "consents as the second person"),
    "fleet.Hold.by": ("event left to Azure", "events left to Azure"),
}


# Actions that stay are counted up to this limit.
MOST_COUNTED = 10_000


@register.filter
def counted_parts(counts: Mapping[str, int]) -> list[str]:
    """Return numbers of rows with nouns, for example `3 API tokens`. The keys are `app.Model` for rows that are erased
    with a user, or `app.Model.column` for rows that name the user.
    """
    return [_part(what, count) for what, count in counts.items()]


def _part(what: str, count: int) -> str:
    if what in FORGOTTEN:
        one, many = FORGOTTEN[what]
    else:
        try:
            app, model, *_ = what.split(".")
            names = apps.get_model(app, model)._meta
            one, many = str(names.verbose_name), str(names.verbose_name_plural)
        except (LookupError, ValueError):
            # Written by another release.
            one, many = f"row of {what}", f"rows of {what}"
    if what == "acts" and count > MOST_COUNTED:
        return f"more than {MOST_COUNTED:,} {many}"
    return f"{count:,} {one if count == 1 else many}"


def person_forgotten(row: TimelineRow, reader: Reader) -> str:
    gone = counted_parts(row.data["goes"])
    also = f" Also erased or renamed: {listed(gone)}." if gone else ""
    return f"{row.actor} erased a user, whose pseudonym is {row.data['person']}.{also}"


FACTOR_WRONG = "This code is wrong, too old, or was used before."
FACTOR_UNREADABLE = (
    "This code was not accepted, and a second factor of yours cannot be read: use another one, such as a passkey, or"
    " ask an administrator to remove yours."
)
PASSKEY_WRONG = "The passkey was not accepted. Try again, or use another way."
CHALLENGE_OVER = "Too many wrong codes. Sign in with your password again."
PASSWORD_WRONG = "The password is wrong."  # noqa: S105
LOGIN_WRONG = "The name or the password is wrong."
LOGIN_WAITS = "Too many attempts failed. Wait {wait}, then try again."
LOGIN_REFUSED = (
    "Too many attempts to sign in with this name failed. Sign in on a device that you have used before, or ask an admin"
    " for a new password."
)

# Sign-in methods, by the code of a session.
WAYS = {
    "password": "password",
    "password-factor": "password and second factor",
    "passkey": "passkey",
    "sign-on": "single sign-on",
    "proxy": "a proxy in front",
    "": "before 0.2.0",
}


def new_device(row: TimelineRow, reader: Reader) -> str:
    data = row.data
    where, how = browser(data["browser"], data["system"]), WAYS.get(data["way"], data["way"])
    place = f" from {data['from_address']}" if data["from_address"] else ""
    return f"{data['person']} signed in on an unknown device: {where}{place}, by {how}."


@register.filter("way_in")
def way(code: str) -> str:
    """Return the label of a sign-in method. An unknown code of a later release is returned unchanged."""
    return WAYS.get(code, code)


def browser(name: str, system: str) -> str:
    """Return a browser and operating system as text, for example `Firefox on Linux`."""
    return f"{name or 'A browser'} on {system}" if system else name or "An unknown browser"


register.filter("browser", lambda session: browser(session.browser, session.system))
# The name of the service (Slack, PagerDuty) of an external account.
register.filter("outside", lambda kind: OUTSIDE.get(kind, kind))


# Failures of single sign-on: title, advice and HTTP status.
TROUBLES: dict[str, tuple[str, str, int]] = {
    "refused": (
        "This sign-in was rejected",
        "The answer of your provider does not match the request. Sign in again. If that fails, an administrator finds"
        " the reason in the log of the web process.",
        403,
    ),
    "cancelled": ("You are not signed in", "You, or your provider, cancelled the sign-in.", 403),
    "not-permitted": (
        "You have no access yet",
        "Your provider knows you. An administrator of Drydock sees your attempt, and can give you access.",
        403,
    ),
    "somebody-else": (
        "That was another account",
        "You were asked to confirm your identity, and another account answered. Nothing was done.",
        403,
    ),
    "not-again": (
        "Your provider did not confirm your identity",
        "Drydock requires a new confirmation, and your provider sent an old one. Nothing was done.",
        403,
    ),
    "away": (
        "Your provider does not answer",
        "Single sign-on is unavailable. Users who are signed in stay signed in for a while. Try again in a moment.",
        503,
    ),
    "busy": ("Many users are signing in", "Your provider is slow. Try again in a moment.", 503),
}


def mapping_changed(row: TimelineRow, reader: Reader) -> str:
    value, did = row.data["value"], row.data["did"]
    if did == "deleted":
        return f"{row.actor} removed “{value}” from the mapping of single sign-on."
    group, scopes = (row.after or {}).get("group"), (row.after or {}).get("scopes")
    rights = told({**({"groups": [group]} if group else {}), **({"scopes": scopes} if scopes is not None else {})})
    verb = "mapped" if did == "made" else "changed the mapping of"
    return f"{row.actor} {verb} “{value}” of single sign-on: {rights}."


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.PERSON_CHANGED: person_changed,
    EntryKind.PERSON_FORGOTTEN: person_forgotten,
    EntryKind.TOKEN_CREATED: token_created,
    EntryKind.TOKEN_EXPIRES: token_expires,
    EntryKind.TOKEN_ENDED: "{actor} ended the API token “{name}” of {person}.",
    EntryKind.CALENDAR_MADE: "{actor} created the calendar “{name}”.",
    EntryKind.CALENDAR_ENDED: "{actor} ended the calendar “{name}” of {person}.",
    EntryKind.PUSH_KEY_MADE: "The key was created that identifies this installation to browser push services.",
    EntryKind.LOGINS_REFUSED: "{count} attempts to sign in as {person} failed in a row. Until {person} signs in on a"
    " known device, or an administrator sets a new password, the password is accepted on known devices only.",
    EntryKind.NEW_DEVICE: new_device,
    EntryKind.MAPPING_CHANGED: mapping_changed,
    EntryKind.EMERGENCY_SIGN_IN: "The emergency account {person} signed in from {from_address}. Ask why.",
}
