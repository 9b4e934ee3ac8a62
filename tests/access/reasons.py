"""Exceptions of the access matrix: why some routes are open to other callers, printed in `docs/dev/access.md`."""

ELSEWHERE = "redirects to an address that requires sign-in"
SIGN_IN = "part of signing in"
PROBE = "counts and states without names; a proxy restricts access"
BROWSER = "part of every page in a browser; no data of the fleet"
MANUAL = "description of the API; no data of the fleet"
CALENDAR = "the secret address gives access; any other is 404"

# By method and route: open to callers without a login.
PUBLIC: dict[tuple[str, str], str] = {
    **{
        (method, route): ELSEWHERE
        for route in (
            "admin/login/",
            "admin/logout/",
            "admin/password_change/",
            "admin/password_change/done/",
            "events/",
            "rules/",
        )
        for method in ("GET", "POST")
    },
    ("GET", "accounts/login/"): SIGN_IN,
    ("POST", "accounts/login/"): SIGN_IN,
    ("POST", "accounts/logout/"): "without a session it changes nothing",
    ("GET", "accounts/passkey/"): SIGN_IN,
    ("GET", "accounts/second-factor/"): "without a correct password before, redirects to the sign-in page",
    ("POST", "accounts/second-factor/"): "without a correct password before, redirects to the sign-in page",
    ("GET", "accounts/sign-on/"): SIGN_IN,
    ("GET", "accounts/sign-on/end/"): "redirects to the provider's sign-out page",
    ("GET", "api/docs/"): MANUAL,
    ("GET", "api/schema/"): MANUAL,
    ("GET", "calendar/<str:token>.ics"): CALENDAR,
    ("GET", "api/v1/calendar/<str:token>.ics"): CALENDAR,
    ("GET", "manifest.webmanifest"): BROWSER,
    ("GET", "static/<path:file>"): BROWSER,
    ("GET", "sw.js"): BROWSER,
    ("GET", "agent/requirements.txt"): "names the agent's package; a new machine has no credential",
    ("GET", "agent/install.ps1"): "the installation script for Windows; a new machine has no credential",
    ("POST", "/agent/v1/challenges"): "a nonce for Azure to sign; nothing is stored",
    ("GET", "/healthz"): PROBE,
    ("HEAD", "/healthz"): PROBE,
    ("GET", "/readyz"): PROBE,
    ("HEAD", "/readyz"): PROBE,
    ("GET", "/metrics"): PROBE,
}

SETTINGS = "own settings and read position"
OWN_TOKENS = "own tokens, with at most the rights and lifetime of the requesting credential"
SESSIONS = "own other sessions"
FACTORS = "own second factors, after verification"

# What everybody who may read does for themselves.
ABOUT_ONESELF: dict[tuple[str, str], str] = {
    ("PATCH", "api/v1/me/"): SETTINGS,
    ("POST", "you/settings/"): SETTINGS,
    ("POST", "you/alerts/"): SETTINGS,
    ("POST", "handover/read/"): SETTINGS,
    ("POST", "first-steps/put-away/"): SETTINGS,
    ("POST", "api/v1/tokens/"): OWN_TOKENS,
    ("POST", "you/tokens/"): OWN_TOKENS,
    ("POST", "api/v1/sessions/end/"): SESSIONS,
    ("POST", "you/sessions/end/"): SESSIONS,
    ("POST", "views/save/"): "own saved views",
    ("POST", "you/accounts/<str:invitation>/link/"): "linking an account in Slack or PagerDuty",
    ("POST", "you/browser/"): "notifications in the own browser",
    ("POST", "you/calendars/"): "own calendars, with the user's rights",
    ("POST", "you/password/"): "own password, with the old one",
    ("POST", "you/signing-in/<int:factor_id>/remove/"): FACTORS,
    ("POST", "you/signing-in/app/add/"): FACTORS,
    ("POST", "you/signing-in/codes/"): FACTORS,
    ("POST", "you/signing-in/passkey/add/"): FACTORS,
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
