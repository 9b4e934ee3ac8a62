"""The report of a month: notice against the expected one, who decided how fast, what lapsed, what rules did."""

import csv
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from fleet.audit.reports import month_report
from fleet.audit.text import COLUMNS
from fleet.domain.history import Month, month_of, months_back
from fleet.models import AvailabilitySet, Rule, ScheduledEvent
from fleet.operations.approvals import claims
from fleet.projections.events.detail import event_detail
from tests import factories
from tests.dashboard.conftest import text_of
from tests.plans import is_answered_by

pytestmark = pytest.mark.django_db
IDS = [f"0A1B2C3D-0000-4000-8000-00000000000{number}" for number in range(6)]


@pytest.fixture
def walked(fleet: factories.Fleet) -> factories.Fleet:
    """Events of one set, half an hour ago: approved at once, approved too late, left to Azure, and not decided."""
    fleet.now -= timedelta(minutes=30)
    fleet.enrol_set()
    start = fleet.now
    events = (("Freeze", 900), ("Freeze", 300), ("Redeploy", 600), ("Redeploy", 600))
    due = [{"event_type": kind, "not_before": start + timedelta(seconds=notice)} for kind, notice in events]
    fleet.all_say(*(factories.listing(event_id, **event) for event_id, event in zip(IDS, due, strict=False)))
    fleet.later(20)
    return fleet


def report(now: datetime) -> Any:
    return month_report(month=month_of(now), now=now)


def table(client: Client, month: Month, name: str) -> list[dict[str, str]]:
    answer = client.get(f"/reports/{month}/{name}.csv")
    assert answer["Content-Type"].startswith("text/csv")
    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    return list(csv.DictReader(text.splitlines()))


def test_notice_is_counted_by_type_and_region_against_what_is_expected(walked: factories.Fleet) -> None:
    freeze, redeploy = report(walked.now).notice
    assert [(row["event_type"], row["region"]) for row in (freeze, redeploy)] == [
        ("Freeze", "westeurope"), ("Redeploy", "westeurope"),
    ]  # fmt: skip
    assert (freeze["events"], freeze["expected_notice_seconds"], freeze["without_notice"]) == (2, 900, 0)
    assert freeze["shorter_than_expected"] == 1
    # Azure states whole seconds.
    assert [freeze[name] for name in COLUMNS["notice"][4:7]] in ([300, 600, 900], [299, 599, 899])


@pytest.mark.parametrize(
    ("configured", "given", "expected", "short"), [(900, 600, 900, 1), (900, 896, 900, 0), (None, 600, 300, 0)]
)
def test_notice_of_a_terminate_is_compared_with_the_configured_one(
    fleet: factories.Fleet, configured: int | None, given: int, expected: int, short: int
) -> None:
    fleet.enrol_set()
    AvailabilitySet.objects.update(terminate_notice_seconds=configured)
    fleet.all_say(factories.listing(event_type="Terminate", not_before=fleet.now + timedelta(seconds=given)))
    [row] = report(fleet.now).notice
    assert (row["expected_notice_seconds"], row["shorter_than_expected"]) == (expected, short)
    # As the event's page says it.
    detail = event_detail(event_id=factories.EVENT, now=fleet.now)
    assert detail is not None
    assert detail.event.is_notice_short is bool(short)


def test_who_decided_how_fast_what_was_left_and_what_lapsed(walked: factories.Fleet, viewer: Client) -> None:
    otto = factories.operator()
    walked.approve(IDS[1], by=otto, overrides={"set-busy": "go"})
    claims.hold(event_id=IDS[2], actor=factories.acting(otto, why="let it run"), now=walked.now)
    walked.later(1200)
    walked.heard()
    walked.advance()
    found = report(walked.now)
    (row,) = found.people
    assert [row[name] for name in ("by", "approvals", "lapsed", "left_to_azure")] == ["otto", 1, 1, 1]
    assert row["median_seconds_to_decision"] == row["slowest_seconds_to_decision"] == 20
    assert found.rules == ()
    # The event left to Azure did not lapse; no user decided the first and the last.
    assert {event.event_id for event in found.lapsed} == {IDS[0], IDS[1], IDS[3]}
    month = month_of(walked.now)
    shown = text_of(viewer.get(f"/reports/{month}/"))
    assert "otto" in shown and "not decided" in shown
    assert [line["person"] for line in table(viewer, month, "people")] == ["otto"]
    assert {line["event_id"] for line in table(viewer, month, "lapsed")} == {IDS[0], IDS[1], IDS[3]}


def test_decisions_of_rules_are_listed_apart_from_people(walked: factories.Fleet) -> None:
    rule = Rule.objects.create(
        name="Nights", reason="No user notices.", action="hold", created_at=walked.now, changed_at=walked.now
    )
    approval = walked.approve(IDS[1], overrides={"set-busy": "go"})
    type(approval).objects.filter(pk=approval.pk).update(rule=rule, decided_by=None)
    found = report(walked.now)
    assert found.people == ()
    assert [(row["by"], row["rule_id"], row["approvals"]) for row in found.rules] == [("Nights", rule.pk, 1)]


def test_every_table_is_a_file_and_no_cell_is_a_formula(walked: factories.Fleet, viewer: Client) -> None:
    ScheduledEvent.objects.filter(event_id=IDS[0]).update(source="=HYPERLINK(1)")
    month = month_of(walked.now)
    rows = table(viewer, month, "events")
    assert [row["event_id"] for row in rows] == IDS[:4]
    assert rows[0]["source"] == "'=HYPERLINK(1)"
    for name in (*COLUMNS, "lapsed"):
        rows = table(viewer, month, name)
        assert not rows or list(rows[0]) == list(COLUMNS.get(name, COLUMNS["events"]))
    assert viewer.get(f"/reports/{month}/nothing.csv").status_code == 404


def test_empty_month_is_stated_and_a_future_month_is_404(fleet: factories.Fleet, viewer: Client) -> None:
    month = month_of(fleet.now)
    shown = text_of(viewer.get(f"/reports/{month}/"))
    assert "There were no events in this month." in shown
    assert "All events were decided in time." in shown
    assert viewer.get(f"/reports/{month.next}/").status_code == 404
    assert viewer.get(f"/reports/{month.previous}/").status_code == 200
    assert viewer.get("/reports/2026-13/").status_code == 404


def test_drills_count_apart_and_other_months_not_at_all(walked: factories.Fleet) -> None:
    ScheduledEvent.objects.filter(event_id=IDS[0]).update(drill=True)
    ScheduledEvent.objects.filter(event_id=IDS[1]).update(first_seen_at=month_of(walked.now).previous.begin)
    found = report(walked.now)
    assert (found.events, found.drills) == (2, 1)


def test_a_month_costs_the_same_however_much_happened_and_goes_by_the_index(
    walked: factories.Fleet, viewer: Client
) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as caught:
            report(walked.now + timedelta(hours=1))
        return len(caught)

    before = cost()
    first = ScheduledEvent.objects.get(event_id=IDS[3])
    for number in range(60):
        first.pk, first.event_id = None, f"0A1B2C3D-0000-4000-8000-0000000001{number:02d}"
        first.save(force_insert=True)
    assert cost() == before <= 12
    month = month_of(walked.now)
    of_the_month = ScheduledEvent.objects.filter(first_seen_at__gte=month.begin, first_seen_at__lt=month.end)
    assert is_answered_by(of_the_month, "event_newest")


def test_months_of_the_calendar() -> None:
    assert Month(2026, 12).next == Month(2027, 1)
    assert Month(2026, 1).previous == Month(2025, 12)
    now = datetime(2026, 3, 31, 23, 59, tzinfo=UTC)
    assert [str(month) for month in months_back(datetime(2025, 12, 31, tzinfo=UTC), now=now, most=60)] == [
        "2026-03", "2026-02", "2026-01", "2025-12"
    ]  # fmt: skip
    assert len(months_back(datetime(1, 1, 1, tzinfo=UTC), now=now, most=5)) == 5
    assert months_back(None, now=now, most=60) == (Month(2026, 3),)
