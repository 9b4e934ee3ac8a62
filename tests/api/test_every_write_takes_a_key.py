"""API writes: a repeated call with an `Idempotency-Key` takes effect once, or is refused because it takes no key."""

import re
from itertools import product
from typing import Any

import pytest

from fleet.models import Entry, Rule
from fleet.models.timeline import ACTING
from fleet.urls import CALLS
from tests import factories
from tests.api.conftest import Caller, caller, in_person, problem
from tests.api.described import required_scopes
from tests.every_write import IN_PERSON, api_steps, busy_fleet
from tests.factories import Fleet

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


@pytest.fixture
def fleet(db: None, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    # A channel test waits for the channel's answer, which never arrives here.
    monkeypatch.setattr("fleet.notifications.api.TEST_SECONDS", 0.0)
    return busy_fleet()


def acts(request_id: str) -> int:
    return Entry.objects.filter(request_id=request_id, via__in=ACTING).count()


def said_by(answer: Any) -> Any:
    return answer.json() if answer.content else None


def test_each_call_that_writes_happens_once_or_takes_no_key(fleet: Fleet) -> None:
    ada = factories.admin()
    callers = {"ada": caller(ada), IN_PERSON: in_person(ada), "anna": caller(factories.approver())}
    walked, made, created = set(), "", set()
    for number, (how, route, (address, body)) in enumerate(api_steps(fleet)):
        method, _, who = how.partition(" as ")
        call, place = callers[who or "ada"], address.format(made=made)
        key = {"idempotency_key": f"key {number}"}
        walked.add((method.lower(), f"/api/v1/{route}"))
        first = call(method, place, body, X_Request_ID=f"first-{number}", **key)
        if (method, route) in KEYLESS:
            assert "takes none" in problem(first, 422, "validation")["errors"][0]["message"]
            assert acts(f"first-{number}") == 0, (how, route)
            first = call(method, place, body)
            assert first.status_code < 300, (how, route, first.content)
        else:
            assert first.status_code < 300, (how, route, first.content)
            assert "Idempotency-Replayed" not in first, (how, route)
            again = call(method, place, body, X_Request_ID=f"again-{number}", **key)
            assert (again.status_code, said_by(again)) == (first.status_code, said_by(first)), route
            assert again.headers.get("Location") == first.headers.get("Location"), route
            assert again.headers.get("ETag") == first.headers.get("ETag"), route
            if not route.startswith("bulk/"):
                assert again["Idempotency-Replayed"] == "true", (how, route)
            assert acts(f"again-{number}") == 0, (how, route)
            other = call(method, place, {"comment": "another"}, **key) if body != {"comment": "another"} else None
            assert other is None or other.status_code in (422, 413), (how, route, other.content)
        said = first.json() if first.content else {}
        # A 201 says where the thing is that was made, and there it can be read; nothing else names a place.
        assert ("Location" in first) is (first.status_code == 201), (how, route)
        if first.status_code == 201:
            created.add(route)
            there = callers["ada"].get(first["Location"])
            assert there.status_code == 200, (how, route, there.content)
            same = [name for name in ("id", "prefix", "event_id", "username") if name in said and name in there.json()]
            assert {name: there.json()[name] for name in same} == {name: said[name] for name in same}, route
        made = str(said.get("prefix") or said.get("id") or "") if isinstance(said, dict) else ""
    assert len(created) >= 12
    looks = {("post", "/api/v1/rules/dry-run/"), ("post", "/api/v1/routes/dry-run/")}
    looks.add(("post", "/api/v1/sign-on/dry-run/"))
    waves = {("post", "/api/v1/waves/"), ("delete", "/api/v1/waves/<int:wave_id>/")}
    assert {call for call in required_scopes() if call[0] != "get"} - walked == looks | waves


def writes() -> list[tuple[str, str]]:
    """Each writing call as method and an address."""
    found = []
    for route in CALLS:
        for method in ("post", "put", "patch", "delete"):
            if hasattr(route.callback.view_class, method):  # type: ignore[attr-defined]
                address = re.sub(r"<int:\w+>", "1", re.sub(r"<str:\w+>", "x", str(route.pattern)))
                found.append((method.upper(), f"/api/{address}"))
    return found


def test_a_strange_key_is_refused_by_each_of_them(admin: Caller) -> None:
    calls = writes()
    assert len(calls) > 40
    for (method, address), key in product(calls, ("", " ", "x" * 201, "a\tb", "käse")):
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
