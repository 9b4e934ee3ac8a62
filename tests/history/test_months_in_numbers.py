"""Tables and pictures of a month (events by day, times to a decision, decisions and outcomes), and of storage."""

import re
from datetime import UTC, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.audit import queries
from fleet.audit.charts import MOST_PERCENT, notice_chart, size_chart
from fleet.audit.months import Counts, month_report
from fleet.audit.queries import storage
from fleet.audit.retention import GIGABYTE
from fleet.domain.history import Month, month_of
from fleet.models import AvailabilitySet, Machine, Rule, ScheduledEvent
from fleet.models.partitions import OBSERVATIONS, Partition, PartitionedTable
from fleet.operations.approvals import claims
from tests import factories
from tests.dashboard.conftest import text_of
from tests.history.test_reports_and_handover import report, table

pytestmark = pytest.mark.django_db
TYPES = ("Freeze", "Freeze", "Reboot", "Invented", "Redeploy", "Freeze")


def eid(number: int) -> str:
    return f"0A1B2C3D-0000-4000-8000-{number:012d}"


@pytest.fixture
def walked(fleet: factories.Fleet) -> factories.Fleet:
    """Six events of half an hour ago: approved by a user and by a rule, left to Azure, approved elsewhere, not decided,
    and a drill.
    """
    fleet.now -= timedelta(minutes=30)
    fleet.enrol_set()
    due = fleet.now + timedelta(minutes=20)
    fleet.all_say(*(factories.listing(eid(n), event_type=kind, not_before=due) for n, kind in enumerate(TYPES)))
    fleet.later(20)
    approval = fleet.approve(eid(0), overrides={"set-busy": "go"})
    approval.pk, approval.event = None, ScheduledEvent.objects.get(event_id=eid(1))
    approval.decided_by, approval.decided_at = None, fleet.now + timedelta(minutes=2)
    approval.rule = Rule.objects.create(
        name="Nights", reason="Harmless.", action="approve", created_at=fleet.now, changed_at=fleet.now
    )
    approval.save(force_insert=True)
    claims.hold(event_id=eid(2), actor=factories.acting(factories.operator(), why="let it run"), now=fleet.now)
    ScheduledEvent.objects.filter(event_id=eid(3)).update(approved_elsewhere=True, status="ENDED", ended_as="completed")
    ScheduledEvent.objects.filter(event_id=eid(5)).update(drill=True)
    return fleet


def filled(counts: Counts) -> dict[str, dict[str, int]]:
    """The counts that are not zero."""
    found = {
        key: {column: number for column, number in zip(counts.columns, row, strict=True) if number}
        for key, row in counts.rows.items()
    }
    return {key: row for key, row in found.items() if row}


def shown_tables(body: str) -> dict[str, list[list[str]]]:
    """The cells of each table of counts of a page, by its title: first the headings, last the sums."""
    found = {}
    for title, cut in re.findall(r'<caption class="visually-hidden">([^<]*)</caption>(.*?)</table>', body, re.DOTALL):
        rows = re.findall(r"<tr[^>]*>(.*?)</tr>", cut, re.DOTALL)
        found[title] = [[cell.strip() for cell in re.findall(r"<t[hd][^>]*>([^<]*)<", row)] for row in rows]
    return found


def test_every_event_counts_once_by_day_and_by_decision(walked: factories.Fleet) -> None:
    found = report(walked.now)
    today = f"{walked.now.astimezone(UTC):%Y-%m-%d}"
    assert filled(found.days) == {today: {"Freeze": 2, "Reboot": 1, "Redeploy": 1, "other": 1}}
    days = list(found.days.rows)
    assert (days[0], days[-1]) == (f"{found.month}-01", today)
    deciders = ("elsewhere", "user-approved", "rule-approved", "user-left", "undecided")
    assert filled(found.decisions) == {one: {"completed" if one == "elsewhere" else "open": 1} for one in deciders}
    assert filled(found.times) == {"10": {"users": 1}, "120": {"rules": 1}}
    assert found.days.total == found.decisions.total == 5
    assert found.drills == 1
    # Rules are listed apart from people.
    rule = Rule.objects.get(name="Nights")
    assert [(row["by"], row["rule_id"], row["approvals"]) for row in found.rules] == [("Nights", rule.pk, 1)]
    assert [(row["by"], row["approvals"], row["left_to_azure"]) for row in found.people] == [("otto", 1, 1)]
    # A withdrawn approval is no decision, and another month's event does not count.
    ScheduledEvent.objects.get(event_id=eid(0)).approvals.update(state="WITHDRAWN")
    assert filled(report(walked.now).decisions)["undecided"] == {"open": 2}
    ScheduledEvent.objects.filter(event_id=eid(0)).update(first_seen_at=found.month.previous.begin)
    assert report(walked.now).decisions.total == 4
    days = list(month_report(month=Month(2024, 2), now=walked.now).days.rows)
    assert (days[0], days[-1], len(days)) == ("2024-02-01", "2024-02-29", 29)


def test_the_picture_the_table_and_the_file_have_the_same_numbers(walked: factories.Fleet, viewer: Client) -> None:
    month = month_of(walked.now)
    body = viewer.get(f"/reports/{month}/").content.decode()
    titles = {"days": "Events by day", "times": "Time to a decision", "decisions": "Decisions and outcomes"}
    for name, title in titles.items():
        of_file = [line for line in table(viewer, month, name) if line["total"] != "0"]
        head, *rows, sums = shown_tables(body)[title]
        several = head[-1] == "Total"
        assert [[int(cell) for cell in row[1:]] for row in rows] == [
            [int(number) for column, number in list(line.items())[1:-1] if any(one[column] != "0" for one in of_file)]
            + [int(line["total"])] * several
            for line in of_file
        ]
        assert sums[1:] == [str(sum(int(row[number]) for row in rows)) for number in range(1, len(head))]
        picture = body.split(f'<title id="{name}-chart">')[1].split("</svg>")[0]
        drawn = [int(number) for number in re.findall(r"<title>[^<]*: (\d+)</title>", picture)]
        assert sum(drawn) == sum(int(line["total"]) for line in of_file) > 0


def test_notice_is_drawn_as_a_share_of_the_expected_one_shortest_first() -> None:
    def row(kind: str, expected: int | None, least: int, median: float) -> dict[str, Any]:
        names = ("event_type", "region", "expected_notice_seconds", "least_seconds", "median_seconds")
        return dict(zip(names, (kind, "", expected, least, median), strict=True))

    rows = [row("Freeze", 900, 900, 900.0), row("Redeploy", 600, 300, 450.0), row("Reboot", 900, 900, 864_000.0)]
    chart = notice_chart([*rows, row("New", None, 1, 1.0)])
    assert chart is not None
    assert [line.label for line in chart.table.rows] == [
        f"{kind}, region not stated" for kind in ("Redeploy", "Freeze", "Reboot")
    ]
    assert [line.values for line in chart.table.rows] == [(50, 25), (100, 0), (100, MOST_PERCENT - 100)]
    assert chart.table.rows[0].note == "7 min 30 s of 10 min"
    assert notice_chart([]) is None


def test_names_of_strangers_are_text_in_pictures(walked: factories.Fleet, viewer: Client) -> None:
    AvailabilitySet.objects.update(name='<script>alert("set")</script>')
    Machine.objects.update(region="<script>alert(1)</script>")
    body = viewer.get(f"/reports/{month_of(walked.now)}/").content.decode()
    assert "<script>alert" not in body
    assert "Freeze, &lt;script&gt;" in body.split('<title id="notice-chart">')[1].split("</svg>")[0]


def test_storage_draws_what_was_stored_and_what_is_expected(
    fleet: factories.Fleet, admin: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATABASE_MAX_GIGABYTES = 100
    assert size_chart(storage(now=fleet.now)) is None
    assert "not enough data for a forecast" in text_of(admin.get("/storage/"))
    week = timedelta(days=7)

    def partitions(of: PartitionedTable) -> list[Partition]:
        sizes = {"first_id": 1, "last_id": 7_000, "rows": 7_000, "size": 7 * GIGABYTE}
        times = {"oldest": fleet.now - week, "newest": fleet.now}
        return [Partition("t", "t", None, None, **sizes, **times)] if of is OBSERVATIONS else []  # type: ignore[arg-type]

    monkeypatch.setattr(queries, "partitions", partitions)
    monkeypatch.setattr(queries, "query", lambda *_: [(10 * GIGABYTE,)])
    found = storage(now=fleet.now)
    stored = [one.stored for one in found.course if one.stored is not None]
    expected = [one.expected for one in found.course if one.expected is not None]
    assert [size // GIGABYTE for size in stored] == [3, 10]
    assert (expected[0], expected[1] // GIGABYTE, len(expected)) == (found.size, 19, 13)
    assert expected == sorted(expected) and expected[-1] > found.max_size
    assert found.full_at is not None and found.course[-1].at > found.full_at
    body = admin.get("/storage/").content.decode()
    assert body.count("<polyline") == 2 and "Maximum: 100.0" in body
    rows = shown_tables(body)["Size of the database"]
    assert len(rows) == 1 + len(found.course)
