"""API writes: a repeated call with an `Idempotency-Key` takes effect once, or is refused because it takes no key."""

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest

from fleet.models import Rule, StoredAnswer
from fleet.operations.idempotency import Answer, KeyReused, answer_once, fingerprint
from tests import factories
from tests.access.walks import acts, the_act, writes
from tests.access.world import lasting_world
from tests.api.conftest import Caller, caller, in_person, problem
from tests.api.described import writing_calls

pytestmark = pytest.mark.django_db
# What they answer is shown once and kept nowhere, so that no repeat could have it.
KEYLESS = {
    ("POST", "join-tokens/"),
    ("POST", "tokens/"),
    ("POST", "people/"),
    ("POST", "service-accounts/<str:username>/tokens/"),
    ("POST", "people/<str:username>/password/"),
    ("POST", "channels/"),
    ("POST", "channels/<int:channel_id>/rotate/"),
}


# More than one act: one entry for the wave, and one for each decision in it.
SEVERAL = ("waves/", "waves/<int:wave_id>/")
# By a person who has just proved who they are, and by no token.
IN_PERSON = ("people/", "service-accounts/", "sign-on/")


def body_of(answer: Any) -> Any:
    return answer.json() if answer.content else None


def test_each_write_is_one_act_and_happens_once_or_takes_no_key(
    db: None, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    values = lasting_world(monkeypatch, settings).values
    ada = factories.admin()
    by_token, signed_in = caller(ada), in_person(ada)
    created = set()
    for number, write in enumerate(writes("api", values)):
        method, route = write.method, write.route.removeprefix("api/v1/")
        personal = route.startswith(IN_PERSON)
        call = partial(signed_in if personal else by_token, method, write.address, write.body)
        where, key = (method, route), {"idempotency_key": f"key {number}"}
        first = call(X_Request_ID=f"first-{number}", **key)
        if where in KEYLESS:
            assert "takes none" in problem(first, 422, "validation")["errors"][0]["message"]
            assert acts(f"first-{number}") == [], where
            first = call(X_Request_ID=f"first-{number}")
        assert first.status_code < 300, (where, first.content)
        if route not in SEVERAL:
            act = the_act(f"first-{number}")
            token = "" if personal else "tests"
            assert (factories.who(act), act.via, act.token_name) == ("ada", "api", token), where
            if isinstance(write.body, dict) and (reason := write.body.get("comment") or write.body.get("reason")):
                assert reason in act.why, where
        if where not in KEYLESS:
            assert "Idempotency-Replayed" not in first, where
            again = call(X_Request_ID=f"again-{number}", **key)
            assert (again.status_code, body_of(again)) == (first.status_code, body_of(first)), where
            for header in ("Location", "ETag"):
                assert again.headers.get(header) == first.headers.get(header), where
            if not route.startswith("bulk/"):
                assert again["Idempotency-Replayed"] == "true", where
            assert acts(f"again-{number}") == [], where
            other = (signed_in if personal else by_token)(method, write.address, {"comment": "another"}, **key)
            assert other.status_code in (422, 413), (where, other.content)
        # A 201 says where the thing is that was made, and there it can be read; nothing else names a place.
        assert ("Location" in first) is (first.status_code == 201), where
        if first.status_code == 201:
            created.add(route)
            there, body = by_token.get(first["Location"]).json(), first.json()
            same = [name for name in ("id", "prefix", "event_id", "username") if name in body and name in there]
            assert {name: there[name] for name in same} == {name: body[name] for name in same}, route
    assert len(created) >= 12


def test_a_strange_key_is_refused_by_each_of_them(admin: Caller) -> None:
    for (method, address), key in product(writing_calls(), ("", " ", "x" * 201, "a\tb", "käse")):
        # Neither the body nor the place matters yet.
        refused = problem(admin(method, address, {}, idempotency_key=key), 422, "validation")
        assert "Idempotency-Key" in {error["field"] for error in refused["errors"]}, (method, address)


def test_a_query_makes_another_request(admin: Caller) -> None:
    assert admin.post("inventory/", [], idempotency_key="one").status_code == 200
    assert admin.post("inventory/", [], idempotency_key="one")["Idempotency-Replayed"] == "true"
    problem(admin.post("inventory/?complete=true", [], idempotency_key="one"), 422, "key-reused")


def test_a_refusal_leaves_nothing_of_the_call_behind(admin: Caller) -> None:
    refused = admin.post("rules/", {"name": "x", "reason": "x", "action": "dance"}, idempotency_key="one")
    problem(refused, 422, "validation")
    assert not Rule.objects.filter(name="x").exists()


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

    once = partial(answer_once, user=user, key="one", now=now)
    fail, go = Mock(side_effect=RuntimeError("the cable was cut")), Mock(return_value=Answer(201, {"done": True}))
    with pytest.raises(RuntimeError, match="the cable was cut"):
        once(request="a", act=fail)
    assert once(request="a", act=go).repeated is False
    assert once(request="a", act=fail) == Answer(201, {"done": True}, repeated=True)
    with pytest.raises(KeyReused):
        once(request="b", act=go)


def test_a_fingerprint_knows_method_path_and_body() -> None:
    base = fingerprint(method="POST", path="/a", body={"x": 1, "y": 2})
    assert base == fingerprint(method="POST", path="/a", body={"y": 2, "x": 1})
    others = [("PUT", "/a", {"x": 1, "y": 2}), ("POST", "/b", {"x": 1, "y": 2}), ("POST", "/a", {"x": 1, "y": "2"})]
    assert base not in [fingerprint(method=method, path=path, body=body) for method, path, body in others]
