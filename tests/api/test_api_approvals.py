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


def test_a_changed_event_wants_to_be_read_again(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    refused = problem(approve(operator, event.event_id, expected_version=event.version + 1), 409, "version-changed")
    assert refused["version"] == event.version


def test_a_started_event_is_too_late(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    fleet.all_say(factories.listing(status="Started", resources=("vm1", "vm2")))
    problem(approve(operator, event.event_id), 409, "too-late")


def test_without_a_live_machine_the_guard_is_named(operator: Caller, db: None) -> None:
    # Ten minutes ago the whole set fell silent.
    fleet = factories.Fleet(now=factories.datetime.now(factories.UTC) - factories.seconds(700))
    event = factories.announced(fleet, not_before=fleet.now + factories.seconds(3600))
    refused = problem(approve(operator, event.event_id), 409, "guarded")
    assert [guard["code"] for guard in refused["guards"]] == ["no-live-machine"]
    page = operator.get(f"events/{event.event_id}/").json()
    blocking = [guard for guard in page["guards"] if guard["blocks"]]
    assert [guard["sentence"] for guard in blocking] == [guard["sentence"] for guard in refused["guards"]]


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


def test_an_offered_order_cannot_be_taken_back(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    made = approve(operator, event.event_id).json()  # type: ignore[attr-defined]
    assert made["may_be_withdrawn"] is False
    problem(operator.delete(f"approvals/{made['id']}/", {"comment": "no"}), 409, "too-late")
    assert Approval.objects.get().state == made["state"]


def test_what_is_not_there_is_unknown(operator: Caller) -> None:
    problem(approve(operator, "nobody-saw-this"), 404, "unknown-event")
    problem(operator.delete("approvals/77/"), 404, "unknown-approval")


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
