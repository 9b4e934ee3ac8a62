"""Several events in one call: a result each, one refusal stops nothing, and shared facts are queried once."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.models import Approval, StoredAnswer
from tests import factories
from tests.api.conftest import Caller, problem

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


def test_what_makes_no_sense_is_named(operator: Caller) -> None:
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
