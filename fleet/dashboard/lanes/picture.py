"""Lanes: what happened where against the clock.

Coordinates are in the picture's own units, `WIDTH` across; colours and texts are the style sheet's business.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil

from fleet.wording.times import hms, local, zone_name

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
class Stay:
    """From when to when something was so, in a state's tone; it may lead to a cache's maintenance."""

    begin: datetime
    end: datetime
    tone: str
    what: str
    maintenance_id: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """What a lane is about. `machine_id` is None for the lane of a shard or a node; `hit` lanes stand out."""

    name: str
    stays: Sequence[Stay]
    machine_id: int | None = None
    hit: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment that runs through all lanes."""

    label: str
    at: datetime
    tone: str


@dataclass(frozen=True, slots=True)
class Bar:
    """`title` is what a screen reader and the pointer get."""

    x: float
    width: float
    title: str
    tone: str = ""
    maintenance_id: int | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    row: Row
    y: int
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """`anchor` is `start` or `end`, so that its text stays inside the picture."""

    moment: Moment
    x: float
    y: int
    text_x: float
    anchor: str


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """`gaps` are times in which nobody listened, through all lanes."""

    top: int
    bottom: int
    lanes: tuple[Lane, ...]
    gaps: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    summary: str
    width: int = WIDTH
    left: int = LEFT
    bar: int = BAR

    @property
    def height(self) -> int:
        return self.bottom + 24

    @property
    def gap_height(self) -> int:
        return self.bottom - self.top


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a time lies across the picture."""

    begin: datetime
    end: datetime

    def x(self, at: datetime) -> float:
        part = (min(max(at, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)

    def bar(self, stay: Stay, name: str, *, least: float = 3.0) -> Bar:
        x = self.x(stay.begin)
        said = f"{name}: {stay.what}" if name else stay.what
        title = f"{said}, {hms(stay.begin)} to {hms(stay.end)} {zone_name(stay.end)}"
        return Bar(x, max(round(self.x(stay.end) - x, 1), least), title, stay.tone, stay.maintenance_id)

    def ticks(self) -> Iterable[Tick]:
        seconds = (self.end - self.begin).total_seconds()
        step = next((tick for tick in TICKS if seconds / tick <= 8), max(TICKS[-1], ceil(seconds / 8)))
        shown = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%d %b"
        at = ceil(self.begin.timestamp() / step) * step
        while at <= self.end.timestamp():
            moment = local(datetime.fromtimestamp(at, UTC))
            yield Tick(x=self.x(moment), label=moment.strftime(shown))
            at += step

    def marks(self, moments: Iterable[Moment]) -> Iterable[Mark]:
        """In rows, so that texts of neighbours do not overlap."""
        rows: list[tuple[float, int]] = []
        for moment in sorted(moments, key=lambda moment: moment.at):
            x = self.x(moment.at)
            taken = {row for other, row in rows if abs(other - x) < LABEL}
            row = next(number for number in range(len(rows) + 1) if number not in taken)
            rows.append((x, row))
            end = x > WIDTH - LABEL
            yield Mark(moment, x, 12 + ROW * row, x - 4 if end else x + 4, "end" if end else "start")


def draw(
    scale: Scale, rows: Iterable[Row], *, moments: Iterable[Moment], summary: str, gaps: Iterable[Stay] = ()
) -> Picture:
    """The picture of these rows from top to bottom."""
    marks = tuple(scale.marks(moments))
    top = TOP + max((mark.y for mark in marks), default=0)
    lanes = tuple(
        Lane(row, top + number * LANE, tuple(scale.bar(stay, row.name) for stay in row.stays))
        for number, row in enumerate(rows)
    )
    return Picture(
        top=top,
        bottom=top + len(lanes) * LANE,
        lanes=lanes,
        gaps=tuple(scale.bar(gap, "", least=2.0) for gap in gaps),
        marks=marks,
        ticks=tuple(scale.ticks()),
        summary=summary,
    )
