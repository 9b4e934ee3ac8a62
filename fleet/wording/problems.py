"""Every refusal has one answer, at whichever edge: a type, its HTTP status, what it is, and what to do.

The types are those of the API's problem documents; pages take the status.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProblemType:
    """`status` is the HTTP status, `title` says what it is, `advice` in one sentence what to do."""

    status: int
    title: str
    advice: str


PROBLEMS: dict[str, ProblemType] = {
    "unreadable": ProblemType(400, "The request cannot be read", "Send one JSON object in UTF-8."),
    "not-authenticated": ProblemType(
        401, "Nobody is logged in", "Send `Authorization: Bearer <token>` with a valid token, or log in."
    ),
    "clock-skewed": ProblemType(
        401, "The call was signed at another time", "Sign it anew by `server_time`, which is the time here."
    ),
    "not-permitted": ProblemType(
        403, "This person or token may not do that", "Use an account or a token that may do it."
    ),
    "join-token-refused": ProblemType(
        403, "This join token admits no agent", "Make a new one and configure the agent with it."
    ),
    "attestation-refused": ProblemType(
        403, "This attested document is refused", "Read `detail`: it names the check that failed."
    ),
    "not-found": ProblemType(404, "Nothing was found here", "Check the address; paths end with a slash."),
    "unknown-event": ProblemType(404, "Nobody has reported this EventId", "Look it up in the list of events."),
    "unknown-machine": ProblemType(404, "No machine has this id", "Look it up in the list of machines."),
    "unknown-person": ProblemType(404, "Nobody has this name", "Look it up in the list of people."),
    "unknown-set": ProblemType(404, "No set has this id", "Look it up in the list of sets."),
    "unknown-drill": ProblemType(404, "No drill has this id", "Look it up in the list of drills."),
    "unknown-wave": ProblemType(404, "No wave has this id", "Look it up in the list of waves."),
    "unknown-approval": ProblemType(404, "No approval has this id", "Look it up at its event."),
    "method-not-allowed": ProblemType(405, "This address has no such method", "Use one of the methods in `Allow`."),
    "too-slow": ProblemType(408, "The request took too long to arrive", "Send it again, all at once."),
    "already-decided": ProblemType(
        409, "Somebody was first", "See the approval that exists; `by` and `at` say who decided and when."
    ),
    "guarded": ProblemType(
        409, "A guard speaks against it", "Read `guards`: what `needs` a reason takes one in `override`."
    ),
    "too-late": ProblemType(
        409, "It is too late for that", "Do nothing: what happens now is decided already; the event's page shows it."
    ),
    "version-changed": ProblemType(
        409, "The event has changed since you looked", "Send the `version` that you decide on as `expected_version`."
    ),
    "stopped": ProblemType(
        409, "All approvals are stopped", "Ask the person who stopped them; an admin lifts the stop when it is safe."
    ),
    "not-stopped": ProblemType(409, "Approvals are not stopped", "Do nothing: there is no stop to lift."),
    "count-changed": ProblemType(
        409, "The list has changed since you looked", "Look at the list again, then send the number that you see."
    ),
    "already-claimed": ProblemType(
        409, "Somebody is on it already", "Talk to `by`, or take the claim over with `take_over`."
    ),
    "not-claimed": ProblemType(409, "Nobody has claimed it", "Do nothing: there is no claim to give back."),
    "already-held": ProblemType(
        409, "Somebody has left it to Azure already", "Do nothing: `by` says who, `reason` why."
    ),
    "not-held": ProblemType(409, "Nobody has left it to Azure", "Do nothing: there is no hold to lift."),
    "real-event-open": ProblemType(
        409, "A real event of this set is open", "Decide about that one; `event` is its id. Rehearse when it is over."
    ),
    "drill-open": ProblemType(
        409, "A drill of this set is under way", "Take part in it, or stop it; `drill` is its id."
    ),
    "no-live-machine": ProblemType(
        409, "No machine of this set is live", "Check its agents first: only live machines can rehearse."
    ),
    "wave-running": ProblemType(
        409, "A wave is under way there", "Wait until it is over, or stop it; `wave` is its id."
    ),
    "set-exists": ProblemType(
        409, "A set of this kind and name exists already", "Merge the two sets if they are one; `set` is its id."
    ),
    "not-redeliverable": ProblemType(
        409, "This message cannot be sent again", "Do nothing while it is on its way; else see its state in the log."
    ),
    "precondition-failed": ProblemType(
        412, "It has changed since you looked", "Read it again, then decide; its `ETag` is the one to send now."
    ),
    "too-large": ProblemType(413, "The body is too large", "Send less at once."),
    "unsupported-media-type": ProblemType(
        415, "The body is of a media type that is not supported", "Send `Content-Type: application/json`."
    ),
    "validation": ProblemType(422, "Something in the request is wrong", "Correct what `errors` names."),
    "intermediate-wanted": ProblemType(
        422, "The certificate of an issuer is missing", "Fetch what `errors` names, and send it along."
    ),
    "key-reused": ProblemType(
        422, "This Idempotency-Key belongs to another request", "Use a new key for a new request."
    ),
    "throttled": ProblemType(429, "Too many requests", "Wait for as many seconds as `Retry-After` says."),
    "failed": ProblemType(500, "Drydock failed", "Try again; if it happens again, tell the people who run Drydock."),
    "admission-pending": ProblemType(
        503, "A person has to admit this machine", "Wait, then ask again; an admin admits it on the page of admissions."
    ),
    "admissions-full": ProblemType(
        503, "Too many machines wait for admission", "Have an admin admit or refuse those that wait."
    ),
    "archive-away": ProblemType(
        503,
        "A part of it lies in the archive, which cannot be read",
        "Try again later; the page of storage says what is wrong with the archive.",
    ),
    "clock-wrong": ProblemType(
        503,
        "The clock of this process is wrong",
        "Send it again, perhaps another process answers; have the clock of this process's server corrected.",
    ),
    "busy": ProblemType(503, "Drydock is too busy", "Wait for as many seconds as `Retry-After` says."),
}


def status_of(code: str) -> int:
    """The HTTP status of a refusal with this code."""
    return PROBLEMS[code].status


# Of a page that went wrong, by HTTP status: what it is, and what to do.
FAILURES = {
    400: ("This request cannot be read", "Nothing was done. Go to the queue, and try again from there."),
    403: (
        "This form is too old",
        "Nothing was done: it was opened before the last login, or the browser keeps no cookies. Go back, reload the"
        " page, and send it again.",
    ),
    404: ("Not found", "No page has this address. Go to the queue, or look the event up in the history."),
    405: ("This address only takes forms", "Nothing was done. Go to the queue, and decide there."),
    408: ("The request took too long to arrive", "Nothing was done. Send it again."),
    409: ("Somebody was first", "Nothing was done. Go back, reload the page, and look at how it stands now."),
    413: ("This is too much at once", "Nothing was done. Go back, and send less."),
    429: ("Too many requests", "Nothing was done. Wait for a minute, then try again."),
    500: (
        "Something went wrong here",
        "It may have been done or not: look at the event before you do it again. The log of the web process says more.",
    ),
    503: ("Try again in a moment", "Too many requests are waiting. Nothing was done."),
}
CLOCK_WRONG = (
    "The clock of this server is wrong",
    "Nothing was done: the web process that answered does not decide until its server's clock agrees with the"
    " database's. Try again, or tell the people who run Drydock.",
)
ONLY_SHOWS = ("This address only shows something", "Nothing was done. Go back, and use the form there.")
DATABASE_AWAY = "The database is unavailable"
# Why the database has not answered, by Postgres' own code; empty where nobody was there.
DATABASE_WAITS = {
    "": "The database cannot be reached right now.",
    "55P03": "Somebody else is changing the same thing right now. Nothing was done.",
    "57014": "The database took too long to answer. Nothing was done.",
}


def database_waits(sqlstate: str) -> str:
    """Why the database has not answered."""
    return DATABASE_WAITS.get(sqlstate, DATABASE_WAITS[""])
