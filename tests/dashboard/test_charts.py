"""Charts: their elements match the numbers of their table, and names in them stay text."""

import re

from django.template.loader import render_to_string

from fleet.dashboard.charts import BOTTOM, LEFT, PLOT, WIDTH, Chart, Row, Series, Table, bars, columns, counted, line

HOSTILE = '<script>alert("1")</script>'
BOTH = (Series("Freeze", "1"), Series("Reboot", "2"))


def a_table(*rows: Row, series: tuple[Series, ...] = BOTH) -> Table:
    return Table("days", "Events by day", "Day", series, rows)


def numbers(chart: Chart, element: str, name: str) -> list[float]:
    """The values of an attribute of all elements of this kind, in their order."""
    return [float(value) for value in re.findall(rf'<{element} [^>]*\b{name}="([\d.]+)"', "".join(chart.elements))]


def test_columns_are_stacked_and_as_high_as_their_numbers() -> None:
    chart = columns(a_table(Row("1 May", (40, 60)), Row("2 May", (0, 0)), Row("3 May", (20, 0))))
    # The axis ends at 100, and each segment leaves a gap of one unit.
    assert numbers(chart, "rect", "height") == [0.4 * PLOT - 1, 0.6 * PLOT - 1, 0.2 * PLOT - 1]
    first, second, third = numbers(chart, "rect", "y")
    assert (first, second, third) == (BOTTOM - 0.4 * PLOT, BOTTOM - PLOT, BOTTOM - 0.2 * PLOT)
    x = numbers(chart, "rect", "x")
    assert x[0] == x[1] < x[2] and x[0] > LEFT and x[2] + numbers(chart, "rect", "width")[2] < WIDTH
    assert "<title>1 May, Reboot: 60</title>" in "".join(chart.elements)
    assert chart.summary == "Freeze: 60, Reboot: 60. Most: 1 May (100)."


def test_columns_of_a_histogram_touch_each_other() -> None:
    chart = columns(a_table(Row("", (1, 0)), Row("", (2, 0)), Row("", (3, 0))), is_histogram=True)
    x, width = numbers(chart, "rect", "x"), numbers(chart, "rect", "width")
    assert [round(begin + wide + 1, 0) for begin, wide in zip(x, width, strict=True)][:2] == [round(at) for at in x[1:]]


def test_small_numbers_have_whole_ticks_and_are_never_invisible() -> None:
    chart = columns(a_table(Row("1 May", (1, 0))))
    assert re.findall(r'text-anchor="end">([^<]*)<', "".join(chart.elements)) == ["0", "1"]
    assert numbers(columns(a_table(Row("", (1, 100_000)))), "rect", "height")[0] == 1


def test_bars_share_a_scale_with_the_value_to_compare_with() -> None:
    rows = (Row("Freeze", (50, 0), note="half"), Row("Reboot", (150, 50), note="twice"))
    chart = bars(a_table(*rows), mark=100, mark_label="expected")
    assert numbers(chart, "rect", "width") == [WIDTH / 4 - 1, WIDTH * 3 / 4 - 1, WIDTH / 4 - 1]
    assert numbers(chart, "line", "x1") == numbers(chart, "line", "x2") == [WIDTH / 2] * len(rows)
    assert chart.summary == "Freeze: half. Reboot: twice"


def test_a_line_leaves_out_what_has_no_number() -> None:
    series = (Series("Stored"), Series("Expected", is_dashed=True))
    rows = (Row("Monday", (1, None)), Row("Tuesday", (2, 2)), Row("Wednesday", (None, 4)))
    chart = line(a_table(*rows, series=series), unit=" GB", mark=4, mark_label="Maximum: 4 GB")
    stored, expected = re.findall(r'<polyline class="([^"]*)" points="([^"]*)"', "".join(chart.elements))
    assert (stored[0], expected[0]) == ("chart-line", "chart-line is-dashed")
    points = [[tuple(map(float, point.split(","))) for point in path.split()] for _, path in (stored, expected)]
    assert [len(path) for path in points] == [2, 2] and points[0][1] == points[1][0]
    assert points[1][1][1] == BOTTOM - PLOT == numbers(chart, "line", "y1")[-1]
    assert rows[0].texts == ("1", "\N{EN DASH}")


def test_series_of_zeros_are_left_out_and_no_numbers_are_no_table() -> None:
    table = counted("days", "Events", "Day", BOTH, [Row("1 May", (0, 2)), Row("2 May", (0, 0))])
    assert table is not None
    assert ([series.name for series in table.series], table.rows[0].values, table.sums) == (["Reboot"], (2,), ("2",))
    assert counted("days", "Events", "Day", BOTH, [Row("1 May", (0, 0))]) is None


def test_names_are_escaped_in_the_picture_and_in_its_table() -> None:
    table = a_table(Row(HOSTILE, (1, 2), cells=(HOSTILE, HOSTILE), tick=HOSTILE, note=HOSTILE))
    for chart in (columns(table), bars(table, mark=1, mark_label=HOSTILE), line(table, unit="", mark=1, mark_label="")):
        shown = render_to_string("charted.html", {"chart": chart, "name": "days", "title": HOSTILE})
        assert "<script" not in shown and "&lt;script&gt;" in shown


def test_screen_readers_get_a_title_a_description_and_a_table_of_numbers() -> None:
    chart = bars(a_table(Row("web", (1_500, 2))))
    shown = render_to_string("charted.html", {"chart": chart, "name": "days", "title": "Events"})
    assert 'role="img" aria-labelledby="days-chart" aria-describedby="days-summary"' in shown
    assert '<title id="days-chart">Events by day</title><desc id="days-summary">Freeze: 1,500, Reboot: 2. ' in shown
    assert re.findall(r'<t([hd])[^>]*class="num">([^<]*)<', shown) == [
        ("h", "Freeze"), ("h", "Reboot"), ("h", "Total"),
        *(("d", text) for _ in range(2) for text in ("1,500", "2", "1,502")),
    ]  # fmt: skip
    assert "style" not in re.sub(r'class="[^"]*"', "", shown)
