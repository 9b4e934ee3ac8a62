"""A cache's time as a picture: its operations, who listened, and the gaps in which nobody did."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from django.urls import reverse

from fleet.dashboard.lanes.picture import Moment, Picture, Row, Scale, Stay, draw
from fleet.domain.caches.maintenances import MaintenanceStatus
from fleet.domain.times import clamped
from fleet.projections.caches.coverage import Stretch
from fleet.projections.caches.maintenances import MaintenanceDetail, MaintenanceRow
from fleet.projections.events.detail import EventDetail, SightingRow
from fleet.wording.badges import badge_of
from fleet.wording.caches import NOTIFICATIONS, ROLES
from fleet.wording.say import say
from fleet.wording.times import at_clock, page_reader

# More machines than this are told by the table alone.
MOST_LANES = 30


def shard_rows(maintenances: Iterable[MaintenanceRow], *, now: datetime) -> list[Row]:
    """A lane for each shard; one at least."""
    shards: dict[int | None, list[MaintenanceRow]] = defaultdict(list)
    for row in maintenances:
        shards[row.shard].append(row)
    lanes = [
        Row(
            "shard not stated" if shard is None else f"shard {shard}",
            [stay for row in rows for stay in stays(row, now=now, linked=True)],
            hit=True,
        )
        for shard, rows in sorted(shards.items(), key=lambda item: -1 if item[0] is None else item[0])
    ]
    return lanes or [Row("maintenance", [], hit=True)]


def listener_rows(stretches: Iterable[Stretch]) -> list[Row]:
    """A lane for each machine that told whether it listens."""
    machines: dict[int, list[Stretch]] = defaultdict(list)
    for one in stretches:
        machines[one.machine.id].append(one)
    return [
        Row(
            found[0].machine.resource_name,
            [Stay(one.begin, one.end, "ear" if one.listening else "bad", badge_of(one).label) for one in found],
            reverse("machine", args=[machine_id]),
        )
        for machine_id, found in machines.items()
    ]


def draw_maintenance(detail: MaintenanceDetail) -> Picture:
    """One operation against the clock: the node, its partner, and who listened."""
    row = detail.maintenance
    lanes = [Row(f"{row.node_port or 'node'} {ROLES[row.was_replica]}".strip(), stays(row, now=detail.end), hit=True)]
    if row.partner_port is not None and row.failover_at is not None:
        end = max(row.ended_at or detail.end, row.failover_at)
        lanes.append(Row(str(row.partner_port), [Stay(row.failover_at, end, "good", "primary")], hit=True))
    told = [(NOTIFICATIONS[one.kind], one.first_at) for one in detail.members if one.kind]
    heard = [Moment(words.label, at, words.tone) for words, at in told]
    # Repeats stand in the table; the picture shows each step once, when it was first heard.
    moments = list({moment.label: moment for moment in reversed(heard)}.values())
    if row.expected_at and row.approximate and detail.begin <= row.expected_at <= detail.end:
        moments.append(Moment("stated start", row.expected_at, "due"))
    if row.active:
        moments.append(Moment("now", detail.server_time, "now"))
    return _with_listeners(detail, lanes, moments=moments, summary=f"{len(detail.members)} notifications")


def stays(row: MaintenanceRow, *, now: datetime, linked: bool = False) -> list[Stay]:
    """An operation's stretches, up to `now`; `linked` ones lead to its page."""
    part = partial(Stay, href=reverse("maintenance", args=[row.id]) if linked else "", key=f"maintenance-{row.id}")
    unseen = row.status is MaintenanceStatus.END_NOT_SEEN
    until = _until(row, now)
    gone = row.began_at
    if gone is None and row.ended_at is not None:
        # Only its end was heard: when it began is not known.
        return [part(row.first_at, max(row.ended_at, row.first_at), "quiet", "ended", began_before=True)]
    found = [part(row.first_at, min(gone or until, now), "due", "announced")]
    if gone is not None and gone <= now:
        back = max(row.failover_at or until, gone)
        found.append(
            part(
                gone,
                back,
                "busy",
                "node going, connections lost",
                end_unseen=unseen and row.failover_at is None,
            )
        )
        if row.failover_at is not None and until > row.failover_at:
            found.append(part(row.failover_at, until, "good", "failed over, replica not back", end_unseen=unseen))
    return found if found[0].end > row.first_at else found[1:]


def _until(row: MaintenanceRow, now: datetime) -> datetime:
    if row.ended_at is not None:
        return row.ended_at
    if row.active:
        return now
    if row.status is MaintenanceStatus.NEVER_STARTED and row.expected_at is not None:
        return row.expected_at
    return row.last_at


def _with_listeners(
    detail: MaintenanceDetail, lanes: Sequence[Row], *, moments: Iterable[Moment], summary: str
) -> Picture:
    listeners = listener_rows(detail.stretches)
    gaps = [Stay(gap.begin, gap.end, "", "Nobody listened") for gap in detail.gaps]
    return draw(
        Scale(detail.begin, max(detail.end, detail.begin + timedelta(seconds=30))),
        [*lanes, *listeners[:MOST_LANES]],
        moments=moments,
        gaps=gaps,
        summary=f"{summary}; {len(listeners)} machines told whether they listen; nobody listened {len(gaps)} times.",
    )


# An event as a picture: one lane a machine, and how it was listed there.


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
