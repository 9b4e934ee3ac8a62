"""Exceptions of the access matrix: why some routes are open to other callers, printed in `docs/dev/access.md`."""

ELSEWHERE = "redirects to an address that requires sign-in"
SIGN_IN = "part of signing in"
SECOND = "without a correct password before, redirects to the sign-in page"
PROBE = "counts and states without names; a proxy restricts access"
BROWSER = "part of every page in a browser; no data of the fleet"
MANUAL = "description of the API; no data of the fleet"
CALENDAR = "the secret address gives access; any other is 404"

REDIRECTED = ("login", "logout", "password_change", "password_change/done")


def calls(methods: str, *routes: str) -> list[tuple[str, str]]:
    return [(method, route) for route in routes for method in methods.split()]


# By method and route: open to callers without a login.
PUBLIC: dict[tuple[str, str], str] = {
    **dict.fromkeys(calls("GET POST", *(f"admin/{each}/" for each in REDIRECTED), "events/", "rules/"), ELSEWHERE),
    **dict.fromkeys(calls("GET POST", "accounts/login/"), SIGN_IN),
    ("POST", "accounts/logout/"): "without a session it changes nothing",
    **dict.fromkeys(calls("GET", "accounts/passkey/", "accounts/sign-on/"), SIGN_IN),
    **dict.fromkeys(calls("GET POST", "accounts/second-factor/"), SECOND),
    ("GET", "accounts/sign-on/end/"): "redirects to the provider's sign-out page",
    **dict.fromkeys(calls("GET", "api/docs/", "api/schema/"), MANUAL),
    **dict.fromkeys(calls("GET", "calendar/<str:token>.ics", "api/v1/calendar/<str:token>.ics"), CALENDAR),
    **dict.fromkeys(calls("GET", "manifest.webmanifest", "static/<path:file>", "sw.js"), BROWSER),
    ("GET", "agent/requirements.txt"): "names the agent's package; a new machine has no credential",
    ("GET", "agent/install.ps1"): "the installation script for Windows; a new machine has no credential",
    ("POST", "/agent/v1/challenges"): "a nonce for Azure to sign; nothing is stored",
    **dict.fromkeys(calls("GET HEAD", "/healthz", "/readyz"), PROBE),
    ("GET", "/metrics"): PROBE,
}

SETTINGS = "own settings and read position"
OWN_TOKENS = "own tokens, with at most the rights and lifetime of the requesting credential"
SESSIONS = "own other sessions"
FACTORS = "own second factors, after verification"

# What everybody who may read does for themselves.
ABOUT_ONESELF: dict[tuple[str, str], str] = {
    ("PATCH", "api/v1/me/"): SETTINGS,
    **dict.fromkeys(calls("POST", "you/settings/", "you/alerts/", "handover/read/", "first-steps/put-away/"), SETTINGS),
    **dict.fromkeys(calls("POST", "api/v1/tokens/", "you/tokens/"), OWN_TOKENS),
    **dict.fromkeys(calls("POST", "api/v1/sessions/end/", "you/sessions/end/"), SESSIONS),
    ("POST", "views/save/"): "own saved views",
    ("POST", "you/accounts/<str:invitation>/link/"): "linking an account in Slack or PagerDuty",
    ("POST", "you/browser/"): "notifications in the own browser",
    ("POST", "you/calendars/"): "own calendars, with the user's rights",
    ("POST", "you/password/"): "own password, with the old one",
    **dict.fromkeys(
        (("POST", f"you/signing-in/{what}/") for what in ("<int:factor_id>/remove", "app/add", "codes", "passkey/add")),
        FACTORS,
    ),
}

BACK = "evaluates history and stores nothing"
EACH = "each selected event is decided separately; the answer lists the refusals"

# Routes that take a form or a body and change nothing, open to every user who may read.
EVERY_USER: dict[tuple[str, str], str] = {
    ("POST", "api/v1/routes/dry-run/"): BACK,
    ("POST", "api/v1/rules/dry-run/"): BACK,
    ("POST", "bulk/"): EACH,
    ("POST", "bulk/undo/"): EACH,
    ("POST", "you/browser/key/"): "the public key for notifications in a browser",
}

# By caller, method and route: where a kind of login has rules of its own.
OWN_RULES: dict[tuple[str, str, str], str] = {}
