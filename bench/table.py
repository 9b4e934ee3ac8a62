"""Printing of results, with the aim of each and the figures committed last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Aim:
    """The aim of a ratio: at most this value, or at least."""

    limit: float
    at_least: bool = False

    def held(self, ratio: float) -> bool:
        return ratio >= self.limit if self.at_least else ratio <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {short(self.limit)}"


def at_most(limit: float) -> Aim:
    return Aim(limit)


def at_least(limit: float) -> Aim:
    return Aim(limit, at_least=True)


@dataclass(frozen=True, slots=True)
class Line:
    """One result: the subject, the figure, and further remarks.

    A line that is compared with the last one has a `key`, which never changes, a `ratio` and an `aim`. The ratio is to
    a subject measured in the same run, in turns with it; where there is none it is the figure itself, in the unit that
    `figure` shows.
    """

    what: str
    figure: str
    note: str = ""
    key: str = ""
    ratio: float | None = None
    aim: Aim | None = None

    def __post_init__(self) -> None:
        if bool(self.key) != (self.ratio is not None) or bool(self.key) != (self.aim is not None):
            raise ValueError(f"{self.what}: what is compared has a key, a ratio and an aim.")


# Less than this is the machine's mood.
SAME = 1.1


def table(lines: Sequence[Line], last: Mapping[str, float] | None = None) -> str:
    """Columns as wide as they need to be; `last` are the ratios to compare with, by key."""
    rows = [(one.what, one.figure, _judged(one), _compared(one, last or {}), one.note) for one in lines]
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    made = []
    for what, figure, judged, compared, note in rows:
        cells = [f"{what:<{widths[0]}}", f"{figure:>{widths[1]}}", f"{judged:<{widths[2]}}"]
        cells += [f"{compared:<{widths[3]}}", note]
        made.append("  ".join(cell for cell, width in zip(cells, [*widths, 1], strict=True) if width).rstrip())
    return "\n".join(made)


def _judged(line: Line) -> str:
    if line.ratio is None or line.aim is None:
        return ""
    return f"{short(line.ratio)} ({line.aim}{'' if line.aim.held(line.ratio) else ', MISSED'})"


def _compared(line: Line, last: Mapping[str, float]) -> str:
    """Return the change of the ratio as a factor: a machine may be slow, a ratio is not."""
    if line.ratio is None or line.aim is None:
        return ""
    before = last.get(line.key)
    if before is None:
        return "new"
    if min(before, line.ratio) <= 0:
        return f"last {short(before)}"
    factor = line.ratio / before
    change = max(factor, 1 / factor)
    if change < SAME:
        return f"last {short(before)}: the same"
    return f"last {short(before)}: {change:.1f} times {'better' if (factor > 1) == line.aim.at_least else 'WORSE'}"


def number(value: float) -> str:
    return f"{value:,.0f}"


def short(value: float) -> str:
    """Return the value with two significant digits, or all those before the point."""
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"
