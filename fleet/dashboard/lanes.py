"""An event as a picture: one lane a machine, drawn by the server as SVG.

Coordinates are in the picture's own units, `WIDTH` across; colours and texts are the style sheet's business.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from django.utils.timezone import localtime

from fleet.dashboard.words import at_clock
from fleet.projections.events import EventDetail, SightingRow

WIDTH = 960
LEFT = 132
RIGHT = 16
TOP = 8
ROW = 15
LANE = 24
BAR = 12
# Distances between ticks, in seconds; the first that gives few enough is taken.
TICKS = (1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800)
# What a mark's text needs, in units, so that two texts do not lie on each other.
LABEL = 96


@dataclass(frozen=True, slots=True)
class Bar:
    """`tone` is a state's tone; `title` is what a screen reader and the pointer get."""

    x: float
    width: float
    tone: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    machine_id: int
    y: int
    hit: bool
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that runs through all lanes. `anchor` is `start` or `end`, so that its text stays inside the picture."""

    x: float
    label: str
    at: datetime
    css: str
    y: int
    text_x: float
    anchor: str


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    width: int
    height: int
    left: int
    top: int
    bar: int
    bottom: int
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    summary: str


def draw(detail: EventDetail, *, now: datetime) -> Picture | None:
    """The picture of an event; None without sightings."""
    if not detail.sightings:
        return None
    moments = _moments(detail, now)
    first = min(sighting.first_at for sighting in detail.sightings)
    last = max([*(at for _, at, _ in moments), *(s.gone_at for s in detail.sightings if s.gone_at), first])
    # A little air on both sides, and never less than half a minute across.
    span = max((last - first).total_seconds(), 30.0)
    begin, end = first - timedelta(seconds=span * 0.03), last + timedelta(seconds=span * 0.08)
    scale = (WIDTH - LEFT - RIGHT) / (end - begin).total_seconds()

    def x(at: datetime) -> float:
        return round(LEFT + (at - begin).total_seconds() * scale, 1)

    named = {hit.machine.id for hit in detail.hit if hit.machine}
    until = detail.event.ended_at or now
    marks = placed([(x(at), label, at, css) for label, at, css in moments])
    top = TOP + max((mark.y for mark in marks), default=0)
    lanes = tuple(
        Lane(
            name=sighting.machine.resource_name,
            machine_id=sighting.machine.id,
            y=top + number * LANE,
            hit=sighting.machine.id in named,
            bars=_bars(sighting, x, until),
        )
        for number, sighting in enumerate(detail.sightings)
    )
    bottom = top + len(lanes) * LANE
    return Picture(
        width=WIDTH,
        height=bottom + 24,
        left=LEFT,
        top=top,
        bar=BAR,
        bottom=bottom,
        lanes=lanes,
        marks=marks,
        ticks=ticks_of(begin, end, x),
        summary=f"{len(lanes)} machines; first seen {at_clock(first)}; {detail.seen_summary}.",
    )


def _moments(detail: EventDetail, now: datetime) -> list[tuple[str, datetime, str]]:
    event = detail.event
    found: list[tuple[str, datetime, str]] = []
    if event.not_before and (event.open or event.started_at is None or event.not_before <= now):
        found.append(("NotBefore", event.not_before, "due"))
    if event.approval and event.approval.granted_at:
        found.append((f"approved by {event.approval.by}", event.approval.granted_at, "calm"))
    if event.open:
        found.append(("now", now, "now"))
    if event.ended_at:
        found.append(("gone", event.ended_at, "quiet"))
    return found


def _bars(sighting: SightingRow, place: Callable[[datetime], float], until: datetime) -> tuple[Bar, ...]:
    end = sighting.gone_at or until
    bars = []
    listed_until = sighting.started_at or end
    name = sighting.machine.resource_name
    if listed_until > sighting.first_at:
        bars.append(_bar(place(sighting.first_at), place(listed_until), "due", f"{name}: Scheduled", sighting.first_at))
    if sighting.started_at:
        bars.append(
            _bar(
                place(sighting.started_at),
                place(max(end, sighting.started_at)),
                "busy",
                f"{name}: Started",
                sighting.started_at,
            )
        )
    return tuple(bars)


def _bar(start: float, end: float, tone: str, what: str, at: datetime) -> Bar:
    return Bar(
        x=start,
        width=max(round(end - start, 1), 3.0),
        tone=tone,
        title=f"{what} since {at_clock(at)}",
    )


def placed(marks: list[tuple[float, str, datetime, str]]) -> tuple[Mark, ...]:
    """Marks in rows, so that texts of neighbours do not overlap."""
    placed: list[Mark] = []
    rows: list[tuple[float, int]] = []
    for x, label, at, css in sorted(marks, key=lambda mark: mark[0]):
        taken = {row for other, row in rows if abs(other - x) < LABEL}
        row = next(number for number in range(len(marks)) if number not in taken)
        rows.append((x, row))
        end = x > WIDTH - LABEL
        placed.append(
            Mark(
                x=x,
                label=label,
                at=at,
                css=css,
                y=12 + ROW * row,
                text_x=x - 4 if end else x + 4,
                anchor="end" if end else "start",
            )
        )
    return tuple(placed)


def ticks_of(begin: datetime, end: datetime, place: Callable[[datetime], float]) -> tuple[Tick, ...]:
    seconds = (end - begin).total_seconds()
    step = next((tick for tick in TICKS if seconds / tick <= 8), TICKS[-1])
    shown = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%d %b"
    at = ceil(begin.timestamp() / step) * step
    found = []
    while at <= end.timestamp():
        moment = localtime(datetime.fromtimestamp(at, UTC))
        found.append(Tick(x=place(moment), label=moment.strftime(shown)))
        at += step
    return tuple(found)
