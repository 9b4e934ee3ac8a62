"""Why some routes are open to whom others are not: each with its reason, which `docs/dev/access.md` prints."""

ELSEWHERE = "an old or second address: it leads to the right one, which asks, and changes nothing"
DOOR = "the door itself: it knows nobody yet"
PROBE = "for load balancers and Prometheus: counts and states, no name of anything; a proxy keeps strangers from it"
BROWSER = "part of every page in a browser; it holds nothing of the fleet"
MANUAL = "how the API is called; it holds nothing of the fleet"
CALENDAR = "who has the address reads its calendar, as programs do that cannot log in; any other address is 404"

# By method and route: open to nobody who has logged in.
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
    ("GET", "accounts/login/"): DOOR,
    ("POST", "accounts/login/"): DOOR,
    ("POST", "accounts/logout/"): "whoever is not in stays out",
    ("GET", "accounts/passkey/"): DOOR,
    ("GET", "accounts/second-factor/"): "without a right password before it, it leads back to the login",
    ("POST", "accounts/second-factor/"): "without a right password before it, it leads back to the login",
    ("GET", "accounts/sign-on/"): DOOR,
    ("GET", "accounts/sign-on/end/"): "it leads to where one logs out at the provider",
    ("GET", "api/docs/"): MANUAL,
    ("GET", "api/schema/"): MANUAL,
    ("GET", "calendar/<str:token>.ics"): CALENDAR,
    ("GET", "api/v1/calendar/<str:token>.ics"): CALENDAR,
    ("GET", "manifest.webmanifest"): BROWSER,
    ("GET", "static/<path:file>"): BROWSER,
    ("GET", "sw.js"): BROWSER,
    ("POST", "/agent/v1/challenges"): "a number for what Azure signs; nothing of it is kept",
    ("GET", "/healthz"): PROBE,
    ("HEAD", "/healthz"): PROBE,
    ("GET", "/readyz"): PROBE,
    ("HEAD", "/readyz"): PROBE,
    ("GET", "/metrics"): PROBE,
}

SETTINGS = "one's own settings, and how far one has read"
OWN_TOKENS = "a token of one's own, which may no more and lives no longer than what asked for it"
SESSIONS = "one's own other sessions"
FACTORS = "one's own second factors, behind a proof of who asks"

# What everybody who may read does for themselves.
ABOUT_ONESELF: dict[tuple[str, str], str] = {
    ("PATCH", "api/v1/me/"): SETTINGS,
    ("POST", "you/settings/"): SETTINGS,
    ("POST", "handover/read/"): SETTINGS,
    ("POST", "first-steps/put-away/"): SETTINGS,
    ("POST", "api/v1/tokens/"): OWN_TOKENS,
    ("POST", "you/tokens/"): OWN_TOKENS,
    ("POST", "api/v1/sessions/end/"): SESSIONS,
    ("POST", "you/sessions/end/"): SESSIONS,
    ("POST", "views/save/"): "a view of a list, kept by name",
    ("POST", "you/accounts/<str:invitation>/link/"): "an account in Slack or PagerDuty, by a link that it was given",
    ("POST", "you/browser/"): "one's own browser, to be told",
    ("POST", "you/calendars/"): "a calendar of one's own, which shows what its person sees",
    ("POST", "you/password/"): "one's own password, by the old one",
    ("POST", "you/signing-in/<int:factor_id>/remove/"): FACTORS,
    ("POST", "you/signing-in/app/add/"): FACTORS,
    ("POST", "you/signing-in/codes/"): FACTORS,
    ("POST", "you/signing-in/passkey/add/"): FACTORS,
}

BACK = "it looks back at what was, and keeps nothing"
EACH = "each event that was chosen is decided by itself: the answer names them one by one, refused"

# What takes a form or a body and changes nothing, for whoever may read.
ANYBODY: dict[tuple[str, str], str] = {
    ("POST", "api/v1/routes/dry-run/"): BACK,
    ("POST", "api/v1/rules/dry-run/"): BACK,
    ("POST", "bulk/"): EACH,
    ("POST", "bulk/undo/"): EACH,
    ("POST", "you/browser/key/"): "the public key that a browser needs to be told",
}

# By caller, method and route: where a kind of login has rules of its own.
OWN_RULES: dict[tuple[str, str, str], str] = {}
