"""Charts of tables as SVG: stacked columns, histograms, bars and lines. Coordinates are in SVG units; a chart is
`WIDTH` units wide.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10

from django.utils.html import format_html
from django.utils.safestring import SafeString

from fleet.wording.times import clipped

WIDTH = 560
# Space for the numbers of the vertical axis, above the plot, and for the plot itself.
LEFT = 48
TOP = 14
PLOT = 150
BOTTOM = TOP + PLOT
# Height of a row of horizontal bars: its label, and the bar below it.
ROW = 40
BAR = 14
# Longest label of a row of horizontal bars, in characters.
LABEL = 44
DASH = "\N{EN DASH}"


def as_text(number: float | None) -> str:
    """Return a number with separators of thousands; a dash for None."""
    return DASH if number is None else f"{number:,.12g}"


@dataclass(frozen=True, slots=True)
class Series:
    """One column of a table. `tone` is a colour of the style sheet (`tone-fill-…`). Lines may be dashed."""

    name: str
    tone: str = ""
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table with a number for each series; None if there is none.

    `cells` are the numbers as text, with units. `tick` is the label on the axis. `note` is the text at the end of a
    bar, by default the sum.
    """

    label: str
    values: tuple[float | None, ...]
    cells: tuple[str, ...] = ()
    tick: str = ""
    note: str = ""

    @property
    def total(self) -> float:
        return sum(value or 0 for value in self.values)

    @property
    def texts(self) -> tuple[str, ...]:
        return self.cells or tuple(map(as_text, self.values))

    @property
    def total_text(self) -> str:
        return self.note or as_text(self.total)


@dataclass(frozen=True, slots=True)
class Table:
    """Data of a chart. `name` is the HTML id, `title` the heading, `first` the heading of the first column.
    `is_counted`: its numbers can be summed up.
    """

    name: str
    title: str
    first: str
    series: tuple[Series, ...]
    rows: tuple[Row, ...]
    is_counted: bool = True

    @property
    def has_totals(self) -> bool:
        return self.is_counted and len(self.series) > 1

    @property
    def sums(self) -> tuple[str, ...]:
        """Return the sum of each series, and that of all if there are several."""
        columns = list(zip(*(row.values for row in self.rows), strict=True))
        columns += [tuple(row.total for row in self.rows)] if self.has_totals else []
        return tuple(as_text(sum(value or 0 for value in column)) for column in columns)

    @property
    def summary(self) -> str:
        """Return the sums and the largest row as a sentence, for screen readers."""
        largest = max(self.rows, key=lambda row: row.total)
        sums = ", ".join(f"{series.name}: {text}" for series, text in zip(self.series, self.sums, strict=False))
        return f"{sums}. Most: {largest.label} ({largest.total_text})."


def counted(name: str, title: str, first: str, series: Sequence[Series], rows: Sequence[Row]) -> Table | None:
    """Return a table of counts without the series in which all are zero, or None if all counts are zero."""
    shown = [number for number in range(len(series)) if any(row.values[number] for row in rows)]
    kept = [replace(row, values=tuple(row.values[number] for number in shown)) for row in rows]
    return Table(name, title, first, tuple(series[number] for number in shown), tuple(kept)) if shown else None


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn chart. `summary` is the description for screen readers, `elements` are the SVG elements."""

    table: Table
    height: int
    summary: str
    elements: tuple[SafeString, ...]
    width: int = WIDTH


def columns(table: Table, *, is_histogram: bool = False) -> Chart:
    """Draw a stacked column for each row. The columns of a histogram touch each other, and their ticks are at their
    begin.
    """
    ticks = _ticks(max(row.total for row in table.rows), least=1)
    slot, scale = (WIDTH - LEFT) / len(table.rows), PLOT / ticks[-1]
    width = slot - 1 if is_histogram else slot * 0.7
    elements = [*_axis(ticks)]
    for number, row in enumerate(table.rows):
        begin, y = LEFT + number * slot, float(BOTTOM)
        for tone, value, title in _parts(table, row):
            y -= value * scale
            elements.append(_box(tone, begin + (slot - width) / 2, y, width, _with_gap(value * scale), title))
        elements.append(_text(begin + (0 if is_histogram else slot / 2), BOTTOM + 16, row.tick, "middle"))
    return Chart(table, BOTTOM + 22, table.summary, tuple(elements))


def bars(table: Table, *, mark: float = 0, mark_label: str = "") -> Chart:
    """Draw a stacked horizontal bar below the label of each row. `mark` is a value to compare all rows with."""
    scale = WIDTH / (max(mark, *(row.total for row in table.rows)) or 1)
    top = 20 if mark else 0
    elements: list[SafeString] = []
    for number, row in enumerate(table.rows):
        x, y = 0.0, top + number * ROW
        elements += [_text(0, y + 13, clipped(row.label, LABEL)), _text(WIDTH, y + 13, row.total_text, "end")]
        for tone, value, title in _parts(table, row):
            elements.append(_box(tone, x, y + 19, _with_gap(value * scale), BAR, title))
            x += value * scale
        elements += [_rule("mark", mark * scale, y + 16, mark * scale, y + 36)] if mark else []
    if mark:
        elements.append(_text(mark * scale, 12, mark_label, "end" if mark * scale > WIDTH / 2 else "start"))
    summary = ". ".join(f"{row.label}: {row.note}" for row in table.rows) if mark else table.summary
    return Chart(table, top + ROW * len(table.rows), summary, tuple(elements))


def line(table: Table, *, unit: str, mark: float, mark_label: str) -> Chart:
    """Draw a line for each series, through the rows from left to right. `mark` is a value to compare with."""
    ticks = _ticks(max(mark, *(value or 0 for row in table.rows for value in row.values)))
    step, scale = (WIDTH - LEFT - 24) / max(1, len(table.rows) - 1), PLOT / ticks[-1]
    y = BOTTOM - mark * scale
    elements = [*_axis(ticks, unit), _rule("mark", LEFT, y, WIDTH, y), _text(LEFT + 6, y - 4, mark_label)]
    for number, series in enumerate(table.series):
        numbers = [(place, row.values[number]) for place, row in enumerate(table.rows)]
        points = [f"{LEFT + x * step:.1f},{BOTTOM - value * scale:.1f}" for x, value in numbers if value is not None]
        dashed = " is-dashed" if series.is_dashed else ""
        elements.append(format_html('<polyline class="chart-line{}" points="{}"/>', dashed, " ".join(points)))
    elements += [_text(LEFT + x * step, BOTTOM + 16, row.tick, "middle") for x, row in enumerate(table.rows)]
    first, last = (f"{row.label}: {row.texts[end]}" for row, end in ((table.rows[0], 0), (table.rows[-1], -1)))
    return Chart(table, BOTTOM + 22, f"{first}; {last}; {mark_label}.", tuple(elements))


def _parts(table: Table, row: Row) -> Iterator[tuple[str, float, str]]:
    """Yield the tone, number and title of each series that the row has a number of."""
    for series, value, text in zip(table.series, row.values, row.texts, strict=True):
        if value:
            yield series.tone, value, f"{row.label}, {series.name}: {text}"


def _with_gap(length: float) -> float:
    """Return the drawn length of a segment: with a gap of one unit to the next one unless it is thin, and never
    invisible.
    """
    return length - 1 if length > 3 else max(length, 1)


def _ticks(most: float, *, least: float = 0) -> list[float]:
    """Return up to five round values from 0 to at least `most`, at least `least` from each other."""
    unit = 10.0 ** floor(log10((most or 1) / 4))
    step = max(least, next(unit * times for times in (1, 2, 5, 10) if 4 * unit * times >= most))
    return [number * step for number in range(max(1, ceil(most / step)) + 1)]


def _axis(ticks: Sequence[float], unit: str = "") -> Iterator[SafeString]:
    """Yield the horizontal lines of a vertical axis, and their numbers."""
    for tick in ticks:
        y = BOTTOM - PLOT * tick / ticks[-1]
        yield _rule("grid", LEFT, y, WIDTH, y)
        yield _text(LEFT - 6, y + 4, f"{as_text(tick)}{unit}", "end")


def _box(tone: str, x: float, y: float, width: float, height: float, title: str) -> SafeString:
    return format_html(
        '<rect class="tone-fill-{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        *(tone, round(x, 1), round(y, 1), round(width, 1), round(height, 1), title),
    )


def _rule(kind: str, *ends: float) -> SafeString:
    """Return a straight line: `grid` of an axis, or `mark` of a value to compare with."""
    places = (round(end, 1) for end in ends)
    return format_html('<line class="chart-{}" x1="{}" y1="{}" x2="{}" y2="{}"/>', kind, *places)


def _text(x: float, y: float, text: str, anchor: str = "start") -> SafeString:
    return format_html('<text x="{}" y="{}" text-anchor="{}">{}</text>', round(x, 1), round(y, 1), anchor, text)
