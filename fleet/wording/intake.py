"""Texts about received reports: unusual content, and results of hooks."""

from fleet.domain.intake import BAD_OUTCOMES
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording.sentences import EntryText, Sentence, spoken
from fleet.wording.times import Reader

SENTENCES: dict[str, Sentence] = {
    "event-id-unusable": "an event without a usable EventId",
    "body-empty": "empty body",
    "body-no-json": "not JSON",
    "body-cut": "longer than 1 MiB: stored shortened and not read",
    "body-not-kept": "{bytes} bytes, not stored: too many unreadable bodies",
    "too-much-not-understood": "More than {megabytes} MiB of unreadable data in an hour. Until {until} Drydock stores"
    " only the size of further bodies.",
    "body-no-events": "no Events list",
    "events-not-read": "{count} more events are listed, but were not read",
    "too-many-events": "the machine lists too many events that do not name it",
    "too-many-caches": "the machine names too many new caches",
    "too-many-statements": "the machine changes its name, set or instance data too often",
    "incarnation-unreadable": "DocumentIncarnation cannot be read",
    "event-listed-twice": "event {event} is listed twice",
    "resources-unreadable": "{event}: Resources holds repeated or unreadable names",
    "resources-no-list": "{event}: Resources is not a list",
    "not-before-unreadable": "{event}: NotBefore cannot be read",
    "not-before-out-of-bounds": "{event}: NotBefore is not between the years 2000 and 2100, therefore ignored",
    "duration-unreadable": "{event}: DurationInSeconds cannot be read",
    "duration-out-of-range": "{event}: DurationInSeconds is out of range",
    "status-unknown": "{event}: unknown EventStatus {status!r}",
    "status-missing": "{event}: EventStatus is missing",
    "resource-type-unknown": "{event}: unknown ResourceType {resource_type!r}",
    "report-kept": "A report of kind {kind:within quotes} was stored unprocessed: {flag}.",
    "document-unknown": "The agent refers to a document that Drydock never received.",
    "rehearsal-unknown": "The machine reported about a drill that it does not take part in.",
}

OUTCOMES = {"timed-out": "ran out of time"}
# Maximum length of a hook's output in a sentence.
OUTPUT = 300


def _output(row: TimelineRow) -> str:
    output = row.data["output"].strip()
    return f" {spoken(output[:OUTPUT])}" if output else ""


def _hook(row: TimelineRow, reader: Reader) -> str:
    data = row.data
    outcome, status = data["outcome"], data["exit_status"]
    ended = OUTCOMES.get(outcome, spoken(outcome))
    if outcome != "succeeded" and status is not None:
        ended += f" with status {status}"
    if data["seconds"] is not None:
        ended += f" after {data['seconds']:.1f} s"
    if data["phase"] != "redis":
        return f"{row.actor}: {data['phase']} hook {spoken(data['hook'])} {ended}."
    what = f"hook {spoken(data['hook'])}" if data["hook"] else "hooks"
    occasion = spoken(data["notification_type"]) or "a line without a type"
    # If no command ran to its end, the agent's own sentence gives the reason.
    why = _output(row) if outcome == "failed" and status is None else ""
    return f"{row.actor}: redis {what} for {occasion} {ended}.{why}"


def _hooks_ended(row: TimelineRow, reader: Reader) -> str:
    outcome = row.data["outcome"]
    why = _output(row) if outcome in BAD_OUTCOMES else ""
    return f"{row.actor}: {row.data['phase']} {OUTCOMES.get(outcome, spoken(outcome))}.{why}"


def _lost(row: TimelineRow, reader: Reader) -> str:
    data = row.data
    first, last = data["first"], data["last"]
    of = data["machine"]
    which = f"Report {first} of {of} is" if first == last else f"Reports {first} to {last} of {of} are"
    if data["certain"]:
        return (
            f"{which} missing, although Drydock had confirmed them: the database was restored to an older state."
            " Drydock requests the current state from the agent."
        )
    return f"{which} missing: the database was restored to an older state, or the agent could not send them."


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.DOCUMENT_UNREADABLE: "A document could not be read ({flags:list}). Drydock stored it as received.",
    EntryKind.REPORT_UNKNOWN: "{reason}",
    EntryKind.QUARANTINED: "Reports of {machine} are quarantined for an hour: {reason}. Drydock stores them"
    " unprocessed; events that name the machine are not affected. If you did not expect this, revoke the machine.",
    EntryKind.REPORT_REFUSED: "Report {seq} was refused: {reason}.",
    EntryKind.REPORTS_LOST: _lost,
    EntryKind.SPOOL_REUSED: "{machine} sends from an older state folder, after a restore or a late delivery. Drydock"
    " stores these reports without effect. When the agent starts a new state folder, its reports count again.",
    EntryKind.HOOK_SUCCEEDED: _hook,
    EntryKind.HOOK_FAILED: _hook,
    EntryKind.HOOK_LATE: "{actor} started to {phase} late: the event had already started.",
    EntryKind.HOOKS_PLANNED: "{actor} plans to {phase} at {planned_at:time}.",
    EntryKind.HOOKS_BEGAN: "{actor} started to {phase}.",
    EntryKind.HOOKS_ENDED: _hooks_ended,
}
