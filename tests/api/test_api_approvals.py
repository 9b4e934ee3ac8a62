"""Approving through the API: once, with a reason for every refusal."""

from django.test import Client

from fleet.models import Approval, Order
from tests import factories
from tests.api.conftest import Caller, caller, problem


def test_a_grant_answers_with_the_approval_and_the_loser_of_a_race_learns_of_it(
    fleet: factories.Fleet, operator: Caller
) -> None:
    event = factories.announced(fleet)
    wanted = {"comment": "drained", "expected_version": event.version, "when": "now", "override": []}
    won = operator.post(f"events/{event.event_id.lower()}/approvals/", wanted).json()
    known = {"by": "otto", "via": "api", "token_name": "tests", "comment": "drained"}
    assert {name: won[name] for name in known} == known
    assert [order["machine"]["resource_name"] for order in won["orders"]] == ["vm1"]
    assert operator.get(f"events/{event.event_id}/").json()["needs_decision"] is False
    other = caller(factories.operator("olga"))
    lost = problem(other.post(f"events/{event.event_id}/approvals/", wanted), 409, "already-decided")
    assert (lost["by"], lost["at"], lost["approval"]) == ("otto", won["granted_at"], won["id"])
    assert Approval.objects.count() == Order.objects.filter(approval=won["id"]).count() == 1


NO_SENSE: tuple[tuple[dict[str, object], str], ...] = (
    ({}, "comment"),
    ({"comment": 5 * ["x"]}, "comment"),
    ({"comment": "x" * 2001}, "comment"),
    ({"comment": "nul \x00"}, "comment"),
    ({"comment": "half \ud800"}, "comment"),
    ({"comment": "x", "expected_version": "soon"}, "expected_version"),
    ({"comment": "x", "when": "later"}, "when"),
    ({"comment": "x", "when": "2030-01-01"}, "when"),
    ({"comment": "x", "when": "2030-01-01T00:00:00"}, "when"),
    ({"comment": "x", "when": "0001-01-01T00:00:00+14:00"}, "when"),
    ({"comment": "x", "when": 7}, "when"),
    ({"comment": "x", "override": ["too-late"]}, "override"),
    ({"comment": "x", "override": "held"}, "override"),
    ({"comment": "x", "override": [{"code": "held"}]}, "override"),
    ({"comment": "x", "override": [{"code": "held", "reason": 5}]}, "override"),
    ({"comment": "x", "override": [{"code": "held", "reason": "x" * 2001}]}, "override"),
    ({"comment": "x", "override": [{"code": "held", "reason": "y", "by": "me"}]}, "override"),
    ({"comment": " ", "override": ["held"]}, "override"),
    ({"coment": "x", "comment": "x"}, "coment"),
)


def test_what_makes_no_sense_is_named(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    for body, field in NO_SENSE:
        refused = problem(operator.post(f"events/{event.event_id}/approvals/", body), 422, "validation")
        assert [error["field"] for error in refused["errors"]] == [field], body
        assert all(error["message"].endswith(".") for error in refused["errors"])
    assert not Approval.objects.exists()


def test_a_session_approves_only_with_its_csrf_token(fleet: factories.Fleet) -> None:
    event = factories.announced(fleet)
    client = Client(enforce_csrf_checks=True)
    client.force_login(factories.operator())
    address = f"/api/v1/events/{event.event_id}/approvals/"
    body = {"comment": "from a page"}
    refused = problem(client.post(address, body, content_type="application/json"), 403, "not-permitted")
    assert "CSRF" in refused["detail"]
    client.get("/api/docs/?script=")
    token = client.cookies["drydock_csrf"].value
    made = client.post(address, body, content_type="application/json", headers={"x-csrftoken": token})
    assert made.status_code == 201, made.content
    assert made.json()["token_name"] == ""
