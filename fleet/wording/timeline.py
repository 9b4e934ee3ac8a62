"""Texts of the timeline and the audit."""

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
    """One field with its values before and after an action."""

    name: str
    before: str
    after: str


def changes(row: TimelineRow, reader: Reader) -> tuple[Change, ...]:
    """Return the fields that an action changed, with their values before and after it as text."""
    before, after = row.before or {}, row.after or {}
    found = [
        Change(name.replace("_", " "), shown(before.get(name), reader), shown(after.get(name), reader))
        for name in before | after
    ]
    # A field that was missing before and is empty now is no change to a reader.
    return tuple(change for change in found if change.before != change.after)


def shown(value: Any, reader: Reader) -> str:
    """Return the value of a field as text."""
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
    """Return the kinds of entries whose label or code contains this text in any case."""
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
    "seal-begins-no-chain": "Seal 1 names an earlier hash, but must be the first of the chain.",
    "seal-ends-early": "Seal {seal} ends before the previous seal: it was edited.",
    "seal-over-other-rows": lambda values, reader: sentences.fill(
        "Seal {seal} of {at:time} covers {rows} rows, but {found} exist: rows were {fewer:?deleted|inserted}, or the"
        " seal was edited.",
        {**values, "fewer": values["found"] < values["rows"]},
        reader,
    ),
    "seal-hash-edited": "The hash of seal {seal} of {at:time} was edited; its {rows} rows are unchanged.",
    "seal-broken": "Seal {seal} of {at:time} is broken: one of its {rows} rows, or the seal, was edited.",
    "seal-cut": "Seal {seal} is in the log, but missing: the newest entries were deleted.",
    "seal-other": "Seal {seal} differs from the log: the chain was created again.",
    "rows-unsealed": "{rows} rows since {since:time} have no seal: sealing has stopped, or seals were cut.",
    "rows-unborn": "{rows} rows have a transaction number of the future: they were inserted by hand.",
    "era-missing": "The newest row has transaction {newest}, but this server is at {next}: a backup was restored."
    " Run “drydock-fleet begin_era”.",
    "rows-ahead": "{rows} rows have a time in the future.",
    "archive-missing": "File {file} of the archive is missing: {name}.",
    "archive-altered": "File {file} of the archive was changed after it was written: {name}.",
    "archive-unreadable": "File {file} of the archive cannot be read by this release: {name}.",
    "archive-reordered": "File {file} of the archive does not follow the one before it: one was removed, or its"
    " manifest was edited.",
    "archive-manifest": "The manifest of file {file} of the archive is missing, or was changed after it was written:"
    " {name}.",
    "store-away": "File {file} of the archive cannot be read, because the store does not answer: {name}.",
    "store-slow": "File {file} of the archive could not be read in time: {name}.",
    "store-full": "File {file} of the archive cannot be written, because the store is full: {name}.",
    "store-refused": "File {file} of the archive cannot be read, because the store refuses it: {name}.",
    "store-elsewhere": "File {file} of the archive cannot be read, because the store redirects: {name}.",
    "store-missing": "File {file} of the archive is missing: {name}.",
}


def _archived(row: TimelineRow, reader: Reader) -> str:
    told = row.data
    first, last = told["files"]
    files = f"file {first}" if first == last else f"files {first} to {last}"
    span = f"{times.at(told['first_at'], reader)} to {times.at(told['last_at'], reader)}"
    what = ARCHIVED.get(told["archived"], told["archived"])
    return f"{told['rows']} {what} of {span} were archived in {files}."


# Names of archived kinds of rows.
ARCHIVED: dict[str, str] = {
    "entries": "entries of the timeline",
    "observations": "reports of agents",
    "notifications": "notifications of caches",
    "messages": "sent notifications",
}
# Faults of the archive, and reasons why rows are retained.
FAULTS: dict[str, str] = {
    "store-away": "the store of the archive does not answer",
    "store-slow": "the store of the archive answers too slowly",
    "store-full": "the store of the archive is full",
    "store-refused": "the store of the archive refuses the request",
    "store-elsewhere": "the store of the archive redirects, which Drydock does not follow",
    "store-missing": "a file, its folder or its container is missing in the store of the archive",
    "store-differs": "the store of the archive returns other data than was written",
    "archive-missing": "a file of the archive is missing",
    "archive-altered": "a file of the archive was changed",
    "archive-unreadable": "a file of the archive cannot be read by this release",
    "archive-manifest": "a manifest of the archive was changed",
    "held-open-event": "an event is still open",
    "held-open-maintenance": "a cache maintenance is still under way",
    "held-unsent": "a notification is not sent yet",
    "held-unsealed": "some rows have no seal yet",
    "held-needed": "some rows are still needed",
    "held-busy": "the table was in use",
}


def archive_word(code: str) -> str:
    """Return the text for a code of the archive: an archived kind, a fault, or a reason why rows are not deleted."""
    return ARCHIVED.get(code, "").capitalize() or FAULTS.get(code, code)


ENTRIES: dict[EntryKind, EntryText] = {
    EntryKind.ERA_BEGUN: "Era {after[era]} of the timeline began: {fallen:?a backup was restored, and transaction"
    " numbers start again|the database was restored from a backup}.",
    EntryKind.ROWS_ARCHIVED: _archived,
}
