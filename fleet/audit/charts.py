"""Charts of a month's report and of storage."""

from collections.abc import Sequence
from itertools import zip_longest

from django.template.defaultfilters import filesizeformat
from django.utils.text import capfirst

from fleet.audit import months
from fleet.audit.months import Counts
from fleet.audit.queries import SizeAt, Storage
from fleet.audit.text import CODES, COUNTS, FIRST_COLUMNS, class_named
from fleet.dashboard import charts
from fleet.dashboard.charts import DASH, Chart, Row, Series, Table
from fleet.wording.times import duration

# The notice chart has at most this many bars, and ends at this percentage of the notice to expect.
MOST_BARS = 12
MOST_PERCENT = 200
# Every so many points of the course of the size has a label.
LABELLED = 4


def count_chart(name: str, counts: Counts) -> Chart | None:
    """Return the chart of a table of counts, or None if all counts are zero."""
    keys, rows = list(counts.rows), list[Row]()
    for key, following in zip_longest(keys, keys[1:]):
        label, tick = CODES.get(key, key), ""
        if name == "days":
            tick = str(int(key[-2:])) if key[-2:] == "01" or key[-1] in "05" else ""
        elif name == "times":
            label, tick = class_named(key, following), duration(int(key))
        rows.append(Row(label, counts.rows[key], tick=tick))
    series = [Series(CODES.get(column, column), str(number)) for number, column in enumerate(counts.columns, 1)]
    table = charts.counted(name, COUNTS[name], capfirst(FIRST_COLUMNS[name].partition("_")[0]), series, rows)
    if table is None:
        return None
    return charts.bars(table) if name == "decisions" else charts.columns(table, is_histogram=name == "times")


def notice_chart(notice: Sequence[months.Row]) -> Chart | None:
    """Return the chart of the notice given as a percentage of the notice to expect, the shortest first. None if no
    event has both.
    """

    def percent(row: months.Row, name: str) -> float:
        return float(min(MOST_PERCENT, max(0, 100 * row[name] / row["expected_notice_seconds"])))

    known = [row for row in notice if row["expected_notice_seconds"] and row["median_seconds"] is not None]
    rows = tuple(
        Row(
            f"{row['event_type']}, {row['region'] or 'region not stated'}",
            (percent(row, "least_seconds"), percent(row, "median_seconds") - percent(row, "least_seconds")),
            cells=(duration(row["least_seconds"]), duration(row["median_seconds"])),
            note=f"{duration(row['median_seconds'])} of {duration(row['expected_notice_seconds'])}",
        )
        for row in sorted(known, key=lambda row: percent(row, "least_seconds"))[:MOST_BARS]
    )
    series = (Series("Shortest notice", "1"), Series("Median", "ear"))
    table = Table("notice", "Notice given, compared with the notice to expect", "Type", series, rows)
    return charts.bars(table, mark=100, mark_label="expected") if rows else None


def size_chart(found: Storage) -> Chart | None:
    """Return the chart of the database size, past and expected; None if there are too few rows for a forecast."""
    power, unit = (4, "TB") if found.max_size >= 1024**4 else (3, "GB")

    def row(number: int, point: SizeAt) -> Row:
        sizes, day = (point.stored, point.expected), f"{point.at.day} {point.at:%b}"
        return Row(
            f"{day} {point.at.year}",
            tuple(None if size is None else size / 1024**power for size in sizes),
            cells=tuple(DASH if size is None else filesizeformat(size) for size in sizes),
            tick="" if number % LABELLED else day,
        )

    if not found.course:
        return None
    series = (Series("Stored now, by the time of writing"), Series("Expected", is_dashed=True))
    rows = tuple(row(number, point) for number, point in enumerate(found.course))
    table = Table("course", "Size of the database", "Date", series, rows, is_counted=False)
    limit = f"{'Maximum' if found.max_size_is_configured else 'Next round size'}: {filesizeformat(found.max_size)}"
    return charts.line(table, unit=f" {unit}", mark=found.max_size / 1024**power, mark_label=limit)
