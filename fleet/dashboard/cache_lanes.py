"""A cache's time as a picture: its operations, who listened, and the gaps in which nobody did. Drawn as SVG."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.dashboard import words
from fleet.dashboard.lanes import BAR, LANE, LEFT, RIGHT, TOP, WIDTH, Bar, Mark, Tick, placed, ticks_of
from fleet.domain.maintenance import MaintenanceStatus
from fleet.domain.notifications import NotificationType
from fleet.projections.caches import CacheDetail
from fleet.projections.listening import Span, Stretch
from fleet.projections.maintenances import MaintenanceDetail, MaintenanceRow

MARKS = {
    NotificationType.SCHEDULED: "due",
    NotificationType.STARTING: "due",
    NotificationType.START: "busy",
    NotificationType.FAILOVER_COMPLETE: "calm",
    NotificationType.ENDED: "quiet",
    NotificationType.SCALE_COMPLETE: "calm",
}
# More machines than this are told by the table alone.
MOST_LANES = 30


@dataclass(frozen=True, slots=True)
class CacheBar:
    """A bar that may lead to an operation."""

    bar: Bar
    maintenance_id: int | None = None


@dataclass(frozen=True, slots=True)
class CacheLane:
    """`machine_id` is None for the lane of a shard or a node."""

    name: str
    y: int
    bars: tuple[CacheBar, ...]
    machine_id: int | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which nobody listened, through all lanes."""

    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class CachePicture:
    width: int
    height: int
    left: int
    top: int
    bar: int
    bottom: int
    lanes: tuple[CacheLane, ...]
    gaps: tuple[Gap, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    summary: str

    @property
    def gap_height(self) -> int:
        return self.bottom - self.top


Place = Callable[[datetime], float]
Phase = tuple[datetime, datetime, str, str]
# A lane's name, and its phases with the operation that each leads to.
Row = tuple[str, list[tuple[Phase, int | None]]]


def draw_cache(detail: CacheDetail) -> CachePicture:
    """The last hours of a cache: one lane a shard, one lane a listener."""
    shards: dict[int | None, list[MaintenanceRow]] = defaultdict(list)
    for row in detail.maintenances:
        if _until(row, detail.end) >= detail.begin:
            shards[row.shard].append(row)
    lanes: list[Row] = [
        (
            _shard_name(shard),
            [(phase, row.id) for row in rows for phase in phases(row, now=detail.end)],
        )
        for shard, rows in sorted(shards.items(), key=lambda item: -1 if item[0] is None else item[0])
    ]
    return _picture(
        lanes=lanes or [("maintenance", [])],
        stretches=detail.stretches,
        gaps=detail.gaps,
        begin=detail.begin,
        end=detail.end,
        moments=[("now", detail.end, "now")],
        summary=f"{sum(len(rows) for rows in shards.values())} operations",
    )


def draw_maintenance(detail: MaintenanceDetail) -> CachePicture:
    """One operation against the clock: the node, its partner, and who listened."""
    row = detail.maintenance
    lanes: list[Row] = [(_node_name(row.node_port, row), [(phase, None) for phase in phases(row, now=detail.end)])]
    if row.partner_port is not None and row.failover_at is not None:
        end = row.ended_at or detail.end
        promoted: Phase = (row.failover_at, max(end, row.failover_at), "good", "primary")
        lanes.append((str(row.partner_port), [(promoted, None)]))
    moments = [(member.label, member.first_at, MARKS[member.kind]) for member in detail.members if member.kind]
    # Repeats stand in the table; the picture shows each step once.
    steps = list({label: (label, at, css) for label, at, css in reversed(moments)}.values())
    if row.expected_at and row.approximate and detail.begin <= row.expected_at <= detail.end:
        steps.append(("stated start", row.expected_at, "due"))
    if row.active:
        steps.append(("now", detail.server_time, "now"))
    return _picture(
        lanes=lanes,
        stretches=detail.stretches,
        gaps=detail.gaps,
        begin=detail.begin,
        end=detail.end,
        moments=steps,
        summary=f"{len(detail.members)} notifications",
    )


def phases(row: MaintenanceRow, *, now: datetime) -> list[Phase]:
    """An operation's stretches as (from, to, tone, words), up to `now`."""
    found: list[Phase] = []
    until = _until(row, now)
    gone = row.began_at
    if gone is None and row.ended_at is not None:
        # Only its end was heard: when it began is not known.
        return [(row.first_at, max(row.ended_at, row.first_at), "quiet", "ended")]
    announced_until = min(gone or until, now)
    if announced_until > row.first_at:
        found.append((row.first_at, announced_until, "due", "announced"))
    if gone is not None and gone <= now:
        back = row.failover_at or until
        found.append((gone, max(back, gone), "busy", "node going, connections lost"))
        if row.failover_at is not None and until > row.failover_at:
            found.append((row.failover_at, until, "good", "failed over, replica not back"))
    return found


def _until(row: MaintenanceRow, now: datetime) -> datetime:
    if row.ended_at is not None:
        return row.ended_at
    if row.active:
        return now
    if row.status is MaintenanceStatus.NEVER_STARTED and row.expected_at is not None:
        return row.expected_at
    return row.last_at


def _shard_name(shard: int | None) -> str:
    return "shard not stated" if shard is None else f"shard {shard}"


def _node_name(port: int | None, row: MaintenanceRow) -> str:
    role = {True: "replica", False: "primary", None: ""}[row.was_replica]
    return f"{port or 'node'} {role}".strip()


def _picture(
    *,
    lanes: Sequence[Row],
    stretches: Iterable[Stretch],
    gaps: Iterable[Span],
    begin: datetime,
    end: datetime,
    moments: Sequence[tuple[str, datetime, str]],
    summary: str,
) -> CachePicture:
    end = max(end, begin + timedelta(seconds=30))
    scale = (WIDTH - LEFT - RIGHT) / (end - begin).total_seconds()

    def x(at: datetime) -> float:
        return round(LEFT + (min(max(at, begin), end) - begin).total_seconds() * scale, 1)

    marks = placed([(x(at), label, at, css) for label, at, css in moments])
    top = TOP + max((mark.y for mark in marks), default=0)
    drawn = [
        CacheLane(
            name=name,
            y=top + number * LANE,
            bars=tuple(
                CacheBar(_bar(x, first, last, tone, f"{name}: {what}"), maintenance_id)
                for (first, last, tone, what), maintenance_id in bars
            ),
        )
        for number, (name, bars) in enumerate(lanes)
    ]
    machines: dict[int, list[Stretch]] = defaultdict(list)
    for one in stretches:
        machines[one.machine.id].append(one)
    for machine_id, found in list(machines.items())[:MOST_LANES]:
        name = found[0].machine.resource_name
        drawn.append(
            CacheLane(
                name=name,
                y=top + len(drawn) * LANE,
                machine_id=machine_id,
                bars=tuple(
                    CacheBar(
                        _bar(x, one.begin, one.end, "ear" if one.listening else "bad", f"{name}: {one.look.label}")
                    )
                    for one in found
                ),
            )
        )
    bottom = top + len(drawn) * LANE
    shown = tuple(
        Gap(
            x=x(gap.begin),
            width=max(round(x(gap.end) - x(gap.begin), 1), 2.0),
            title=f"Nobody listened from {words.hms(gap.begin)} to {words.hms(gap.end)} {words.zone_name(gap.end)}",
        )
        for gap in gaps
    )
    return CachePicture(
        width=WIDTH,
        height=bottom + 24,
        left=LEFT,
        top=top,
        bar=BAR,
        bottom=bottom,
        lanes=tuple(drawn),
        gaps=shown,
        marks=marks,
        ticks=ticks_of(begin, end, x),
        summary=f"{summary}; {len(machines)} machines told whether they listen; nobody listened {len(shown)} times.",
    )


def _bar(place: Place, first: datetime, last: datetime, tone: str, what: str) -> Bar:
    start = place(first)
    title = f"{what}, {words.hms(first)} to {words.hms(last)} {words.zone_name(last)}"
    return Bar(x=start, width=max(round(place(last) - start, 1), 3.0), tone=tone, title=title)
