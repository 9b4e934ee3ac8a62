"""Times that no calendar reaches, as an earlier version may have kept them, are shown, wherever the reader lives."""

from datetime import UTC, datetime
from itertools import product

import pytest
from django.test import Client

from fleet.models import Approval, Cache, Maintenance, NoApprovalWindow, ScheduledEvent, Sighting
from tests.caches.walking import Listeners, line
from tests.dashboard.conftest import logged_in
from tests.factories import EVENT, Fleet, admin, announced

FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
ROOMS = ("", "history/", "blind-spots/", "audit/", "caches/", "timeline/", "machines/", "sets/", "audit/export.csv")
EVENTS = (f"events/{EVENT}/", f"events/{EVENT}/documents/")
CALLS = ("events/", f"events/{EVENT}/", f"events/{EVENT}/timeline/", "caches/", "maintenances/", "audit/")
ZONES = ("Pacific/Kiritimati", "Etc/GMT+12")


@pytest.fixture(params=[FIRST, LAST], ids=["first", "last"])
def pages(request: pytest.FixtureRequest, db: None) -> list[str]:
    """The pages of a fleet in whose rows such a time stands everywhere."""
    at: datetime = request.param
    fleet = Listeners(now=datetime.now(UTC))
    announced(fleet)
    for kind in ("NodeMaintenanceScheduled", "NodeMaintenanceStarting"):
        fleet.hear("vm1", line(kind))
    ScheduledEvent.objects.update(not_before=at, first_seen_at=at, started_at=at)
    Sighting.objects.update(first_at=at, not_before=at, started_at=at)
    caches = [f"caches/{row.pk}/" for row in Cache.objects.all()]
    return [*ROOMS, *EVENTS, *caches, *(f"maintenances/{row.pk}/" for row in Maintenance.objects.all())]


def test_every_page_is_shown_and_the_api_answers(viewer: Client, pages: list[str]) -> None:
    for zone in ZONES:
        viewer.cookies["drydock_zone"] = zone
        assert {page: viewer.get(f"/{page}").status_code for page in pages} == dict.fromkeys(pages, 200), zone
    assert {call: viewer.get(f"/api/v1/{call}").status_code for call in CALLS} == dict.fromkeys(CALLS, 200)


TIMES = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0001-01-01", "9999-12-31T23:59:59Z", "99999", "\0")


def test_no_filter_by_time_fails(viewer: Client) -> None:
    for path in ("/api/v1/events/", "/api/v1/notifications/", "/history/", "/audit/"):
        for time in TIMES:
            for name in ("since", "until"):
                expected = (400, 422) if time == "\0" else (200, 422)
                assert viewer.get(path, {name: time}).status_code in expected, (path, name, time)


def test_no_time_in_a_form_fails(fleet: Fleet) -> None:
    announced(fleet)
    browser = logged_in(admin())
    for zone, time in product(ZONES, ("0001-01-01T00:00", "9999-12-31T23:59", "2150-01-01T00:00")):
        browser.cookies["drydock_zone"] = zone
        window = {"name": "w", "reason": "r", "starts_at": time, "ends_at": time}
        assert browser.post(f"/events/{EVENT}/approve/", {"when": "time", "at": time}).status_code == 422
        assert browser.post("/no-approval-windows/", window).status_code == 422
    assert not Approval.objects.exists()
    assert not NoApprovalWindow.objects.exists()
