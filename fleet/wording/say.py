"""Functions that return the sentences of reasons and timeline entries for a reader."""

import json
from dataclasses import replace
from importlib import import_module
from typing import Any

from fleet.domain.actor import COMMAND_LINE, ActorKind
from fleet.domain.reasons import Reason, Refused, from_json
from fleet.domain.timeline import EntryKind
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import sentences
from fleet.wording.drills import in_drill
from fleet.wording.sentences import EntryText, Sentence, machine_named
from fleet.wording.times import API, Reader

NAMES = "approvals blind_spots caches desk drills events intake machines orders policy sets timeline waves"
ROOMS = [import_module(f"fleet.wording.{name}") for name in NAMES.split()]
# Each module contains the texts of its own codes and kinds; no code has two texts.
SENTENCES: dict[str, Sentence] = {code: sentence for room in ROOMS for code, sentence in room.SENTENCES.items()}
ENTRIES: dict[EntryKind, EntryText] = {kind: text for room in ROOMS for kind, text in room.ENTRIES.items()}


def register(room: Any) -> None:
    """Add the tables `SENTENCES` and `ENTRIES` of a module outside of this package."""
    ROOMS.append(room)
    SENTENCES.update(room.SENTENCES)
    ENTRIES.update(room.ENTRIES)


def say(reason: Reason | str, reader: Reader) -> str:
    """Return a reason as a sentence. A sentence that an earlier release stored instead of a code is returned
    unchanged.
    """
    return sentences.say(reason, reader, SENTENCES)


def text_of(row: TimelineRow, reader: Reader) -> str:
    """Return the text of an entry. If the entry was stored with a sentence, that sentence is returned (see
    `is_as_recorded`).
    """
    if row.text:
        return in_drill(row.text) if row.drill and not row.text.startswith("Drill: ") else row.text
    who = who_acted(row)
    try:
        known, data = ENTRIES[row.kind], sentences.worded(from_json(row.data), reader, SENTENCES)
        if "machine" in data and not row.is_act:
            data["machine"] = machine_named(data["machine"])
        if isinstance(known, str):
            more = {"why": row.why, "before": row.before, "after": row.after, "event_id": row.event_id}
            text = sentences.fill(known, {**more, **data, "actor": who}, reader)
        else:
            text = known(replace(row, data=data, actor=who), reader)
    except sentences.UNREADABLE:
        sentences.log.warning("no words for entry %s", row.id, exc_info=row.kind.known)
        return as_kept(row)
    # A person's name keeps its letters.
    if (
        text.startswith(("machine", "a machine", "service account ", COMMAND_LINE.name))
        and row.actor_kind is not ActorKind.PERSON
    ):
        text = text[:1].upper() + text[1:]
    return in_drill(text) if row.drill else text


def who_acted(row: TimelineRow) -> str:
    """Return the name of the actor. A machine chooses its own name, so the word "machine" precedes it to avoid
    confusion.
    """
    if row.actor_kind is ActorKind.SERVICE:
        return f"service account {row.actor} ({f'owner {row.actor_owner}' if row.actor_owner else 'no owner'})"
    if row.actor_kind is not ActorKind.MACHINE:
        return row.actor
    if row.kind is EntryKind.EVENT_SIGHTED and len(row.data.get("names", ())) > 1:
        return f"machines {row.actor}"
    return machine_named(row.actor) if row.actor else "a machine"


def as_kept(row: TimelineRow) -> str:
    """Return the kind and stored values of an entry as text, for a kind from another release that has no text here."""
    kept = {name: value for name in ("before", "after", "data") if (value := getattr(row, name))}
    return f"{row.kind.value} {json.dumps(kept, ensure_ascii=False)}" if kept else row.kind.value


def recorded(row: TimelineRow) -> str:
    """Return the text of an entry for files, with times in UTC."""
    return text_of(row, API)


def is_as_recorded(row: TimelineRow) -> bool:
    """Return whether the text of an entry is the same for all readers, with times in UTC. This is so if its sentence
    was stored, or if its kind is unknown.
    """
    return bool(row.text) or not row.kind.known


def why_apart(row: TimelineRow, reader: Reader) -> str:
    """Return the reason that was given for an action; empty if the entry's text contains it already."""
    return row.why if row.why and row.why not in text_of(row, reader) else ""


def refusal(error: Refused, reader: Reader) -> dict[str, Any]:
    """Return a refusal for pages and API: `code`, `sentence`, and its details with their reasons as sentences."""
    details = sentences.worded(error.details, reader, SENTENCES)
    return {"code": error.code, "sentence": say(error.reason, reader), **details}
