"""Wording of the timeline and the audit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import sentences, times
from fleet.wording.sentences import EntryText, Sentence
from fleet.wording.times import Reader

# Origin of an action.
VIAS = {
    "page": "a page",
    "api": "the API",
    "rule": "a rule",
    "command": "the command line",
    "slack": "Slack",
    "pagerduty": "PagerDuty",
}


# Format of a time in `before` and `after`.
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@dataclass(frozen=True, slots=True)
class Change:
    """One field before and after an action."""

    name: str
    before: str
    after: str


def changes(row: TimelineRow, reader: Reader) -> tuple[Change, ...]:
    """Return the changed fields of an action."""
    before, after = row.before or {}, row.after or {}
    found = [
        Change(name.replace("_", " "), shown(before.get(name), reader), shown(after.get(name), reader))
        for name in before | after
    ]
    # A field that was missing before and is empty now is no change to a reader.
    return tuple(change for change in found if change.before != change.after)


def shown(value: Any, reader: Reader) -> str:
    """Return the text of a field's value."""
    match value:
        case None | "" | []:
            return "none"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(shown(item, reader) for item in value)
        case dict():
            return ", ".join(f"{name} {shown(item, reader)}" for name, item in value.items())
        case str() if TIME.fullmatch(value):
            return times.at(value, reader)
    return str(value)


def kinds_named(text: str) -> list[EntryKind]:
    """Return the kinds of entries whose label or code contains this text, without case."""
    wanted = text.strip().casefold()
    return [kind for kind in EntryKind if wanted in kind.label.casefold() or wanted.replace(" ", "_") in kind]


def seals_missing(values: Mapping[str, Any], reader: Reader) -> str:
    first, last = values["first"], values["last"]
    missing = f"Seal {first} is" if first == last else f"Seals {first} to {last} are"
    return f"{missing} missing: the rows that they sealed cannot be checked."


# Results of verifying the timeline.
SENTENCES: dict[str, Sentence] = {
    "seal-missing": "Seal {seal} is missing.",
    "seals-missing": seals_missing,
    "seal-follows-no-hash": "Seal {seal} does not follow the hash of seal {before}.",
    "seal-begins-no-chain": "Seal 1 does not begin a chain: it names a hash before it.",
    "seal-ends-early": "Seal {seal} ends before the one in front of it: it was edited.",
    "seal-over-other-rows": lambda values, reader: sentences.fill(
        "Seal {seal} of {at:time} is over {rows} rows, and {found} are there: "
        + ("rows were deleted" if values["found"] < values["rows"] else "rows were inserted")
        + ", or the seal was edited.",
        values,
        reader,
    ),
    "seal-hash-edited": "The hash of seal {seal} of {at:time} was edited; its {rows} rows are whole.",
    "seal-broken": "Seal {seal} of {at:time} is broken: one of its {rows} rows, or the seal, was edited.",
    "seal-cut": "Seal {seal}, which the log names, is not there: the tail was cut.",
    "seal-other": "Seal {seal} is not the one that the log names: the chain was made again.",
    "rows-unsealed": "{rows} rows since {since:time} have no seal: sealing has stopped, or seals were cut.",
    "rows-unborn": "{rows} rows name a transaction that has not happened yet: they were inserted by hand.",
    "era-missing": "The newest row names transaction {newest}, and this server is only at {next}: a dump was restored."
    " Run “drydock-fleet begin_era”.",
    "rows-ahead": "{rows} rows say that they were written in the future.",
    "archive-missing": "File {file} of the archive is missing: {name}.",
    "archive-altered": "File {file} of the archive is not as it was written: {name}.",
    "archive-unreadable": "File {file} of the archive cannot be read by this release: {name}.",
    "archive-reordered": "File {file} of the archive does not follow the one before it: one was removed, or its"
    " manifest was edited.",
    "archive-manifest": "The manifest of file {file} of the archive is missing, or is not as it was written: {name}.",
    "store-away": "File {file} of the archive cannot be had, since the store does not answer: {name}.",
    "store-slow": "File {file} of the archive cannot be had in time: {name}.",
    "store-full": "File {file} of the archive cannot be had, since the store is full: {name}.",
    "store-refused": "File {file} of the archive cannot be had, since the store refuses it: {name}.",
    "store-elsewhere": "File {file} of the archive cannot be had, since the store leads elsewhere: {name}.",
    "store-missing": "File {file} of the archive is missing: {name}.",
}


def _era(row: TimelineRow, reader: Reader) -> str:
    era = (row.after or {}).get("era", "")
    if row.data["fallen"]:
        return f"Era {era} of the timeline began: a dump was restored, and transaction numbers start again."
    return f"Era {era} of the timeline began: the database was restored from a backup."


def _archived(row: TimelineRow, reader: Reader) -> str:
    told = row.data
    first, last = told["files"]
    files = f"file {first}" if first == last else f"files {first} to {last}"
    span = f"{times.at(told['first_at'], reader)} to {times.at(told['last_at'], reader)}"
    what = ARCHIVED.get(told["archived"], told["archived"])
    return f"{told['rows']} {what} of {span} left the database; they are in the archive, in {files}."


# Names of archived kinds of rows.
ARCHIVED: dict[str, str] = {
    "entries": "entries of the timeline",
    "observations": "reports of agents",
    "notifications": "notifications of caches",
    "messages": "messages out",
}
# Faults of the archive, and reasons why rows are retained.
FAULTS: dict[str, str] = {
    "store-away": "the archive's store does not answer",
    "store-slow": "the archive's store answers too slowly",
    "store-full": "the archive's store is full",
    "store-refused": "the archive's store refuses what it is asked for",
    "store-elsewhere": "the archive's store leads elsewhere, and Drydock does not follow",
    "store-missing": "a file is not in the archive's store, or its folder or container is not there",
    "store-differs": "what the archive's store gives back is not what was written",
    "archive-missing": "a file of the archive is missing",
    "archive-altered": "a file of the archive is not as it was written",
    "archive-unreadable": "a file of the archive cannot be read by this release",
    "archive-manifest": "a manifest of the archive is not as it was written",
    "held-open-event": "an event is still open",
    "held-open-maintenance": "an operation on a cache is still under way",
    "held-unsent": "a notification is still to be sent",
    "held-unsealed": "some rows have no seal yet",
    "held-needed": "something in them is still needed",
    "held-busy": "the table was in use",
}


def archive_word(code: str) -> str:
    """Return the name of an archived kind, a fault of the archive, or a reason why rows are retained."""
    return ARCHIVED.get(code, "").capitalize() or FAULTS.get(code, code)


ENTRIES: dict[EntryKind, EntryText] = {EntryKind.ERA_BEGUN: _era, EntryKind.ROWS_ARCHIVED: _archived}
