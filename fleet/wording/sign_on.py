"""Words of single sign-on: why nobody is in, what refuses a mapping, and what its entries tell."""

from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.people import told
from fleet.wording.sentences import EntryText, Sentence
from fleet.wording.times import Reader

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

SENTENCES: dict[str, Sentence] = {
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


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.MAPPING_CHANGED: mapping_changed,
    EntryKind.BREAK_GLASS_USED: "The break-glass account {person} was used from {from_address}. Ask why.",
}
