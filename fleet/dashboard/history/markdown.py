"""The report of an event as Markdown, for wherever a post-mortem is written."""

import re
from collections.abc import Iterator
from datetime import datetime

from fleet.domain.reason import Reason
from fleet.projections.history.event import EventReport
from fleet.projections.intake import RawDocument
from fleet.wording import times
from fleet.wording.events import type_words
from fleet.wording.looks import look_of
from fleet.wording.reader import API
from fleet.wording.say import recorded, say, who_acted, why_apart

# What Markdown, or HTML within it, would read as more than text.
MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


def plain(text: object) -> str:
    """Any text as one line that Markdown shows as it is, whoever wrote it."""
    return MARKUP.sub(r"\\\1", " ".join(str(text).split()))


def fenced(text: str, kind: str = "") -> str:
    """A block that nothing in it can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


def written(report: EventReport) -> str:
    """The whole report; times in UTC."""
    return "\n\n".join(_parts(report)) + "\n"


def _at(moment: datetime | None) -> str:
    return times.at(moment, API) if moment else "none"


def _said(reason: Reason | str) -> str:
    return plain(say(reason, API))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _parts(report: EventReport) -> Iterator[str]:
    event = report.detail.event
    yield f"# {plain(event.event_type or 'Event')} of {plain(', '.join(event.resources) or 'no named machine')}"
    yield f"**{_said(report.verdict)}**"
    yield _table(("what", "value"), _facts(report))
    yield "## Decisions"
    yield "\n".join(_decisions(report)) or "Nobody decided anything about it here."
    yield "## Machines"
    yield _table(
        ("machine", "says", "first listed", "as Started", "gone"),
        [
            (
                plain(row.machine.resource_name),
                _said(row.says),
                _at(row.first_at),
                _at(row.started_at),
                _at(row.gone_at),
            )
            for row in report.detail.sightings
        ],
    )
    yield "## Timeline"
    yield "\n".join(f"- {_at(row.at)} {plain(who_acted(row))}: {plain(recorded(row))}" for row in report.timeline)
    if report.more:
        yield "The timeline goes on: this report holds its first entries."
    yield "## Raw documents"
    for document in report.raw.documents:
        yield from _document(document)
    yield f"Made by Drydock at {_at(report.made_at)}."


def _facts(report: EventReport) -> list[tuple[str, ...]]:
    event, promised = report.detail.event, type_words(report.detail.event.event_type).documented_notice_seconds
    notice = "none" if event.notice_seconds is None else times.duration(event.notice_seconds)
    return [
        ("EventId", plain(event.event_id)),
        ("set", _said(event.set.label)),
        ("state", plain(look_of(event.status).label)),
        ("first seen", _at(event.first_seen_at)),
        ("NotBefore", _at(event.not_before)),
        ("notice given", f"{notice}, documented {times.duration(promised)}" if promised else notice),
        ("started", _at(event.started_at)),
        ("gone", _at(event.ended_at)),
        ("seen", _said(report.detail.seen_summary)),
        ("source", plain(event.source or "not stated")),
        ("description", plain(event.description or "none")),
    ]


def _decisions(report: EventReport) -> Iterator[str]:
    for row in report.acts:
        why = why_apart(row, API)
        yield f"- {_at(row.at)} {plain(recorded(row))}" + (f" Reason: {plain(why)}" if why else "")
    for approval in reversed(report.detail.approvals):
        steps = "; ".join(f"{_said(step.label)} {_at(step.at)}" for step in approval.steps if step.at)
        end = f" {_said(approval.reason)}" if approval.reason else ""
        yield f"- The approval by {_said(approval.by)}: {steps}.{end}"


def _document(document: RawDocument) -> Iterator[str]:
    readers = ", ".join(plain(reading.machine.resource_name) for reading in document.readings)
    yield f"### {document.hash[:12]}, first read {_at(document.first_at)}"
    yield f"Read by {readers}."
    if document.compared_with and document.difference:
        yield f"Against {document.compared_with[:12]}:"
        yield fenced("\n".join(document.difference), "diff")
    yield fenced(document.body, "json")
