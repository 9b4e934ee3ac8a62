"""Each decision is one line in the log once it is committed, and what becomes of it leads back to it by one id."""

from datetime import UTC, datetime
from typing import Any

import pytest
import structlog
from django.db import transaction

from fleet.domain.pseudonyms import pseudonym
from fleet.domain.trace import Trace, trace_as_kept, trace_of
from fleet.models import Approval
from fleet.operations.orders.queue import waiting_orders
from fleet.operations.timeline.entries import asked_by
from tests.api.conftest import caller
from tests.factories import EVENT, Fleet, announced, open_order, operator, seconds

pytestmark = pytest.mark.django_db
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def said() -> Any:
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_api_approval_is_logged_with_request_and_trace_ids(
    said: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    fleet = Fleet(now=datetime.now(UTC))
    announced(fleet, not_before=fleet.now + seconds(900))
    with django_capture_on_commit_callbacks(execute=True):
        answer = caller(operator()).post(
            f"events/{EVENT}/approvals/", {"comment": "go"}, X_Request_ID="r-1", traceparent=PARENT
        )
    assert answer.status_code == 201, answer.content
    body = answer.json()
    assert (body["request_id"], body["trace_id"]) == ("r-1", TRACE)
    assert {(order["request_id"], order["trace_id"]) for order in body["orders"]} == {("r-1", TRACE)}
    (decision,) = [line for line in said if line["event"] == "decision" and line.get("approval") == body["id"]]
    assert (decision["kind"], decision["by"]) == ("approval_granted", pseudonym(operator().pk))
    assert (decision["request_id"], decision["trace_id"]) == ("r-1", TRACE)
    # What a person wrote is not for a log.
    assert "go" not in decision.values()
    (step,) = [line for line in said if line["event"] == "step" and line["kind"] == "order_offered"]
    assert (step["order"], step["request_id"]) == (body["orders"][0]["id"], "r-1")
    ((order,),) = waiting_orders().values()
    assert (order.request_id, order.trace_id) == ("r-1", TRACE)


def test_what_comes_later_and_from_elsewhere_is_found_by_the_same_id(
    said: list[Any], django_capture_on_commit_callbacks: Any, fleet: Fleet
) -> None:
    announced(fleet)
    with asked_by(Trace("r-2"), ""):
        approval = fleet.approve()
    with django_capture_on_commit_callbacks(execute=True), asked_by(Trace("the agent's call"), ""):
        fleet.delivered(open_order(approval))
    (step,) = [line for line in said if line.get("kind") == "order_delivered"]
    assert "r-2" in (step.get("decision_id"), step.get("request_id"))


def test_approval_without_a_request_has_an_id_and_one_of_the_release_before_goes_its_way_without(fleet: Fleet) -> None:
    announced(fleet)
    approval = fleet.approve()
    assert len(approval.request_id) == 32 and approval.trace is not None
    Approval.objects.update(request_id="", trace_id="")
    approval.refresh_from_db()
    assert approval.trace is None
    fleet.delivered(open_order(approval))
    ((order,),) = waiting_orders().values()
    assert (order.request_id, order.trace_id) == ("", "")


def test_what_is_rolled_back_was_never_decided(
    said: list[Any], django_capture_on_commit_callbacks: Any, fleet: Fleet
) -> None:
    announced(fleet)
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(RuntimeError), transaction.atomic():
        fleet.approve()
        raise RuntimeError
    assert [line for line in said if line["event"] in ("decision", "step") and line.get("approval")] == []


@pytest.mark.parametrize(
    "header",
    [
        "",
        "x",
        PARENT.upper(),
        PARENT + "-more",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-00f067aa0ba902b7",
        f" {PARENT}\n",
        PARENT.replace("4bf9", "٤bf9"),
        f"01-{TRACE}-00f067aa0ba902b7-01-" + "x" * 5000,
    ],
)
def test_a_traceparent_is_read_strictly(header: str) -> None:
    found = trace_of("r", header).trace_id
    assert found != TRACE
    assert len(found) == (32 if header else 0)


def test_a_traceparent_of_a_later_version_may_say_more() -> None:
    assert trace_of("r", PARENT).trace_id == TRACE
    assert trace_of("r", f"01-{TRACE}-00f067aa0ba902b7-01-more").trace_id == TRACE


@pytest.mark.parametrize("kept", [None, 1, "", "two words", "x" * 129, "a\nb", ["r"]])
def test_trace_from_redis_is_validated_before_logging(kept: object) -> None:
    assert trace_as_kept(kept, TRACE) is None
    assert trace_as_kept("r", kept) == Trace("r")
