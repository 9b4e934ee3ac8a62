"""Conditional API calls: the server applies or refuses a stated version, and never ignores it."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from fleet.api.documentation import schema
from fleet.models import Approval, Claim, Rule
from tests import factories
from tests.api.conftest import Caller, caller, problem
from tests.api.described import plain_route, required_scopes, writing_calls
from tests.approvals.racing import thread_group

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
