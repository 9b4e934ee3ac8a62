"""Idempotent API calls: a request that a client sends twice takes effect once."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from fleet.models import Approval, StoredAnswer
from fleet.operations.idempotency import Answer, KeyReused, answer_once, fingerprint
from tests import factories
from tests.api.conftest import Caller, caller, problem


def approve(who: Caller, event_id: str, key: str, comment: str = "drained", **body: object) -> Any:
    return who.post(f"events/{event_id}/approvals/", {"comment": comment, **body}, idempotency_key=key)


def test_another_body_with_the_same_key_is_refused(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    approve(operator, event.event_id, "one")
    problem(approve(operator, event.event_id, "one", comment="something else"), 422, "key-reused")


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


@pytest.mark.django_db(transaction=True)
def test_repeats_at_the_same_moment_happen_once() -> None:
    fleet = factories.Fleet(now=datetime.now(UTC))
    event = factories.announced(fleet)
    callers = [caller(factories.operator()) for _ in range(4)]
    together = threading.Barrier(len(callers))
    answers: list[Any] = []

    def send(who: Caller) -> None:
        together.wait()
        answers.append(approve(who, event.event_id, "one"))
        connection.close()

    threads = [threading.Thread(target=send, args=(who,)) for who in callers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [201] * 4
    assert sum("Idempotency-Replayed" not in answer for answer in answers) == 1
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert Approval.objects.count() == 1
