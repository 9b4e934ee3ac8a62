"""Types of refusals for pages, API and gateway: HTTP status, title and advice.

They are the types of the API's problem documents; pages use only the status.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A type of refusal. `status` is the HTTP status, `title` the name, and `advice` a sentence that states what
    to do.
    """

    status: int
    title: str
    advice: str


PROBLEMS: dict[str, Problem] = {
    "unreadable": Problem(400, "The request cannot be read", "Send one JSON object in UTF-8."),
    "not-authenticated": Problem(401, "Not authenticated", "Send a valid token in `Authorization: Bearer <token>`."),
    "clock-skewed": Problem(
        401, "The time of the signature is wrong", "Sign the call again, with the time in `server_time`."
    ),
    "not-permitted": Problem(403, "The user or token lacks the right for this", "Use one that has this right."),
    "join-token-refused": Problem(403, "The join token does not admit this agent", "Create a new join token for it."),
    "attestation-refused": Problem(
        403, "The attested document is rejected", "Request a new document, or use a join token."
    ),
    "not-found": Problem(404, "Not found", "Check the address; paths end with a slash."),
    "unknown-event": Problem(404, "No machine has reported this EventId", "Look it up in the list of events."),
    "unknown-machine": Problem(404, "No machine has this id", "Look it up in the list of machines."),
    "unknown-person": Problem(404, "No user has this name", "Look it up in the list of users."),
    "unknown-set": Problem(404, "No set has this id", "Look it up in the list of sets."),
    "unknown-drill": Problem(404, "No drill has this id", "Look it up in the list of drills."),
    "unknown-wave": Problem(404, "No wave has this id", "Look it up in the list of waves."),
    "unknown-approval": Problem(404, "No approval has this id", "Look it up in the list of approvals."),
    "method-not-allowed": Problem(405, "The method is not supported here", "Use one of the methods in `Allow`."),
    "too-slow": Problem(408, "The request took too long to arrive", "Send it again without pauses."),
    "already-decided": Problem(409, "Already decided", "Read the existing approval; `by` decided it at `at`."),
    "guarded": Problem(409, "Blocked by a guard", "Send a reason in `override` for each guard that `needs` one."),
    "too-late": Problem(409, "Too late for this action", "No action is needed: the event shows its current state."),
    "version-changed": Problem(
        409, "The event has changed since you read it", "Read it again, then send its `version` as `expected_version`."
    ),
    "stopped": Problem(409, "All approvals are stopped", "Ask the user who stopped them, or an administrator."),
    "not-stopped": Problem(409, "Approvals are not stopped", "No action is needed: nothing is stopped."),
    "count-changed": Problem(409, "The number of events has changed", "Read the list again; `count` is the new one."),
    "already-claimed": Problem(409, "It is already claimed", "Talk to `by`, or take the claim over with `take_over`."),
    "not-claimed": Problem(409, "It is not claimed", "No action is needed: there is no claim to release."),
    "already-held": Problem(
        409, "It is already left to Azure", "No action is needed: `by` left it there for `reason`."
    ),
    "not-held": Problem(409, "It is not left to Azure", "No action is needed: there is no hold to lift."),
    "real-event-open": Problem(409, "A real event of this set is open", "Decide that event first; `event` is its id."),
    "drill-open": Problem(409, "A drill of this set is in progress", "Take part in it, or stop it; `drill` is its id."),
    "no-live-machine": Problem(409, "No machine of this set is live", "Check its agents: a drill needs live machines."),
    "machine-live": Problem(409, "The machine is live or late", "Revoke the machine, or wait until it is silent."),
    "machine-in-use": Problem(409, "An open event concerns the machine", "Wait for its end; `event` is its id."),
    "wave-running": Problem(409, "A wave is already in progress", "Wait for its end, or stop it; `wave` is its id."),
    "set-exists": Problem(
        409, "A set of this kind and name exists", "Merge the sets if they are one set in Azure; `set` is its id."
    ),
    "not-redeliverable": Problem(409, "This message cannot be sent again", "See its state in the message log."),
    "precondition-failed": Problem(412, "It has changed since you read it", "Read it again, and send its new `ETag`."),
    "too-large": Problem(413, "The request body is too large", "Send less in one request."),
    "unsupported-media-type": Problem(415, "The media type is not supported", "Send `Content-Type: application/json`."),
    "validation": Problem(422, "The request has invalid values", "Correct the fields that `errors` names."),
    "intermediate-wanted": Problem(422, "A certificate is missing", "Send the certificates that `errors` names, too."),
    "key-reused": Problem(422, "This Idempotency-Key belongs to another request", "Use a new key for a new request."),
    "throttled": Problem(429, "Too many requests", "Wait as many seconds as `Retry-After` states."),
    "failed": Problem(500, "An internal error occurred", "Try again, or report it to an administrator."),
    "admission-pending": Problem(503, "An administrator has to admit this machine", "Retry later."),
    "admissions-full": Problem(503, "Too many machines wait for admission", "Admit or refuse waiting machines."),
    "archive-away": Problem(503, "The archive cannot be read", "Read the reason on the storage page, and retry later."),
    "clock-wrong": Problem(503, "The clock of this server is wrong", "Retry; an administrator has to correct it."),
    "busy": Problem(503, "Drydock is too busy", "Wait as many seconds as `Retry-After` states."),
}


# For a failed page, by HTTP status: what happened, and what to do.
FAILURES = {
    400: ("This request cannot be read", "Nothing was done. Go to the queue, and try again from there."),
    403: (
        "This form is too old",
        "Nothing was done: it was opened before the last login, or the browser keeps no cookies. Go back, reload the"
        " page, and send it again.",
    ),
    404: ("Not found", "No page has this address. Go to the queue, or look the event up in the history."),
    405: ("This address accepts forms only", "Nothing was done. Go to the queue, and decide there."),
    408: ("The request took too long to arrive", "Nothing was done. Send it again."),
    409: ("Already decided", "Nothing was done. Go back, reload the page, and check the current state."),
    413: ("The request is too large", "Nothing was done. Go back, and send less."),
    429: ("Too many requests", "Nothing was done. Wait for a minute, then try again."),
    500: (
        "An error occurred",
        "The action may have been done or not: check the event first. The log of the web process has details.",
    ),
    503: ("Try again in a moment", "Too many requests are waiting. Nothing was done."),
}
CLOCK_WRONG = (
    "The clock of this server is wrong",
    "Nothing was done: the web process that answered does not decide until its server's clock agrees with the"
    " database's. Try again, or report it to your Drydock administrators.",
)
ONLY_SHOWS = ("This address is read-only", "Nothing was done. Go back, and use the form there.")
DATABASE_AWAY = "The database is unavailable"
# Why the database did not answer, by Postgres' own code; empty if it could not be reached.
DATABASE_WAITS = {
    "": "The database cannot be reached right now.",
    "55P03": "Another request is changing the same object. Nothing was changed: try again.",
    "57014": "The database took too long to answer. Nothing was done.",
    "53300": "The database accepts no connection right now: all connections are in use.",
}


def database_waits(sqlstate: str) -> str:
    """Return why the database did not answer, from the SQLSTATE of the error."""
    return DATABASE_WAITS.get(sqlstate, DATABASE_WAITS[""])
