"""Times in API calls: any UTC offset is read, although Postgres accepts none beyond 15:59."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.models import NoApprovalWindow, Rule
from fleet.urls import CALLS
from tests import factories
from tests.access.bodies import RULE
from tests.api.conftest import Caller, problem
from tests.dashboard.conftest import logged_in
from tests.factories import Fleet

pytestmark = pytest.mark.django_db
OFFSETS = ("+18:00", "-16:00", "+23:59", "-23:59", "+15:59:30", "+00:00", "Z")
# The first and the last year, where an offset leads out of the calendar; and what is none.
EDGES = ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59")
NONE = ("2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+99:99", "2026-13-01T00:00:00Z", "0000-00-00T00:00:00Z")


def time_parameters() -> list[tuple[str, str]]:
    """Each parameter of a list that is called like a time."""
    found = []
    for route in CALLS:
        taken = getattr(getattr(route.callback.view_class, "get", None), "taken", ())  # type: ignore[attr-defined]
        names = [each.name for each in taken]
        found += [(f"/api/{route.pattern}", name) for name in names if name in ("since", "until", "changed_since")]
    return found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_each_list_and_export_takes_a_time_from_anywhere(fleet: Fleet, admin: Caller) -> None:
    factories.announced(fleet)
    parameters = [(address, name) for address, name in time_parameters() if "<" not in address]
    assert {("/api/v1/audit/export.csv", "since"), ("/api/v1/events/", "until")} <= set(parameters)
    for number, (address, name) in enumerate(parameters):
        # Each takes some of the times in turn.
        good = [f"2026-01-01T12:00:00{OFFSETS[number % len(OFFSETS)]}", EDGES[number % len(EDGES)]]
        for text, status in ((good[0], 200), (good[1], 200), (NONE[number % len(NONE)], 422)):
            answer = admin.get(f"{address}?{name}={text.replace('+', '%2B')}")
            assert answer.status_code == status, (address, name, text)
            # Also an answer that is made while it is sent is read to its end.
            b"".join(answer)


def test_an_offset_moves_the_bound_and_not_the_day(fleet: Fleet, admin: Caller) -> None:
    event = factories.announced(fleet)
    seen = event.first_seen_at
    ahead, behind = seen + timedelta(hours=18), seen - timedelta(hours=18)
    for text, count in (
        (f"{ahead + timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}%2B18:00", 0),
        (f"{ahead - timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}%2B18:00", 1),
        (f"{behind - timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}-18:00", 1),
    ):
        assert len(admin.get(f"events/?since={text}").json()["results"]) == count, text


@pytest.mark.parametrize(("offset", "hours"), [("+18:00", 18), ("-16:00", -16)])
def test_what_is_sent_in_a_body_may_come_from_anywhere(fleet: Fleet, admin: Caller, offset: str, hours: int) -> None:
    fleet.enrol_set(2)
    # The same moment tomorrow, as it is written there.
    at = f"{datetime.now(UTC) + timedelta(days=1, hours=hours):%Y-%m-%dT%H:%M:%S}{offset}"
    web = factories.the_set().pk
    assert admin.post("rules/", {**RULE, "expires_at": at}).status_code == 201
    window = {"name": "Sale", "reason": "Full.", "starts_at": at, "ends_at": "2099-01-01T00:00:00Z"}
    assert admin.post("no-approval-windows/", window).status_code == 201
    assert admin.post(f"sets/{web}/admissions/", {"until": at}).status_code == 200
    dry = {"rule": RULE, "since": "2026-01-01T00:00:00+18:00", "until": at}
    assert admin.post("rules/dry-run/", dry).status_code == 200
    bulk = {"filter": {"since": at}, "comment": ""}
    assert admin.post("bulk/claims/", bulk).status_code == 200
    expires = Rule.objects.get(name=RULE["name"]).expires_at
    assert expires is not None
    assert abs(expires - datetime.now(UTC) - timedelta(days=1)) < timedelta(minutes=1)
    # An event that is far enough ahead to be approved at a time.
    event = factories.announced(fleet, not_before=datetime.now(UTC) + timedelta(days=2))
    overrides = ["no-approval-window"]
    planned = admin.post(f"events/{event.event_id}/approvals/", {"comment": "later", "when": at, "override": overrides})
    assert planned.status_code == 201, planned.content


def test_a_body_with_no_time_of_a_fleet_is_refused(fleet: Fleet, admin: Caller) -> None:
    fleet.enrol_set(1)
    web = factories.the_set().pk
    texts: tuple[Any, ...] = (*EDGES, *NONE, "tomorrow", "", 7, None, {}, [], "2026-01-01T00:00:00+18:00Z")
    for text in texts:
        bodies = [
            ("rules/", {**RULE, "expires_at": text}),
            ("no-approval-windows/", {"name": "x", "reason": "x", "starts_at": text, "ends_at": text}),
            (f"sets/{web}/admissions/", {"until": text}),
            ("rules/dry-run/", {"rule": RULE, "since": text}),
            ("bulk/approvals/", {"events": ["x"], "comment": "", "when": text}),
        ]
        for address, body in bodies:
            answer = admin.post(address, body)
            if text is not None:
                problem(answer, 422, "validation")
            assert answer.status_code < 500, (address, text)


def test_pages_take_it_as_well() -> None:
    session = logged_in(factories.admin())
    for offset in OFFSETS:
        fields = {"name": f"Sale {offset}", "reason": "Full.", "time_zone": "UTC"}
        fields |= {"starts_at": f"2099-01-01T12:00:00{offset}", "ends_at": f"2099-01-03T12:00:00{offset}"}
        assert session.post("/no-approval-windows/", fields).status_code == 302, offset
        found = NoApprovalWindow.objects.get(name=fields["name"]).starts_at
        assert found == datetime.fromisoformat(f"2099-01-01T12:00:00{offset}")
        times = {"since": f"2026-01-01T12:00:00{offset}", "until": f"2026-01-02T12:00:00{offset}"}
        for address in ("/handover/", "/history/", "/audit/", "/events/"):
            assert session.get(address, times, follow=True).status_code == 200, (address, offset)
