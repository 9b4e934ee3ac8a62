"""Handovers that a shift sends to the next one, and their confirmation. Both are entries of the timeline."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Unpack

from django.db import transaction

from fleet.audit.reports import Handover, handover, span
from fleet.domain.actor import Actor
from fleet.domain.history import HANDOVER_LASTS
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, from_json, require_found
from fleet.domain.shapes import InApi
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import Entry
from fleet.operations.locks import Lock, take
from fleet.operations.rights import acting
from fleet.operations.timeline.entries import tell
from fleet.projections.events.rows import EventRow
from fleet.projections.pages import At, Page, cut_page
from fleet.projections.timeline.entries import TimelineRow, fleet
from fleet.projections.visibility import visible

# Lines of each part that a sent handover names, and characters of a reason in a line.
MAX_LINES, MAX_REASON = 10, 200


@dataclass(frozen=True, slots=True)
class SentHandover:
    """The entry of a handover that was sent, and the entries of users who confirmed it, oldest first."""

    entry: Annotated[TimelineRow, InApi.FLATTENED]
    confirmed: Annotated[tuple[TimelineRow, ...], "Who took over; empty until the next shift confirms it."]

    @property
    def lines(
        self,
    ) -> Annotated[tuple[Reason, ...], "Due, open and missed events, and decisions; at most ten of each."]:
        return tuple(from_json(self.entry.data["lines"]))


def recent(*, now: datetime) -> tuple[SentHandover, ...]:
    """Return the handovers of the last days, newest first. Two queries."""
    kinds = [EntryKind.HANDOVER_SENT.value, EntryKind.HANDOVER_CONFIRMED.value]
    found = fleet(entries=visible(Entry).filter(kind__in=kinds, at__gte=now - HANDOVER_LASTS), size=100).results
    confirmed = [row for row in reversed(found) if row.kind is EntryKind.HANDOVER_CONFIRMED]
    return tuple(
        SentHandover(row, tuple(each for each in confirmed if each.data["handover"] == row.id))
        for row in found
        if row.kind is EntryKind.HANDOVER_SENT
    )


def listing(*, now: datetime, **at: Unpack[At]) -> Page[SentHandover]:
    """Return a page of the handovers of the last days, newest first. Two queries."""
    return cut_page(recent(now=now), lambda sent: (-sent.entry.id,), **at)


@transaction.atomic
def send(*, since: datetime | None, until: datetime | None, actor: Actor, now: datetime) -> SentHandover:
    """Send the handover of this time to the next shift, with the actor's reason as a comment. A user sends a handover
    that ends at the same time once. Without times it is that of the last shift.

    Raises Refused: `not-permitted`, `validation`.
    """
    actor = acting(actor, Right.APPROVE, doing="hand-over")
    take(Lock.HANDOVERS)
    begin, end = span(since=since, until=until, handover_read_until=None, now=now)
    # As pages state times.
    times = {"since": iso(begin, "milliseconds"), "until": iso(end, "milliseconds")}
    for sent in recent(now=now):
        if (sent.entry.actor, sent.entry.data["until"]) == (actor.name, times["until"]):
            return sent
    found = handover(since=begin, until=end, now=now)
    decided = found.parts["decided"]
    parts = {"open": found.still_open, "due": found.due, "decided": decided.rows, "missed": found.missed}
    counts: dict[str, Any] = {name: len(rows) for name, rows in parts.items()}
    counts["more"] = found.more_open or decided.more or found.more_missed
    comment = [Reason("handover-comment", why=actor.why)] if actor.why else []
    lines = [*comment, *_lines(found), *map(_decision, decided.rows[:MAX_LINES])]
    tell(EntryKind.HANDOVER_SENT, actor, at=now, after=times, lines=lines, **times, **counts)
    return recent(now=now)[0]


def _lines(found: Handover) -> Iterator[Reason]:
    later = [row for row in found.still_open if row not in found.due]
    for part, rows in (("due", found.due), ("open", later), ("missed", found.missed)):
        for row in rows[:MAX_LINES]:
            what = {"event_type": row.event_type, "resources": list(row.resources[:MAX_LINES]), "set": row.set.label}
            yield Reason("handover-event", part=part, **what, at=row.not_before, state=_state(row))


def _state(row: EventRow) -> list[Reason]:
    """Return who handles and who decided an event."""
    live = row.approval if row.approval and row.approval.live else None
    found = [("claimed", row.claim), ("left", row.hold), ("approved", live)]
    return [Reason("handover-by", did=did, by=each.by) for did, each in found if each is not None]


def _decision(row: TimelineRow) -> Reason:
    where = row.set.label if row.set else ""
    known = {"kind": row.kind.label, "event_type": row.event_type or "", "set": where}
    return Reason("handover-decision", **known, by=row.actor, why=row.why[:MAX_REASON])


@transaction.atomic
def confirm(*, handover_id: int, actor: Actor, now: datetime) -> SentHandover:
    """Record that a user of the next shift has taken over, and return the handover as it was before. Confirming again
    changes nothing.

    Raises Refused: `not-found`, `not-permitted`.
    """
    actor = acting(actor, Right.APPROVE, doing="hand-over")
    take(Lock.HANDOVERS)
    found = next((sent for sent in recent(now=now) if sent.entry.id == handover_id), None)
    sent = require_found(found, "not-found", Reason("handover-unknown"))
    if sent.entry.actor == actor.name:
        raise Refused("not-permitted", Reason("handover-own"))
    if all(each.actor != actor.name for each in sent.confirmed):
        about = {"handover": handover_id, "by": sent.entry.actor, "until": sent.entry.data["until"]}
        tell(EntryKind.HANDOVER_CONFIRMED, actor, at=now, after={"confirmed": True}, **about)
    return sent
