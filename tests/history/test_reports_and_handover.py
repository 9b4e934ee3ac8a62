"""Reports of an event and of a month, and the handover of a shift, on pages and as files."""

import csv
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from fleet.audit.months import month_report
from fleet.audit.reports import event_report, handover, span
from fleet.audit.text import COLUMNS
from fleet.domain.history import Month, month_of, months_back
from fleet.models import AvailabilitySet, Entry, Profile, ScheduledEvent
from fleet.operations.approvals import claims
from fleet.projections.events.detail import event_detail
from tests import factories
from tests.dashboard.conftest import codes, logged_in, text_of
from tests.plans import is_answered_by

pytestmark = pytest.mark.django_db
ADDRESS = f"/reports/events/{factories.EVENT}/"


def verdict(fleet: factories.Fleet) -> Mapping[str, Any]:
    """What the report says that the event came to, before it is worded."""
    found = event_report(event_id=factories.EVENT, now=fleet.now)
    assert found is not None
    return found.verdict.values


def decoded(client: Client) -> dict[str, object]:
    return json.loads(client.get(f"{ADDRESS}report.json").content)


def test_missing_decision_left_event_and_lapsed_approval_differ(fleet: factories.Fleet, operator: Client) -> None:
    factories.announced(fleet)
    assert (verdict(fleet)["decided"], verdict(fleet)["happened"]) == ("nobody", "waits")
    actor = factories.acting(factories.operator(), why="let it run")
    claims.hold(event_id=factories.EVENT, actor=actor, now=fleet.now)
    assert (verdict(fleet)["decided"], verdict(fleet)["by"]) == ("left", "otto")
    claims.lift(event_id=factories.EVENT, actor=actor, now=fleet.now)
    fleet.approve()
    fleet.later(1000)
    fleet.advance()
    assert verdict(fleet)["decided"] == "lapsed"
    assert decoded(operator)["verdict"]


def test_page_json_and_list_of_an_event_that_ended(fleet: factories.Fleet, viewer: Client) -> None:
    fleet.now -= timedelta(days=40)
    factories.freeze_completed(fleet)
    page = viewer.get(ADDRESS)
    body = page.content.decode()
    assert '<svg viewBox="0 0 960' in body
    assert 'class="diff-new"' in body and 'class="diff-old"' in body
    assert {"event-verdict", "step-answered"} <= set(codes(page))
    assert f'href="/events/{factories.EVENT}/"' in body
    told: dict[str, Any] = decoded(viewer)
    names = ("verdict", "made_at", "event", "type", "local", "timeline", "timeline_goes_on", "documents")
    assert (set(told), len(told["documents"]), told["made_at"][-1]) == ({*names}, 3, "Z")
    listed = viewer.get("/reports/").content.decode()
    assert f'href="{ADDRESS}"' in listed
    assert listed.count('href="/reports/2') >= 2
    assert f'href="/reports/{datetime.now(UTC):%Y-%m}/"' in listed


def test_markdown_is_whole_and_what_strangers_wrote_stays_text(fleet: factories.Fleet, operator: Client) -> None:
    fleet.enrol_set()
    nasty = "# <script>alert(1)</script> **bold** [x](javascript:1) | ```"
    factories.announced(fleet, Description=nasty)
    fleet.approve(comment="```\n# not a heading")
    answer = operator.get(f"{ADDRESS}report.md")
    assert answer["Content-Type"].startswith("text/markdown")
    assert f'filename="{factories.EVENT}.md"' in answer["Content-Disposition"]
    text = answer.content.decode()
    outside = [part for number, part in enumerate(text.split("````")) if number % 2 == 0]
    assert "\\# \\<script\\>alert(1)\\</script\\> \\*\\*bold\\*\\*" in outside[0]
    headings = [line for line in text.splitlines() if line.startswith("# ")]
    assert headings == ["# Freeze of vm1, vm2"]
    for head in ("## Decisions", "## Machines", "## Timeline", "## Raw documents"):
        assert head in text
    fleet.later(5)
    fleet.all_say()
    assert "```diff" in operator.get(f"{ADDRESS}report.md").content.decode()


def test_an_open_event_has_a_report_and_is_not_among_those_that_ended(fleet: factories.Fleet, viewer: Client) -> None:
    files = (ADDRESS, f"{ADDRESS}report.md", f"{ADDRESS}report.json")
    assert [viewer.get(address).status_code for address in files] == [404] * 3
    event = factories.announced(fleet)
    assert f'href="{ADDRESS}"' in viewer.get(f"/events/{factories.EVENT}/").content.decode()
    assert f'href="{ADDRESS}"' not in viewer.get("/reports/").content.decode()
    type(event).objects.filter(pk=event.pk).update(drill=True)
    assert verdict(fleet)["drill"] is True


# The report of a month: notice against the documentation, who decided how fast, what lapsed, what rules did.


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
    answer = viewer.get(f"/reports/{month}/")
    assert 'class="chart"' not in answer.content.decode()
    for words in ("There were no events in this month.", "Choose another", "All events were decided in time."):
        assert words in text_of(answer)
    assert {line["total"] for line in table(viewer, month, "days")} == {"0"}
    for name, status in ((month.next, 404), (month.previous, 200), ("2026-13", 404)):
        assert viewer.get(f"/reports/{name}/").status_code == status, name


def test_a_month_costs_the_same_however_much_happened_by_its_index(walked: factories.Fleet, viewer: Client) -> None:
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


# Shift handover: the next operator reads every change since they last looked, in one view that a link preserves.


OTHER = "0A1B2C3D-0000-4000-8000-00000000000A"


@pytest.fixture
def shift(fleet: factories.Fleet) -> factories.Fleet:
    """An hour ago one event went its whole way; another waits, and otto is on it."""
    fleet.now -= timedelta(hours=1)
    factories.freeze_completed(fleet)
    fleet.later(60)
    fleet.all_say(factories.listing(OTHER, resources=("vm3",), not_before=datetime.now(UTC) + timedelta(minutes=10)))
    actor = factories.acting(factories.operator(), why="calling the database people")
    claims.claim(event_id=OTHER, actor=actor, now=fleet.now)
    return fleet


def view(client: Client, **times: datetime) -> str:
    sent = {name: at.isoformat() for name, at in times.items()}
    return text_of(client.get("/handover/", sent))


def test_it_tells_what_was_decided_started_ended_is_open_and_by_whom(shift: factories.Fleet, viewer: Client) -> None:
    now = datetime.now(UTC)
    found = handover(since=now - timedelta(hours=2), until=now, now=now)
    rows = {name: part.rows for name, part in found.parts.items()}
    assert {row.kind.value for row in rows["decided"]} == {"approval_granted"}
    # A user who claims an event has decided nothing yet.
    assert "event_claimed" in {row.kind.value for row in rows["desk"]}
    assert {row.actor for row in rows["decided"]} == {"otto"}
    assert [row.kind.value for row in rows["started"]] == ["event_started"]
    assert [row.kind.value for row in rows["ended"]] == ["event_ended"]
    assert len(rows["announced"]) == 2
    assert rows["failed"] == ()
    assert [row.event_id for row in found.still_open] == [OTHER]
    shown = view(viewer, since=now - timedelta(hours=2), until=now)
    assert "otto undecided" in shown
    assert "No approval lapsed, was refused or became void." in shown
    assert "1 open now" in shown and "1 decided" in shown


def test_the_address_keeps_the_view(shift: factories.Fleet, viewer: Client) -> None:
    answer = viewer.get("/handover/")
    assert answer.status_code == 302
    kept = parse_qs(urlsplit(answer["Location"]).query)
    assert set(kept) == {"since", "until"}
    colleague = logged_in(factories.operator())
    assert "1 started" in text_of(viewer.get(answer["Location"]))
    assert "1 started" in text_of(colleague.get(answer["Location"]))
    began = datetime.fromisoformat(kept["until"][0]) - datetime.fromisoformat(kept["since"][0])
    assert began == timedelta(hours=12)


def test_handover_starts_where_the_user_stopped_reading(shift: factories.Fleet, viewer: Client) -> None:
    until = (datetime.now(UTC) - timedelta(minutes=5)).replace(microsecond=0)
    assert viewer.post("/handover/read/", {"until": until.isoformat()})["Location"] == "/handover/"
    kept = parse_qs(urlsplit(viewer.get("/handover/")["Location"]).query)
    assert datetime.fromisoformat(kept["since"][0]) == until
    line = Entry.objects.get(kind="handover_read")
    assert (factories.who(line), line.via) == ("vera", "page")
    # An older link does not move the mark back, and a future time moves it only to now.
    viewer.post("/handover/read/", {"until": (until - timedelta(hours=3)).isoformat()})
    viewer.post("/handover/read/", {"until": "2090-01-01T00:00:00Z"})
    row = Profile.objects.get(user__username="vera")
    assert row.handover_read_until is not None
    assert until < row.handover_read_until <= datetime.now(UTC)
    assert Entry.objects.filter(kind="handover_read").count() == 2
    # Only the audit lists a user's own handover note.
    assert "has read what changed until" in text_of(viewer.get("/audit/"))


def test_times_that_cannot_be_read_are_named_and_an_empty_shift_too(fleet: factories.Fleet, viewer: Client) -> None:
    shown = text_of(viewer.get("/handover/?since=soon&until=9999-99-99"))
    assert "could not be read and were ignored: since, until" in shown
    answer = viewer.post("/handover/read/", {"until": "soon"})
    assert (answer.status_code, "Say until when you have read." in text_of(answer)) == (422, True)
    for words in ("No event is open.", "No event was decided.", "No event started.", "No event ended."):
        assert words in shown


def test_a_look_never_covers_more_than_a_month_nor_what_is_to_come() -> None:
    now = datetime(2026, 3, 1, 6, tzinfo=UTC)
    ago = now - timedelta(days=400)
    begin, end = span(since=None, until=None, handover_read_until=ago, now=now)
    assert (begin, end) == (now - timedelta(days=31), now)
    begin, end = span(since=now + timedelta(days=1), until=now + timedelta(days=2), handover_read_until=None, now=now)
    assert (begin, end) == (now, now)


def test_milestones_go_by_their_index(shift: factories.Fleet) -> None:
    now = datetime.now(UTC)
    found = Entry.objects.filter(kind__in=["event_started", "drill_began"], at__gte=now - timedelta(days=1), at__lt=now)
    assert is_answered_by(found.order_by("-at", "-pk")[:100], "entry_of_milestones")
