"""Deciding through the API: approvals, reasons, later, the second person, claims, holds, and what the answers hold."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from fleet.models import Approval, Order, StoredAnswer
from tests import factories
from tests.api.conftest import Caller, caller, problem
from tests.approvals.asking import hook

ALL = tuple(f"vm{number}" for number in range(1, 7))


def approve(who: Caller, event_id: str, **body: Any) -> Any:
    return who.post(f"events/{event_id}/approvals/", {"comment": "drained", **body})


@pytest.mark.parametrize(
    ("override", "reason"),
    [("lost-for-good", "drained"), ({"code": "lost-for-good", "reason": "no data there"}, "no data there")],
)
def test_a_guard_takes_its_reason_from_the_override_or_the_comment(
    fleet: factories.Fleet, operator: Caller, override: Any, reason: str
) -> None:
    event = factories.announced(fleet, event_type="Redeploy")
    (guard,) = problem(approve(operator, event.event_id), 409, "guarded")["guards"]
    assert (guard["code"], guard["needs"], guard["overridable"]) == ("lost-for-good", "reason", False)
    made = approve(operator, event.event_id, override=[override])
    assert made.status_code == 201, made.content
    assert [(one["code"], one["reason"]) for one in made.json()["overrides"]] == [("lost-for-good", reason)]


def test_when_prepared_waits_and_says_for_whom(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    hook(fleet, "vm1", event.event_id, "end", "nothing")
    made = approve(operator, event.event_id, when="prepared").json()
    known = {"state": "WAITING", "when": "prepared", "due_at": None, "granted_at": None, "orders": []}
    assert {name: made[name] for name in known} == known
    assert "vm2" in made["waits_for"] and made["may_be_withdrawn"] and len(made["steps"]) > 3
    shown = operator.get(f"events/{event.event_id}/").json()
    assert (shown["needs_decision"], shown["not_ready"]) == (False, ["vm2"])
    assert shown["approval"]["waits_for"] == made["waits_for"]
    gone = operator.delete(f"approvals/{made['id']}/", {"comment": "changed my mind"})
    assert (gone.status_code, gone.json()["state"], gone.json()["waits_for"]) == (200, "WITHDRAWN", "")


def test_a_time_may_be_said_in_any_zone(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
    said = due.astimezone(timezone(timedelta(hours=2)))
    made = approve(operator, event.event_id, when=said.isoformat()).json()
    assert (made["when"], made["due_at"]) == ("time", due.isoformat().replace("+00:00", "Z"))
    assert f"{due:%Y-%m-%d %H:%M:%S} UTC" in made["waits_for"]


def test_a_proposal_needs_a_decision_still_and_an_approver_agrees_once(
    fleet: factories.Fleet, operator: Caller
) -> None:
    event = factories.announced(fleet, event_type="Reboot", resources=ALL)
    made = approve(operator, event.event_id).json()
    assert (made["state"], bool(made["waits_for"])) == ("PROPOSED", True)
    assert [one["event_id"] for one in listed(operator)] == [event.event_id]
    anna = caller(factories.approver())
    done = anna.post(f"approvals/{made['id']}/consents/", {"comment": "seen"})
    assert done.status_code == 201, done.content
    shown = done.json()
    assert (shown["state"], shown["consented_by"], shown["consent_comment"]) == ("GRANTED", "anna", "seen")
    problem(anna.post(f"approvals/{made['id']}/consents/", {}), 409, "too-late")


def listed(who: Caller) -> list[dict[str, Any]]:
    """The events that need a decision."""
    found: list[dict[str, Any]] = who.get("events/?needs_decision=true").json()["results"]
    return found


def test_a_claim_is_taken_over_and_given_back(fleet: factories.Fleet, operator: Caller) -> None:
    address = f"events/{factories.announced(fleet).event_id}/claims/"
    assert operator.post(address, {"comment": "draining"}).json()["ended_at"] is None
    olga = caller(factories.operator("olga"))
    refused = problem(olga.post(address, {}), 409, "already-claimed")
    assert (refused["by"], refused["comment"]) == ("otto", "draining")
    assert olga.post(address, {"take_over": True}).json()["by"] == "olga"
    assert olga.delete(address).json()["ended_at"] is not None


def test_an_event_is_held_and_the_hold_lifted(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    address = f"events/{event.event_id}/holds/"
    for body in ({}, {"reason": " "}):
        problem(operator.post(address, body), 422, "validation")
    made = operator.post(address, {"reason": "the sale"})
    assert made.status_code == 201, made.content
    shown = operator.get(f"events/{event.event_id}/").json()
    assert shown["hold"] == {"by": "otto", "at": made.json()["at"], "reason": "the sale", "by_rule": False}
    # Who holds it has decided: it shall run by itself.
    assert (shown["needs_decision"], listed(operator)) == (False, [])
    problem(operator.post(address, {"reason": "again"}), 409, "already-held")
    problem(approve(operator, event.event_id), 409, "guarded")
    assert operator.delete(address).json()["ended_at"] is not None
    problem(operator.delete(address), 409, "not-held")
    assert approve(operator, event.event_id).json()["overrides"] == []


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


# Several events in one call: a result each, one refusal stops nothing, and shared facts are queried once.


SIX = [f"0A1B2C3D-0000-4000-8000-00000000000{number}" for number in range(6)]
IDS = SIX[:3]


@pytest.fixture
def three(fleet: factories.Fleet) -> factories.Fleet:
    """Three sets with an event each; the last is a Redeploy, which takes a reason."""
    for number, event_id in enumerate(IDS):
        name = f"m{number}"
        fleet.enrol(name, availability_set=f"set{number}")
        fleet.enrol(f"{name}b", availability_set=f"set{number}")
        event_type = "Redeploy" if number == 2 else "Freeze"
        due = fleet.now + timedelta(minutes=5 + number)
        fleet.say(name, factories.listing(event_id, event_type=event_type, resources=[name], not_before=due))
    return fleet


def results(answer: Any) -> list[tuple[str, int]]:
    assert answer.status_code == 200, answer.content
    return [(one["event_id"], one["status"]) for one in answer.json()["results"]]


def test_each_event_has_its_own_result(three: factories.Fleet, operator: Caller) -> None:
    wanted = [IDS[2], IDS[0].lower(), "no-such", IDS[0]]
    answer = operator.post("bulk/approvals/", {"events": wanted, "comment": "all of them"})
    assert results(answer) == [(IDS[2], 409), (IDS[0], 201), ("NO-SUCH", 404)]
    body = answer.json()
    assert (body["done"], body["refused"], Approval.objects.count()) == (1, 2, 1)
    first, second, third = body["results"]
    assert (first["approval"], first["problem"]["type"]) == (None, "guarded")
    assert (second["approval"]["state"], second["problem"]) == ("GRANTED", None)
    assert third["problem"]["type"] == "unknown-event"


def test_the_lists_own_filter_chooses_and_the_count_has_to_be_what_was_seen(
    three: factories.Fleet, operator: Caller
) -> None:
    body = {"filter": {"needs_decision": True, "type": "freeze"}, "comment": "x", "expected_count": 3}
    refused = problem(operator.post("bulk/approvals/", body), 409, "count-changed")
    assert refused["count"] == 2
    assert results(operator.post("bulk/approvals/", body | {"expected_count": 2})) == [(IDS[0], 201), (IDS[1], 201)]


def test_a_version_that_was_looked_at_counts_for_its_event(three: factories.Fleet, operator: Caller) -> None:
    body = {"events": IDS[:2], "comment": "x", "expected_versions": {IDS[0].lower(): 1, IDS[1]: 9}}
    answer = operator.post("bulk/approvals/", body)
    assert results(answer) == [(IDS[0], 201), (IDS[1], 409)]
    assert answer.json()["results"][1]["problem"]["type"] == "version-changed"


def test_repeated_call_continues_where_the_first_was_cut_off(three: factories.Fleet, operator: Caller) -> None:
    body = {"filter": {"needs_decision": "true"}, "comment": "x", "override": ["lost-for-good"]}
    first = operator.post("bulk/approvals/", body, idempotency_key="k")
    assert [status for _, status in results(first)] == [201, 201, 201]
    # As if the process had died before the last one.
    last = Approval.objects.get(event__event_id=IDS[2])
    StoredAnswer.objects.filter(key__endswith=IDS[2]).delete()
    Approval.objects.filter(pk=last.pk).update(state="WITHDRAWN")
    again = operator.post("bulk/approvals/", body, idempotency_key="k")
    assert [status for _, status in results(again)] == [201, 201, 201]
    assert again.json()["results"][:2] == first.json()["results"][:2]
    assert Approval.objects.count() == 4
    problem(operator.post("bulk/approvals/", body | {"comment": "y"}, idempotency_key="k"), 422, "key-reused")


def test_claims_go_the_same_way(three: factories.Fleet, operator: Caller) -> None:
    chosen = {"filter": {"status": ["SCHEDULED"]}, "expected_count": 3}
    answer = operator.post("bulk/claims/", {**chosen, "comment": "mine"})
    assert results(answer) == [(event_id, 201) for event_id in IDS]
    assert {row["claim"]["comment"] for row in answer.json()["results"]} == {"mine"}


def test_a_choice_of_events_that_makes_no_sense_is_named(operator: Caller) -> None:
    bodies: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, ""),
        ({"events": [], "filter": {}}, "events"),
        ({"events": ["x"], "filter": {}}, ""),
        ({"events": ["x"] * 101}, "events"),
        ({"filter": {"colour": "red"}}, "filter"),
        ({"filter": {"needs_decision": "perhaps"}}, "needs_decision"),
        ({"filter": {"status": ["OPEN"]}}, "status"),
    )
    for body, field in bodies:
        refused = problem(operator.post("bulk/claims/", body), 422, "validation")
        assert [error["field"] for error in refused["errors"]] == [field], body


# Two of them begin and end its part of the transaction, one keeps the answer for a repeat, and two write: approval and
# order. The key is taken by the driver's own cursor, which is not counted; the entries of all go together.
MOST = 5


def test_each_further_approval_costs_little_more_than_itself(fleet: factories.Fleet, operator: Caller) -> None:
    for number, event_id in enumerate(SIX):
        fleet.enrol(f"m{number}", availability_set=f"set{number}")
        due = fleet.now + timedelta(minutes=5 + number)
        fleet.say(f"m{number}", factories.listing(event_id, resources=[f"m{number}"], not_before=due))

    def cost(event_ids: list[str], key: str) -> int:
        with CaptureQueriesContext(connection) as caught:
            answer = operator.post("bulk/approvals/", {"events": event_ids, "comment": "x"}, idempotency_key=key)
        assert [one["approval"]["state"] for one in answer.json()["results"]] == ["GRANTED"] * len(event_ids)
        return len(caught)

    two, four = cost(SIX[:2], "two"), cost(SIX[2:], "four")
    assert (four - two) / 2 <= MOST


def test_a_repeat_after_a_call_that_was_cut_off_before_it_told_tells_it_whole(
    fleet: factories.Fleet, operator: Caller
) -> None:
    fleet.enrol("m", availability_set="set")
    fleet.say("m", factories.listing(IDS[0], resources=["m"], not_before=fleet.now + timedelta(minutes=5)))
    body = {"events": [IDS[0]], "comment": "x"}
    first = operator.post("bulk/approvals/", body, idempotency_key="k").json()
    # As it stands between the last decision and the answer.
    kept = StoredAnswer.objects.get(key__endswith=IDS[0])
    assert kept.body is not None
    StoredAnswer.objects.filter(pk=kept.pk).update(body={"id": kept.body["id"]})
    again = operator.post("bulk/approvals/", body, idempotency_key="k").json()
    assert again["results"][0]["approval"].keys() == first["results"][0]["approval"].keys()
    body_again = StoredAnswer.objects.get(pk=kept.pk).body
    assert body_again is not None
    assert body_again.keys() == kept.body.keys()
