"""Building blocks of timeline pictures. Coordinates are in SVG units; a picture is `WIDTH` units wide."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from fleet.domain.shapes import grouped
from fleet.wording.times import hms, local, zone_name

WIDTH = 960
LEFT = 132
BAR = 12


@dataclass(frozen=True, slots=True)
class Interval:
    """A period in which an object has one state. `href` is the link of its bar, `tone` the colour of the state.

    `of` is the object, `what` its state. Intervals with the same `key` belong to one object and are drawn in one track.
    `began_before`: it may have begun earlier. `end_unseen`: its end was not observed. `maybe`: it is uncertain. `count`
    above 1: it represents several intervals.
    """

    begin: datetime
    end: datetime
    tone: str
    what: str
    href: str = ""
    key: str = ""
    began_before: bool = False
    end_unseen: bool = False
    maybe: bool = False
    count: int = 1
    of: str = ""

    @property
    def said(self) -> str:
        return f"{self.of}, {self.what}" if self.of else self.what


# The parts of one object, by their beginning.
Item = list[Interval]


@dataclass(frozen=True, slots=True)
class Row:
    """Subject of a lane. `href` is the link of its name. `hit` lanes are emphasised, and `gaps` are drawn hatched."""

    name: str
    intervals: Sequence[Interval]
    href: str = ""
    hit: bool = False
    gaps: Sequence[Interval] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time that is marked across all lanes."""

    label: str
    at: datetime
    tone: str


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval as drawn. `title` is the text for screen readers and tooltips. `outline` is the SVG path if an edge
    of the bar was not observed.
    """

    interval: Interval
    x: float
    y: int
    width: float
    title: str
    outline: str = ""

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 1)


@dataclass(frozen=True, slots=True)
class Lane:
    row: Row
    y: int
    height: int
    bars: tuple[Bar, ...]
    gaps: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked time with its position. `anchor` is `start` or `end`, chosen so that the text stays inside the
    picture.
    """

    moment: Moment
    x: float
    y: int
    text_x: float
    anchor: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawn picture. `gaps` are times without a listener, `bands` emphasised times such as overlaps; both cross all
    lanes.
    """

    top: int
    bottom: int
    lanes: tuple[Lane, ...]
    gaps: tuple[Bar, ...]
    bands: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
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


# Returns the link to the same picture of only these times.
Zoom = Callable[[datetime, datetime], str]


# Lanes: events by place and time.

RIGHT = 16
TOP = 8
ROW = 15
# Overlapping items of a lane are drawn below each other in tracks, up to `MOST_TRACKS`. Beyond that, they become one
# bar with a count, in a pattern that is none of their states.
TRACK = 15
MOST_TRACKS = 4
MOST_ITEMS = 60
# Least width of a bar, and of one with a count. In a lane with too many items, those nearer than this are merged.
LEAST, NEAR = 3.0, 24.0
# Distances between ticks, in seconds; the first one that gives few enough ticks is used.
TICKS = (1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800)
DAY = timedelta(days=1)
# Width of a mark's text, in units, so that two texts do not overlap.
LABEL = 96
# Tone of a bar that represents several items.
SEVERAL = "several"
# Depth of the teeth of an unobserved edge.
TOOTH = 3.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Horizontal scale of a picture, which converts times to coordinates."""

    begin: datetime
    end: datetime

    def x(self, at: datetime) -> float:
        part = (min(max(at, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)

    def holds(self, interval: Interval) -> bool:
        """Return whether at least a part of the interval lies in the picture."""
        return interval.begin <= self.end and interval.end >= self.begin

    def title(self, interval: Interval, name: str) -> str:
        said = f"{name}: {interval.said}" if name else interval.said
        return f"{said}, {self._stamp(interval.begin)} to {self._stamp(interval.end)} {zone_name(interval.end)}"

    def _stamp(self, at: datetime) -> str:
        outside = not self.begin <= at <= self.end
        return f"{local(at).day} {local(at):%b} {hms(at)}" if outside or self.end - self.begin > DAY else hms(at)

    def bar(self, interval: Interval, name: str, y: int = 0, *, least: float = LEAST, after: float = 0) -> Bar:
        """Return the bar of an interval, which begins at the coordinate `after` or behind it."""
        x = max(self.x(interval.begin), after)
        width = max(round(self.x(interval.end) - x, 1), NEAR if interval.count > 1 else least)
        # The picture cuts off an edge outside, so that edge is not torn.
        torn_left = interval.began_before and interval.begin >= self.begin and width > 4 * TOOTH
        torn_right = interval.end_unseen and interval.end <= self.end and width > 4 * TOOTH
        outline = _outline(x, y, width, left=torn_left, right=torn_right) if torn_left or torn_right else ""
        return Bar(interval, x, y, width, self.title(interval, name), outline)

    def ticks(self) -> Iterable[tuple[float, str]]:
        """Yield the coordinate and the label of each tick."""
        seconds = (self.end - self.begin).total_seconds()
        step = next((tick for tick in TICKS if seconds / tick <= 8), max(TICKS[-1], ceil(seconds / 8)))
        at = ceil(self.begin.timestamp() / step) * step
        while at <= self.end.timestamp():
            moment = local(datetime.fromtimestamp(at, UTC))
            midnight = (moment.hour, moment.minute, moment.second) == (0, 0, 0)
            shown = "%d %b" if step >= DAY.total_seconds() or midnight else "%H:%M:%S" if step < 60 else "%H:%M"
            yield self.x(moment), moment.strftime(shown)
            at += step

    def marks(self, moments: Iterable[Moment]) -> Iterable[Mark]:
        """Yield the marks, spread over several rows so that the texts of neighbours do not overlap."""
        rows: list[tuple[float, int]] = []
        for moment in sorted(moments, key=lambda moment: moment.at):
            x = self.x(moment.at)
            taken = {row for other, row in rows if abs(other - x) < LABEL}
            row = next(number for number in range(len(rows) + 1) if number not in taken)
            rows.append((x, row))
            end = x > WIDTH - LABEL
            yield Mark(moment, x, 12 + ROW * row, x - 4 if end else x + 4, "end" if end else "start")

    def lane(self, row: Row, top: int, zoom: Zoom | None) -> Lane:
        """Return the lane of a row, drawn from the coordinate `top` downwards. Overlapping items are drawn below each
        other.
        """
        items = _items(interval for interval in row.intervals if self.holds(interval))
        tracks = self._tracks(items) if len(items) <= MOST_ITEMS else []
        if items and not 0 < len(tracks) <= MOST_TRACKS:
            tracks = [list(self._folded(items, zoom))]
        heights = [(item, top + 6 + TRACK * number) for number, track in enumerate(tracks) for item in track]
        bars = tuple(bar for item, y in heights for bar in self._bars(item, row.name, y))
        height = 24 + TRACK * (max(len(tracks), 1) - 1)
        gaps = tuple(self.bar(gap, row.name, top, least=2.0) for gap in row.gaps if self.holds(gap))
        return Lane(row, top, height, bars, gaps)

    def _bars(self, item: Item, name: str, y: int) -> Iterator[Bar]:
        """Yield a bar for each part of an item. A part that is shorter than a pixel covers no other part."""
        after = 0.0
        for interval in item:
            bar = self.bar(interval, name, y, after=after)
            after = bar.x + LEAST
            yield bar

    def _right(self, item: Item) -> float:
        """Return the right edge of an item as `_bars` draws it."""
        after = right = 0.0
        for interval in item:
            after = max(self.x(interval.begin), after) + LEAST
            right = max(right, after, self.x(interval.end))
        return right

    def _tracks(self, items: Iterable[Item]) -> list[list[Item]]:
        """Assign each item to the first track that has space for it, and return the tracks."""
        tracks: list[list[Item]] = []
        for item in items:
            x = self.x(item[0].begin)
            track = next((track for track in tracks if self._right(track[-1]) <= x), None)
            if track is None:
                tracks.append([item])
            else:
                track.append(item)
        return tracks

    def _folded(self, items: Iterable[Item], zoom: Zoom | None) -> Iterator[Item]:
        """Yield the items with overlapping and adjacent ones merged into one bar, which links to its period."""
        together: list[Item] = []
        upto = -1.0
        for item in [*items, None]:
            if together and (item is None or self.x(item[0].begin) > upto + NEAR):
                yield _one(together, zoom)
                together = []
            if item is not None:
                together.append(item)
                upto = max(upto, self._right(item))


def draw(
    scale: Scale,
    rows: Iterable[Row],
    *,
    moments: Iterable[Moment],
    summary: str,
    gaps: Iterable[Interval] = (),
    bands: Iterable[Interval] = (),
    zoom: Zoom | None = None,
) -> Picture:
    """Return the picture of these rows from top to bottom. `zoom` returns the URL for a bar that represents several
    intervals.
    """
    marks = tuple(scale.marks(moments))
    top = TOP + max((mark.y for mark in marks), default=0)
    lanes: list[Lane] = []
    bottom = top
    for row in rows:
        lanes.append(scale.lane(row, bottom, zoom))
        bottom += lanes[-1].height
    return Picture(
        top=top,
        bottom=bottom,
        lanes=tuple(lanes),
        gaps=tuple(scale.bar(gap, "", least=2.0) for gap in gaps),
        bands=tuple(scale.bar(band, "", least=4.0) for band in bands),
        marks=marks,
        ticks=tuple(scale.ticks()),
        summary=summary,
    )


def _items(intervals: Iterable[Interval]) -> list[Item]:
    """Return the intervals grouped by object, sorted by their beginning."""
    found = grouped((interval.key or number, interval) for number, interval in enumerate(intervals))
    for item in found.values():
        item.sort(key=lambda interval: interval.begin)
    return sorted(found.values(), key=lambda item: item[0].begin)


def _one(items: Sequence[Item], zoom: Zoom | None) -> Item:
    if len(items) == 1:
        return items[0]
    begin = min(interval.begin for item in items for interval in item)
    end = max(interval.end for item in items for interval in item)
    # The latest certain part of each item is its state.
    states = Counter(([part for part in item if not part.maybe] or item)[-1].what for item in items)
    said = ", ".join(f"{count} {state}" for state, count in states.most_common())
    href = zoom(begin, end) if zoom else ""
    return [Interval(begin, end, SEVERAL, f"{len(items)} at once ({said})", href, count=len(items))]


def _outline(x: float, y: int, width: float, *, left: bool, right: bool) -> str:
    """Return the SVG path of a bar. `left` and `right` state which edges were not observed and are drawn torn."""
    far, half = round(x + width, 1), BAR / 2
    bottom = y + BAR
    teeth = [(far - TOOTH * (number % 2), y + half / 2 * number) for number in range(5)]
    edge = "".join(f"L{at:g} {down:g}" for at, down in teeth)
    path = f"M{x} {y}" + (edge if right else f"L{far} {y}L{far} {bottom}") + f"L{x} {bottom}"
    if left:
        path += f"L{x + TOOTH:.1f} {y + 1.5 * half:g}L{x} {y + half:g}L{x + TOOTH:.1f} {y + half / 2:g}"
    return path + "Z"
