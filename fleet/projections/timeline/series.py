"""Timelines as people read them: what belongs to one series stands in one line."""

from collections.abc import Iterable

from fleet.projections.timeline.entries import TimelineRow

# A row, and, where it begins a series, all entries of that.
Told = tuple[TimelineRow, tuple[TimelineRow, ...]]


def by_series(rows: Iterable[TimelineRow]) -> list[Told]:
    """The rows; a series stands once, where its first entry stood."""
    told: list[tuple[TimelineRow, list[TimelineRow]]] = []
    begun: dict[int, list[TimelineRow]] = {}
    for row in rows:
        if row.series is None:
            told.append((row, []))
        elif row.series.id in begun:
            begun[row.series.id].append(row)
        else:
            begun[row.series.id] = [row]
            told.append((row, begun[row.series.id]))
    return [(row, tuple(members)) for row, members in told]
