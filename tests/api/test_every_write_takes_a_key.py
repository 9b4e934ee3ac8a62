"""API writes: a repeated call with an `Idempotency-Key` takes effect once, or is refused because it takes no key."""

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest

from fleet.api.documentation import schema
from fleet.models import Approval, Claim, Rule, StoredAnswer
from fleet.operations.idempotency import Answer, KeyReused, answer_once, fingerprint
from tests import factories
from tests.access.walks import acts, the_act, writes
from tests.access.world import lasting_world
from tests.api.conftest import Caller, caller, in_person, problem
from tests.api.described import plain_route, required_scopes, writing_calls
from tests.approvals.racing import thread_group

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


# Conditional calls: the server applies or refuses a stated version, and never ignores it.


RULE = {"name": "Short", "reason": "No user notices.", "action": "hold", "event_types": ["Freeze"]}
HOOK = {"name": "hook", "kind": "webhook", "url": "https://hooks.example.org/1"}
NOT_MINE = '"0"'


def patch(who: Caller, address: str, body: Any, **headers: str) -> Any:
    return who("PATCH", address, body, **headers)


@pytest.mark.parametrize(
    ("method", "address", "body", "done"),
    [
        ("POST", "approvals/", {"comment": "x"}, 201),
        ("POST", "claims/", {}, 201),
        ("POST", "holds/", {"reason": "x"}, 201),
        ("DELETE", "claims/", None, 200),
        ("DELETE", "holds/", None, 200),
    ],
)
def test_a_decision_is_about_the_version_of_the_event_that_was_looked_at(
    fleet: factories.Fleet, operator: Caller, method: str, address: str, body: Any, done: int
) -> None:
    event = factories.announced(fleet)
    place = f"events/{event.event_id}/"
    if method == "DELETE":
        assert operator.post(place + address, {} if address == "claims/" else {"reason": "x"}).status_code == 201
    tag = operator.get(place)["ETag"]
    assert tag == f'"{event.version}"'
    told = problem(operator(method, place + address, body, if_match='"999"'), 412, "precondition-failed")
    assert told["version"] == str(event.version)
    assert Approval.objects.count() == 0
    assert operator(method, place + address, body, if_match=tag).status_code == done
    # Deciding makes it no other event.
    assert operator.get(place)["ETag"] == tag


@pytest.mark.parametrize(
    ("many", "made", "change"),
    [
        ("rules/", RULE, {"enabled": True}),
        ("channels/", HOOK, {"name": "another"}),
        ("routes/", {"name": "all"}, {"service": "shop"}),
    ],
)
def test_a_change_is_made_to_the_version_that_was_looked_at(
    admin: Caller, many: str, made: dict[str, Any], change: dict[str, Any]
) -> None:
    first = admin.post(many, made)
    place, tag = first["Location"], first["ETag"]
    assert admin.get(place)["ETag"] == tag
    second = patch(admin, place, change, if_match=tag)
    assert second.status_code == 200, second.content
    assert second["ETag"] not in (tag, "")
    before = admin.get(place).json()
    problem(patch(admin, place, {"name": "third"}, if_match=tag), 412, "precondition-failed")
    problem(admin.delete(place, if_match=tag), 412, "precondition-failed")
    if many == "channels/":
        problem(admin.post(f"{place}rotate/", if_match=tag), 412, "precondition-failed")
    assert admin.get(place).json()["name"] == before["name"]
    # One of several will do, also when a proxy has weakened it.
    several = f"{NOT_MINE}, W/{second['ETag']}"
    third = patch(admin, place, {"name": "third"}, if_match=several)
    assert third.status_code == 200
    assert patch(admin, place, {"name": "fourth"}, if_match="*").status_code == 200
    assert admin.delete(place, if_match=admin.get(place)["ETag"]).status_code == 204


def test_what_is_repeated_gets_its_answer_and_no_failed_condition(admin: Caller) -> None:
    first = admin.post("rules/", RULE)
    headers = {"if_match": first["ETag"], "idempotency_key": "one"}
    done = patch(admin, first["Location"], {"enabled": True}, **headers)
    again = patch(admin, first["Location"], {"enabled": True}, **headers)
    assert (again.status_code, again["ETag"], again.json()["enabled"]) == (200, done["ETag"], True)
    assert again["Idempotency-Replayed"] == "true"
    refused = {"if_match": NOT_MINE, "idempotency_key": "two"}
    for _ in range(2):
        problem(patch(admin, first["Location"], {"enabled": False}, **refused), 412, "precondition-failed")
    other = patch(admin, first["Location"], {"enabled": True}, if_match=done["ETag"], idempotency_key="one")
    problem(other, 422, "key-reused")


def test_a_tag_that_is_none_is_refused(admin: Caller) -> None:
    place = admin.post("rules/", RULE)["Location"]
    for text in ("", "3", '"3', '"a" "b"', '"ä"', '"a",,"b"', ",".join(['"x"'] * 21)):
        told = problem(patch(admin, place, {"enabled": True}, if_match=text), 422, "validation")
        assert told["errors"][0]["field"] == "If-Match", text


def test_a_call_that_compares_no_versions_refuses_to_be_asked(admin: Caller) -> None:
    heeds = {
        (method, address)
        for address, methods in schema()["paths"].items()
        for method, operation in methods.items()
        if any(one["name"] == "If-Match" for one in operation.get("parameters", ()))
    }
    assert len(heeds) == 14
    routes = [(method, plain_route(route)) for method, route in required_scopes() if method != "get"]
    for call, (method, address) in zip(routes, writing_calls(), strict=True):
        for name in ("If-None-Match", "If-Unmodified-Since", *([] if call in heeds else ["If-Match"])):
            answer = admin(method, address, {}, **{name.replace("-", "_"): NOT_MINE})
            told = problem(answer, 422, "validation")
            assert told["errors"][0]["field"] == name, call


@pytest.mark.django_db(transaction=True)
def test_only_one_concurrent_change_of_a_version_succeeds() -> None:
    callers = [caller(factories.person(name, "admin")) for name in ("ada", "adam", "adele")]
    first = callers[0].post("rules/", RULE)
    names = ("one", "two", "three")
    changes = [
        partial(patch, who, first["Location"], {"name": name}, if_match=first["ETag"])
        for who, name in zip(callers, names, strict=True)
    ]
    with thread_group(len(callers)) as racing:
        answers: list[Any] = racing.at_once(*changes)
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412]
    won = next(answer for answer in answers if answer.status_code == 200)
    assert Rule.objects.get(pk=won.json()["id"]).name == won.json()["name"]


def test_an_event_that_moves_on_is_another_version(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.announced(fleet)
    place = f"events/{event.event_id}/"
    tag = operator.get(place)["ETag"]
    fleet.now = datetime.now(UTC)
    fleet.all_say(factories.listing(EventStatus="Started", NotBefore=""))
    assert operator.get(place)["ETag"] != tag
    problem(operator.post(f"{place}claims/", {}, if_match=tag), 412, "precondition-failed")
    assert Claim.objects.count() == 0
