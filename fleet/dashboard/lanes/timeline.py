"""Timeline pictures: of an event, of a cache's maintenance, and of a fleet, a service, a set or a machine."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from fleet.dashboard.lanes.picture import Interval, Moment, Picture, Row, Scale, draw
from fleet.domain.caches.maintenances import ASSUMED, MaintenanceStatus
from fleet.domain.times import clamped
from fleet.projections.caches.coverage import Span, Stretch
from fleet.projections.caches.maintenances import MaintenanceDetail, MaintenanceRow
from fleet.projections.events.detail import EventDetail, SightingRow
from fleet.projections.spans import CacheSpan, EventSpan
from fleet.wording.badges import badge_of
from fleet.wording.caches import NOTIFICATIONS, ROLES
from fleet.wording.events import named
from fleet.wording.say import say
from fleet.wording.times import at_clock, duration, iso, local, page_reader


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table and the CSV file that belong to a picture."""

    what: str
    where: str
    href: str
    state: str
    begin: datetime
    until: datetime | None


def event_intervals(event: EventSpan, *, now: datetime) -> list[Interval]:
    """Return the intervals of an event: announced, Started, and the time in which it may have started."""
    of = f"{'Drill: ' if event.drill else ''}{named(event.event_type, event.resources)}"
    drill = "drill" if event.drill else ""
    part = partial(Interval, href=reverse("event", args=[event.event_id]), key=event.event_id, of=of)
    started, until = event.started_at, event.ended_at or now
    announced = started or (max(event.not_before or now, event.first_seen_at) if event.open else until)
    intervals = []
    if announced > event.first_seen_at:
        how = badge_of(event.ended_as).label if event.ended_as and started is None else "announced"
        unseen = not event.open and started is None and event.end_unseen
        intervals.append(part(event.first_seen_at, announced, drill or "due", how, end_unseen=unseen))
    if started is not None:
        how = "started at the latest" if event.began_before else "started"
        edges: dict[str, Any] = {"began_before": event.began_before, "end_unseen": event.end_unseen}
        intervals.append(part(started, max(until, started), drill or "busy", how, **edges))
    elif event.open and event.not_before is not None:
        # The time after NotBefore is unknown in advance.
        may = max(event.not_before, event.first_seen_at)
        intervals.append(part(may, max(now, may) + ASSUMED, drill or "busy", "may start", maybe=True))
    return intervals or [part(event.first_seen_at, until, drill or "quiet", "seen")]


def cache_intervals(row: MaintenanceRow, *, now: datetime) -> list[Interval]:
    """Return the intervals of a maintenance, including the time in which it may have started."""
    of = f"maintenance of {row.cache.name}"
    found = [replace(one, of=of) for one in maintenance_intervals(row, now=now, linked=True)]
    if row.active and row.began_at is None and row.earliest_at is not None:
        may = max(row.earliest_at, row.first_at)
        href, key = reverse("maintenance", args=[row.id]), f"maintenance-{row.id}"
        found.append(Interval(may, max(now, may) + ASSUMED, "busy", "the node may stop", href, key, of=of, maybe=True))
    return found


def cache_row(cache: CacheSpan, *, now: datetime) -> Row:
    intervals = [interval for row in cache.maintenances for interval in cache_intervals(row, now=now)]
    gaps = [Interval(gap.begin, gap.end, "", "No listener") for gap in cache.gaps]
    return Row(cache.name, intervals, reverse("cache", args=[cache.id]), gaps=gaps)


def rows_by(
    events: Iterable[EventSpan],
    names: Callable[[EventSpan], Iterable[tuple[str, str]]],
    *,
    now: datetime,
    first: Iterable[tuple[str, str]] = (),
) -> list[Row]:
    """Return one lane for each (name, URL) that `names` returns for an event. Lanes listed in `first` come first."""
    intervals: dict[tuple[str, str], list[Interval]] = {lane: [] for lane in first}
    for event in events:
        drawn = event_intervals(event, now=now)
        for lane in names(event):
            intervals.setdefault(lane, []).extend(drawn)
    return [Row(name, drawn, href) for (name, href), drawn in intervals.items()]


def lines_of(rows: Iterable[Row], scale: Scale) -> tuple[Line, ...]:
    """Return one table row for each object, with the names of all its lanes, the latest first."""
    intervals: dict[str, list[Interval]] = {}
    where: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        inside: dict[str, list[Interval]] = defaultdict(list)
        for number, interval in enumerate(row.intervals):
            if scale.holds(interval):
                inside[interval.key or f"{row.name} {number}"].append(interval)
        for key, found in inside.items():
            where[key].append(row.name)
            intervals.setdefault(key, found)
    lines = []
    for key, found in intervals.items():
        first, last = found[0], found[-1]
        until = None if last.maybe or last.end_unseen else last.end
        lines.append(Line(last.of or last.what, ", ".join(where[key]), last.href, last.what, first.begin, until))
    return tuple(sorted(lines, key=lambda line: line.begin, reverse=True))


# Period of a picture, and links to earlier, later, shorter and longer ones. `?from=&to=`.

SHORTEST = timedelta(minutes=1)
LONGEST = timedelta(days=400)
DAY = timedelta(days=1)
# Lengths up to now that users can choose; the first is the default.
LENGTHS = (DAY, timedelta(hours=1), timedelta(hours=6), timedelta(days=7), timedelta(days=30))
# Share of the future in the picture. Most events are announced fifteen minutes ahead, and last fifteen minutes at most.
AHEAD = 1 / 16


@dataclass(frozen=True, slots=True)
class Way:
    """A link to another period. `chosen`: it is the period that is shown."""

    label: str
    href: str
    title: str = ""
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The period that is shown, with links to other periods."""

    window: Span
    lengths: tuple[Way, ...]
    ways: tuple[Way, ...]

    @property
    def said(self) -> str:
        """Return the period as text, such as `22 Nov 14:00 to 15:00`."""
        begin, end = local(self.window.begin), local(self.window.end)
        until = f"{end:%H:%M}" if begin.date() == end.date() else f"{end.day} {end:%b} {end:%H:%M}"
        return f"{begin.day} {begin:%b} {begin:%H:%M} to {until}"


def chosen_window(asked: Mapping[str, str], *, now: datetime, since: datetime | None = None) -> Choice:
    """Return the period that the URL requests: with `from` and `to`, or the last `hours` up to shortly after now. It
    does not begin before `since`, the time from which there are observations.
    """
    begin, end = _time(asked.get("from", "")), _time(asked.get("to", ""))
    live = begin is None and end is None
    length = next((one for one in LENGTHS if _hours(one) == asked.get("hours", "")), LENGTHS[0])
    if live:
        begin, end = now - length, now
    end = end or max(now, (begin or now) + SHORTEST)
    begin = begin or end - DAY
    if since is not None:
        begin = max(begin, min(since, now) - SHORTEST)
    begin = max(begin, end - LONGEST)
    if live:
        end = now + max((now - begin) * AHEAD, timedelta(minutes=35))
    window = Span(begin, max(end, begin + SHORTEST))
    rest = _other_parameters(asked)
    lengths = tuple(
        Way(duration(one.total_seconds()), f"?{urlencode([*rest, ('hours', _hours(one))])}", "", live and one == length)
        for one in sorted(LENGTHS)
    )
    return Choice(window, lengths, _ways(window, rest, live=live))


def within(asked: Mapping[str, str], begin: datetime, end: datetime) -> str:
    """Return the URL query of the same picture for this period, with a small margin."""
    margin = max((end - begin) * 0.1, timedelta(seconds=30))
    return _to(_other_parameters(asked), begin - margin, end + margin)


def _other_parameters(asked: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the parameters of the URL that do not define the period."""
    return [(name, value) for name, value in asked.items() if name not in ("from", "to", "hours", "part", "cursor")]


def _ways(window: Span, rest: list[tuple[str, str]], *, live: bool) -> tuple[Way, ...]:
    begin, end = window.begin, window.end
    half, quarter = (end - begin) / 2, (end - begin) / 4
    return (
        Way("Earlier", _to(rest, begin - half, end - half), "Half a window earlier"),
        Way("Later", _to(rest, begin + half, end + half), "Half a window later"),
        Way("Zoom in", _to(rest, begin + quarter, end - quarter), "Show the middle half"),
        Way("Zoom out", _to(rest, begin - half, end + half), "Show twice the time"),
        *([] if live else [Way("Now", f"?{urlencode(rest)}", "Follow the current time")]),
    )


def _to(rest: list[tuple[str, str]], begin: datetime, end: datetime) -> str:
    return f"?{urlencode([*rest, ('from', iso(clamped(begin))), ('to', iso(clamped(end)))])}"


def _hours(length: timedelta) -> str:
    return f"{length / timedelta(hours=1):g}"


def _time(text: str) -> datetime | None:
    # A plus sign in a URL is decoded as a space.
    try:
        at = datetime.fromisoformat(text.strip().replace(" ", "+", 1) if text.count(":") > 2 else text.strip())
        return clamped(at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def shard_rows(maintenances: Iterable[MaintenanceRow], *, now: datetime) -> list[Row]:
    """Return one lane for each shard, and at least one lane."""
    shards: dict[int | None, list[Interval]] = defaultdict(list)
    for row in maintenances:
        shards[row.shard] += maintenance_intervals(row, now=now, linked=True)
    lanes = [
        Row("shard not stated" if shard is None else f"shard {shard}", intervals, hit=True)
        for shard, intervals in sorted(shards.items(), key=lambda item: -1 if item[0] is None else item[0])
    ]
    return lanes or [Row("maintenance", [], hit=True)]


def listener_rows(stretches: Iterable[Stretch]) -> list[Row]:
    """Return one lane for each machine that reported whether it was listening."""
    machines: dict[int, list[Stretch]] = defaultdict(list)
    for one in stretches:
        machines[one.machine.id].append(one)
    return [
        Row(
            found[0].machine.resource_name,
            [Interval(one.begin, one.end, "ear" if one.listening else "bad", badge_of(one).label) for one in found],
            reverse("machine", args=[machine_id]),
        )
        for machine_id, found in machines.items()
    ]


def draw_maintenance(detail: MaintenanceDetail) -> Picture:
    """Return the picture of one maintenance, with lanes for the node, the node that takes over, and the listeners."""
    row = detail.maintenance
    node = f"{row.node_port or 'node'} {ROLES[row.was_replica]}".strip()
    lanes = [Row(node, maintenance_intervals(row, now=detail.end), hit=True)]
    if row.partner_port is not None and row.failover_at is not None:
        end = max(row.ended_at or detail.end, row.failover_at)
        lanes.append(Row(str(row.partner_port), [Interval(row.failover_at, end, "good", "primary")], hit=True))
    steps = [(NOTIFICATIONS[one.kind], one.first_at) for one in detail.members if one.kind]
    # Repeats are in the table; the picture shows each step once, when it was first reported.
    moments = list({words.label: Moment(words.label, at, words.tone) for words, at in reversed(steps)}.values())
    if row.expected_at and row.approximate and detail.begin <= row.expected_at <= detail.end:
        moments.append(Moment("stated start", row.expected_at, "due"))
    if row.active:
        moments.append(Moment("now", detail.server_time, "now"))
    listeners = listener_rows(detail.stretches)
    summary = f"{len(detail.members)} notifications; {len(listeners)} machines reported whether they listen"
    return draw(
        Scale(detail.begin, max(detail.end, detail.begin + timedelta(seconds=30))),
        # Further listeners are in the table only.
        [*lanes, *listeners[:30]],
        moments=moments,
        gaps=[Interval(gap.begin, gap.end, "", "No listener") for gap in detail.gaps],
        summary=f"{summary}; times without a listener: {len(detail.gaps)}.",
    )


def maintenance_intervals(row: MaintenanceRow, *, now: datetime, linked: bool = False) -> list[Interval]:
    """Return the intervals of a maintenance, up to `now`. If `linked`, they link to the page of the maintenance."""
    part = partial(Interval, href=reverse("maintenance", args=[row.id]) if linked else "", key=f"maintenance-{row.id}")
    unseen = row.status is MaintenanceStatus.END_NOT_SEEN
    until = _until(row, now)
    gone = row.began_at
    if gone is None and row.ended_at is not None:
        # Only its end was reported: its beginning is unknown.
        return [part(row.first_at, max(row.ended_at, row.first_at), "quiet", "ended", began_before=True)]
    intervals = [part(row.first_at, min(gone or until, now), "due", "announced")]
    if gone is not None and gone <= now:
        back, how = max(row.failover_at or until, gone), "node stopped, connections lost"
        intervals.append(part(gone, back, "busy", how, end_unseen=unseen and row.failover_at is None))
        if row.failover_at is not None and until > row.failover_at:
            intervals.append(part(row.failover_at, until, "good", "failed over, replica not back", end_unseen=unseen))
    return intervals if intervals[0].end > row.first_at else intervals[1:]


def _until(row: MaintenanceRow, now: datetime) -> datetime:
    stated = row.expected_at if row.status is MaintenanceStatus.NEVER_STARTED else None
    return row.ended_at or (now if row.active else stated or row.last_at)


# Picture of an event: one lane a machine, with its listings of the event.


def draw_event(detail: EventDetail, *, now: datetime) -> Picture | None:
    """Return the picture of an event; None if no machine has seen it."""
    if not detail.sightings:
        return None
    moments = _moments(detail, now)
    first = clamped(min(sighting.first_at for sighting in detail.sightings))
    last = clamped(
        max([*(moment.at for moment in moments), *(s.gone_at for s in detail.sightings if s.gone_at), first])
    )
    # A small margin on both sides, and at least half a minute in total.
    span = max(last - first, timedelta(seconds=30))
    named = {hit.machine.id for hit in detail.hit if hit.machine}
    until = detail.event.ended_at or now
    seen = say(detail.seen_summary, page_reader(now))
    lanes = [(row.machine, _sighting_intervals(row, until)) for row in detail.sightings]
    rows = [
        Row(machine.resource_name, seen_at, reverse("machine", args=[machine.id]), hit=machine.id in named)
        for machine, seen_at in lanes
    ]
    summary = f"{len(detail.sightings)} machines; first seen {at_clock(first)}; {seen}."
    return draw(Scale(first - span * 0.03, last + span * 0.08), rows, moments=moments, summary=summary)


def _moments(detail: EventDetail, now: datetime) -> list[Moment]:
    event, approval = detail.event, detail.event.approval
    has_not_before = event.open or event.started_at is None or (event.not_before or now) <= now
    by = say(approval.by, page_reader()) if approval else ""
    times = (
        ("NotBefore", event.not_before if has_not_before else None, "due"),
        (f"approved by {by}", approval.granted_at if approval else None, "calm"),
        ("now", now if event.open else None, "now"),
        ("ended", event.ended_at, "quiet"),
    )
    return [Moment(label, at, tone) for label, at, tone in times if at]


def _sighting_intervals(sighting: SightingRow, until: datetime) -> list[Interval]:
    end, started = sighting.gone_at or until, sighting.started_at
    intervals = []
    if (started or end) > sighting.first_at:
        intervals.append(Interval(sighting.first_at, started or end, "due", "Scheduled"))
    return [*intervals, Interval(started, max(end, started), "busy", "Started")] if started else intervals
