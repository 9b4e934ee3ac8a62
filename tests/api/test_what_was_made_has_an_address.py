"""A 201 says where the thing is that was made, and there it can be read."""

import pytest

from fleet.api.documentation import schema
from tests import factories
from tests.api.conftest import caller, in_person
from tests.every_write import IN_PERSON, api_steps, busy_fleet
from tests.factories import Fleet

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet(db: None) -> Fleet:
    return busy_fleet()


def test_each_201_leads_to_what_was_made(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.notifications.api.TEST_SECONDS", 0.0)
    ada = factories.admin()
    callers = {"ada": caller(ada), IN_PERSON: in_person(ada), "anna": caller(factories.approver())}
    found, made = set(), ""
    for how, route, (address, body) in api_steps(fleet):
        method, _, who = how.partition(" as ")
        answer = callers[who or "ada"](method, address.format(made=made), body)
        said = answer.json() if answer.content else {}
        made = str(said.get("prefix") or said.get("id") or "") if isinstance(said, dict) else ""
        if answer.status_code != 201:
            assert "Location" not in answer, (how, route)
            continue
        found.add(route)
        there = callers["ada"].get(answer["Location"])
        assert there.status_code == 200, (how, route, answer["Location"], there.content)
        for name in ("id", "prefix", "event_id", "username"):
            if name in said and name in there.json():
                assert there.json()[name] == said[name], (route, name)
    assert len(found) >= 12


def test_the_schema_says_so_of_each() -> None:
    made = [
        (address, operation["responses"]["201"])
        for address, methods in schema()["paths"].items()
        for operation in methods.values()
        if "201" in operation["responses"]
    ]
    assert len(made) >= 13
    assert [address for address, answer in made if "Location" not in answer.get("headers", {})] == []
