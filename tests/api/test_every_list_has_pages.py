"""API lists: each has `cursor` and `page_size`, and accepts only its own cursors with the same filters and order."""

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import User

from fleet.api.documentation import schema
from fleet.models import Admission, JoinToken
from fleet.notifications.notification_types import NotificationType
from tests import factories
from tests.api.conftest import Caller, in_person, problem
from tests.people.signed_in import a_session
from tests.rows import MachineFactory


def cursor_of(address: str) -> str:
    return parse_qs(urlsplit(address).query)["cursor"][0]


def lists_by_address() -> dict[str, set[str]]:
    """Every call that reads and answers rows, with its query parameters."""
    found = {}
    for address, calls in schema()["paths"].items():
        answers = calls.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        shape = answers.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
        known = schema()["components"]["schemas"].get(shape, {}).get("properties", {})
        if {"next", "previous", "results"} <= set(known):
            asked = calls["get"].get("parameters", [])
            found[address] = {each["name"] for each in asked if each["in"] == "query"}
    return found


def test_every_list_takes_a_cursor_and_a_page_size() -> None:
    lists = lists_by_address()
    assert len(lists) >= 20
    assert [address for address, known in lists.items() if not {"cursor", "page_size"} <= known] == []


LISTS = (
    "rules/", "routes/", "channels/", "no-approval-windows/", "tokens/", "join-tokens/", "admissions/",
    "blind-spots/", "machines/", "events/DOCS/documents/", "events/DOCS/timeline/", "sets/", "people/", "audit/",
    "sessions/",
)  # fmt: skip


def test_pages_of_one_row_are_the_list(fleet: factories.Fleet, admin: Caller) -> None:
    several_of_everything(fleet, admin)
    for address in LISTS:
        whole = admin.get(f"{address}?page_size=500").json()
        assert (whole["next"], whole["previous"]) == (None, None), address
        assert len(whole["results"]) > 1, address
        walked, page = [], admin.get(f"{address}?page_size=1").json()
        while True:
            assert len(page["results"]) == 1, address
            walked += page["results"]
            if page["next"] is None:
                break
            page = admin.get(page["next"]).json()
        assert [without_times(row) for row in walked] == [without_times(row) for row in whole["results"]], address
        back = [page["results"][0]]
        while page["previous"]:
            page = admin.get(page["previous"]).json()
            back += page["results"]
        assert [without_times(row) for row in reversed(back)] == [without_times(row) for row in whole["results"]]


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    passing = ("server_time", "seconds_left", "last_used_at", "reason")
    return {name: value for name, value in row.items() if name not in passing}


def several_of_everything(fleet: factories.Fleet, admin: Caller) -> None:
    fleet.enrol_set(3)
    signed_in = in_person(User.objects.get(username="ada"))
    for number in range(2):
        fleet.enrol_set(1, prefix=f"of{number}-", availability_set=f"set{number}")
        fleet.all_say(factories.listing("DOCS", resources=list(fleet.agents)))
        fleet.later(1)
        fleet.all_say()
        named = {"name": f"one {number}", "reason": "tests"}
        made = [
            admin.post("rules/", {**named, "action": "hold"}),
            admin.post("no-approval-windows/", {**named, "weekdays": [number], "from_time": "08:00"}),
            admin.post("tokens/", {"name": f"script {number}", "scopes": ["read"], "expires_in_seconds": 3600}),
            admin.post("join-tokens/", {"comment": f"more {number}"}),
            signed_in.post("people/", {"username": f"somebody{number}", "group": "viewer"}),
            admin.post("channels/", {"kind": "webhook", "name": f"hook {number}", "url": "https://example.org/hook"}),
        ]
        channel = made[-1].json()["id"]
        moments = [NotificationType.FIRST_SEEN.value]
        made.append(admin.post("routes/", {"name": f"told {number}", "channel": channel, "moments": moments}))
        assert [answer.status_code for answer in made] == [201] * len(made), [answer.content for answer in made]
    for _ in range(2):
        a_session(User.objects.get(username="ada"))
    for number in range(2):
        asked = {"first_requested_at": fleet.now, "last_requested_at": fleet.now}
        token = JoinToken.objects.earliest("pk")
        Admission.objects.create(machine=MachineFactory(), ask_hash=str(number), join_token=token, **asked)


@pytest.fixture
def more(viewer: Caller) -> str:
    """The address of the second page of machines in two regions."""
    MachineFactory.create_batch(3, region="westeurope")
    MachineFactory.create_batch(3, region="northeurope")
    address: str = viewer.get("machines/?page_size=1&region=westeurope").json()["next"]
    return address


def test_a_cursor_of_another_list_is_refused(viewer: Caller, more: str) -> None:
    for address in ("sets/", "events/", "caches/"):
        refused = problem(viewer.get(f"{address}?cursor={cursor_of(more)}"), 422, "validation")
        assert [error["field"] for error in refused["errors"]] == ["cursor"]


def test_cursor_is_refused_with_other_filters_and_valid_with_another_page_size(viewer: Caller, more: str) -> None:
    for other in ({"region": "northeurope"}, {}, {"region": "westeurope", "q": "vm"}):
        query = urlencode({**other, "cursor": cursor_of(more)})
        problem(viewer.get(f"machines/?{query}"), 422, "validation")
    query = urlencode({"region": "westeurope", "page_size": 2, "cursor": cursor_of(more)})
    assert len(viewer.get(f"machines/?{query}").json()["results"]) == 2


def test_an_altered_cursor_is_refused(viewer: Caller, more: str) -> None:
    cursor = cursor_of(more)
    for place in range(0, len(cursor) - 1, 7):
        altered = cursor[:place] + ("B" if cursor[place] != "B" else "C") + cursor[place + 1 :]
        query = urlencode({"region": "westeurope", "cursor": altered})
        refused = problem(viewer.get(f"machines/?{query}"), 422, "validation")
        assert [error["field"] for error in refused["errors"]] == ["cursor"]


def test_a_cursor_outlives_a_new_secret_key(viewer: Caller, more: str, settings: LazySettings) -> None:
    before = viewer.get(more).json()["results"]
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "the next one, which is long enough for every check"
    assert viewer.get(more).json()["results"] == before
    settings.SECRET_KEY_FALLBACKS = []
    problem(viewer.get(more), 422, "validation")


def test_cursor_is_valid_for_every_reader_of_the_list(operator: Caller, viewer: Caller, more: str) -> None:
    assert operator.get(more).json()["results"] == viewer.get(more).json()["results"]
