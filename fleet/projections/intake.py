"""Raw documents that list an event, with the differences between them."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from typing import Annotated

from fleet.domain.intake import read_document
from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row
from fleet.domain.texts import parse_json
from fleet.domain.times import iso
from fleet.models import DocumentBody, Observation, ScheduledEvent, Sighting
from fleet.projections.archived import ARCHIVE
from fleet.projections.pages import Key, Page, cut_page
from fleet.projections.refs import MachineRef, machine_ref, plain_name
from fleet.projections.visibility import visible

# In a set of a hundred machines most documents are equal; the affected machines come first.
MACHINES = 20
# At most this many reports of one machine are read, newest first, including reminders.
REPORTS = 400


@dataclass(frozen=True, slots=True)
class Reading:
    """One machine's report of a document; `first_at` is when the machine first read it, corrected by its clock
    offset.
    """

    machine: MachineRef
    incarnation: int | None
    first_at: datetime


@dataclass(frozen=True, slots=True)
class RawDocument:
    """One stored document. `lists_event` is False for a document that no longer lists the event.

    `difference` holds the lines of a unified diff against the document that the first reader had before, if that one is
    shown as well. `compared_with` is that document's hash.
    """

    hash: Annotated[str, "SHA-256 of its bytes."]
    body: Annotated[str, "As received."]
    readable: bool
    flags: Annotated[tuple[Reason | str, ...], "What was odd about it."]
    lists_event: bool
    readings: Annotated[tuple[Reading, ...], "Who read it, and when first."]
    compared_with: Annotated[str | None, "The hash of the document read before it."]
    difference: Annotated[tuple[str, ...], "Lines of a unified diff against that one."]

    @property
    def first_at(self) -> datetime:
        return self.readings[0].first_at


@dataclass(frozen=True, slots=True)
class EventDocuments:
    """Documents of an event in the order in which they were first read.

    `left_out` counts machines that are omitted. `archived_at` is when missing parts were archived; None if all are in
    the database. `fault` is why some archived ones cannot be read, else empty.
    """

    documents: tuple[RawDocument, ...]
    left_out: int
    archived_at: datetime | None = None
    fault: str = ""

    def page(self, *, cursor: str | None = None, size: int | None = None) -> Page[RawDocument]:
        """Return a page of documents. Raises `BadCursorError`."""

        def key(row: RawDocument) -> Key:
            return (iso(row.first_at, "microseconds"), row.hash)

        return cut_page(self.documents, key, cursor=cursor, size=size)


def _text(body: DocumentBody) -> str:
    return bytes(body.body).decode("utf-8-sig", errors="replace")


def _lines(text: str) -> list[str]:
    """Return a JSON text with one field on each line and sorted keys, so that a diff shows only real differences. Other
    text is returned unchanged.
    """
    try:
        return json.dumps(parse_json(text, strict=False), indent=2, sort_keys=True, ensure_ascii=False).splitlines()
    except ValueError:
        return text.splitlines()


def _observations(sightings: Sequence[Sighting]) -> list[Observation]:
    """Return the reports of each machine up to the last one that listed the event. One query that uses the reports'
    key.
    """
    parts = []
    for sighting in sightings:
        epoch, last = last_place(sighting)
        rows = visible(Observation).filter(machine=sighting.machine_id, epoch=epoch, seq__lte=last)
        parts.append(rows.defer("data").order_by("-seq")[:REPORTS])
    return list(parts[0].union(*parts[1:], all=True)) if parts else []


def for_event(*, event_id: str) -> EventDocuments | None:
    """Return the documents that list the event, and for each machine the first one that no longer does. None for an
    unknown EventId. Five queries.
    """
    event = visible(ScheduledEvent).filter(event_id=event_id.upper()).first()
    if event is None:
        return None
    named = {plain_name(name) for name in event.resources}
    seen = visible(Sighting).filter(event=event).select_related("machine").defer("machine__compute")
    in_time = seen.order_by("first_at", "pk")
    sightings = sorted(in_time, key=lambda sighting: plain_name(sighting.machine.resource_name) not in named)
    chosen = sightings[:MACHINES]
    reports = [one for one in _observations(chosen) if one.kind == "document" and one.document_id is not None]
    bodies = {body.hash: body for body in visible(DocumentBody).filter(hash__in={r.document_id for r in reports})}
    archived = ARCHIVE.documents_of(event, chosen)
    known = {(report.machine_id, report.epoch, report.seq) for report in reports}
    reports += [one for one in archived.reports if (one.machine_id, one.epoch, one.seq) not in known]
    bodies = {body.hash: body for body in archived.bodies} | bodies
    lists_it = {
        key: any(found.event_id == event.event_id for found in read_document(bytes(body.body)).listings)
        for key, body in bodies.items()
    }
    readings, before = _readings(reports, chosen, lists_it)
    shaped = []
    for key, by_machine in readings.items():
        ordered = sorted(by_machine.values(), key=lambda reading: (reading.first_at, reading.machine.id))
        compared = before.get((ordered[0].machine.id, key))
        shaped.append(
            from_row(
                RawDocument,
                bodies[key],
                body=_text(bodies[key]),
                lists_event=lists_it[key],
                readings=tuple(ordered),
                compared_with=compared,
                difference=_difference(bodies[compared], bodies[key]) if compared is not None else (),
            )
        )
    shaped.sort(key=lambda document: (document.first_at, document.hash))
    return EventDocuments(tuple(shaped), len(sightings) - len(chosen), archived.archived_at, archived.fault)


def last_place(sighting: Sighting) -> tuple[int, int]:
    """Return the position (epoch, number) in the machine's spool of the first document without the event, else of the
    last one that listed it.
    """
    if sighting.gone_epoch is not None and sighting.gone_seq is not None:
        return sighting.gone_epoch, sighting.gone_seq
    return sighting.listed_epoch, sighting.listed_seq


def _readings(
    reports: Sequence[Observation], sightings: Sequence[Sighting], lists_it: Mapping[str, bool]
) -> tuple[dict[str, dict[int, Reading]], dict[tuple[int, str], str]]:
    """Return two mappings: the readings by document hash and machine, and by (machine, hash) the hash of the document
    that the machine had before.
    """
    refs = {s.machine_id: machine_ref(s.machine) for s in sightings}
    gone = {(s.machine_id, s.gone_epoch, s.gone_seq) for s in sightings}
    readings: dict[str, dict[int, Reading]] = defaultdict(dict)
    before: dict[tuple[int, str], str] = {}
    previous: dict[int, str] = {}
    for report in sorted(reports, key=lambda report: report.seq):
        machine_id, key = report.machine_id, str(report.document_id)
        if key not in lists_it or not (lists_it[key] or (machine_id, report.epoch, report.seq) in gone):
            continue
        if machine_id not in readings[key]:
            readings[key][machine_id] = Reading(refs[machine_id], report.incarnation, report.at)
            if machine_id in previous:
                before[machine_id, key] = previous[machine_id]
        previous[machine_id] = key
    return readings, before


def _difference(old: DocumentBody, new: DocumentBody) -> tuple[str, ...]:
    # The first two lines are the names of files.
    return tuple(unified_diff(_lines(_text(old)), _lines(_text(new)), n=2, lineterm=""))[2:]
