"""Approving through the API: once, with a reason for every refusal."""

from django.test import Client

from fleet.models import Approval, Order
from tests import factories
from tests.api.conftest import Caller, caller, problem


def approve(who: Caller, event_id: str, **body: object) -> object:
    return who.post(f"events/{event_id}/approvals/", {"comment": "drained", **body})


def test_a_grant_answers_with_the_approval_and_its_first_order(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    answer = operator.post(
        f"events/{event.event_id.lower()}/approvals/",
        {"comment": "drained", "expected_version": event.version, "when": "now", "override": []},
    )
    assert answer.status_code == 201, answer.content
    shown = answer.json()
    assert shown["by"] == "otto"
    assert shown["via"] == "api"
    assert shown["token_name"] == "tests"
    assert shown["comment"] == "drained"
    assert [order["machine"]["resource_name"] for order in shown["orders"]] == ["vm1"]
    assert Order.objects.filter(approval=shown["id"]).count() == 1
    assert operator.get(f"events/{event.event_id}/").json()["needs_decision"] is False


def test_loser_of_a_race_learns_who_won_and_when(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    won = approve(operator, event.event_id).json()  # type: ignore[attr-defined]
    other = caller(factories.operator("olga"))
    lost = problem(approve(other, event.event_id), 409, "already-decided")
    assert lost["by"] == "otto"
    assert lost["at"] == won["granted_at"]
    assert lost["approval"] == won["id"]
    assert Approval.objects.count() == 1


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
