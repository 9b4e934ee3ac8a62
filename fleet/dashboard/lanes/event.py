"""An event as a picture: one lane a machine, and how it was listed there."""

from datetime import datetime, timedelta

from django.urls import reverse

from fleet.dashboard.lanes.picture import Scale, draw
from fleet.dashboard.lanes.shapes import Moment, Picture, Row, Stay
from fleet.domain.times import clamped
from fleet.projections.events.detail import EventDetail, SightingRow
from fleet.wording.say import say
from fleet.wording.times import at_clock, page_reader


def draw_event(detail: EventDetail, *, now: datetime) -> Picture | None:
    """None without sightings."""
    if not detail.sightings:
        return None
    moments = _moments(detail, now)
    first = clamped(min(sighting.first_at for sighting in detail.sightings))
    last = clamped(
        max([*(moment.at for moment in moments), *(s.gone_at for s in detail.sightings if s.gone_at), first])
    )
    # A little air on both sides, and never less than half a minute across.
    span = max(last - first, timedelta(seconds=30))
    named = {hit.machine.id for hit in detail.hit if hit.machine}
    until = detail.event.ended_at or now
    seen = say(detail.seen_summary, page_reader(now))
    return draw(
        Scale(first - span * 0.03, last + span * 0.08),
        [
            Row(
                row.machine.resource_name,
                _stays(row, until),
                reverse("machine", args=[row.machine.id]),
                hit=row.machine.id in named,
            )
            for row in detail.sightings
        ],
        moments=moments,
        summary=f"{len(detail.sightings)} machines; first seen {at_clock(first)}; {seen}.",
    )


def _moments(detail: EventDetail, now: datetime) -> list[Moment]:
    event = detail.event
    found = []
    if event.not_before and (event.open or event.started_at is None or event.not_before <= now):
        found.append(Moment("NotBefore", event.not_before, "due"))
    if event.approval and event.approval.granted_at:
        by = say(event.approval.by, page_reader())
        found.append(Moment(f"approved by {by}", event.approval.granted_at, "calm"))
    if event.open:
        found.append(Moment("now", now, "now"))
    if event.ended_at:
        found.append(Moment("gone", event.ended_at, "quiet"))
    return found


def _stays(sighting: SightingRow, until: datetime) -> list[Stay]:
    end = sighting.gone_at or until
    started = sighting.started_at
    found = []
    if (started or end) > sighting.first_at:
        found.append(Stay(sighting.first_at, started or end, "due", "Scheduled"))
    if started:
        found.append(Stay(started, max(end, started), "busy", "Started"))
    return found
