"""Idempotent API calls: a request that a client sends twice takes effect once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.models import StoredAnswer
from fleet.operations.idempotency import Answer, KeyReused, answer_once, fingerprint
from tests import factories
from tests.api.conftest import Caller, caller, problem


def approve(who: Caller, event_id: str, key: str, comment: str = "drained", **body: object) -> Any:
    return who.post(f"events/{event_id}/approvals/", {"comment": comment, **body}, idempotency_key=key)


def test_a_refusal_is_an_answer_that_a_repeat_gets_again(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    first = problem(approve(operator, event.event_id, "one", expected_version=99), 409, "version-changed")
    again = approve(operator, event.event_id, "one", expected_version=99)
    assert problem(again, 409, "version-changed") == first
    assert again["Idempotency-Replayed"] == "true"
    assert approve(operator, event.event_id, "two").status_code == 201


def test_a_request_that_made_no_sense_leaves_its_key_free(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    problem(approve(operator, event.event_id, "one", when="later"), 422, "validation")
    assert approve(operator, event.event_id, "one").status_code == 201


def test_a_key_belongs_to_a_person(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    approve(operator, event.event_id, "one")
    other = caller(factories.operator("olga"))
    problem(approve(other, event.event_id, "one"), 409, "already-decided")


def test_a_key_is_free_again_after_a_day(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    approve(operator, event.event_id, "one")
    StoredAnswer.objects.update(created_at=datetime.now(UTC) - timedelta(hours=25))
    problem(approve(operator, event.event_id, "one", comment="another"), 409, "already-decided")


def test_an_act_that_fails_leaves_the_key_free(db: None) -> None:
    user = factories.operator()
    now = datetime.now(UTC)

    def fail() -> Answer:
        raise RuntimeError("the cable was cut")

    def go() -> Answer:
        return Answer(status=201, body={"done": True})

    with pytest.raises(RuntimeError, match="the cable was cut"):
        answer_once(user=user, key="one", request="a", now=now, act=fail)
    assert answer_once(user=user, key="one", request="a", now=now, act=go).repeated is False
    assert answer_once(user=user, key="one", request="a", now=now, act=fail) == Answer(
        201, {"done": True}, repeated=True
    )
    with pytest.raises(KeyReused):
        answer_once(user=user, key="one", request="b", now=now, act=go)


def test_a_fingerprint_knows_method_path_and_body() -> None:
    base = fingerprint(method="POST", path="/a", body={"x": 1, "y": 2})
    assert base == fingerprint(method="POST", path="/a", body={"y": 2, "x": 1})
    others = [("PUT", "/a", {"x": 1, "y": 2}), ("POST", "/b", {"x": 1, "y": 2}), ("POST", "/a", {"x": 1, "y": "2"})]
    assert base not in [fingerprint(method=method, path=path, body=body) for method, path, body in others]
