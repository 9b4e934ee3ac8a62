"""Waves on pages and in the REST API: both run the same operations and state why each event waits."""

import re
from datetime import UTC, datetime

import pytest

from fleet.models import Approval, Wave
from fleet.projections import waves
from tests import factories
from tests.api.conftest import caller, problem
from tests.dashboard.conftest import codes, logged_in, states, text_of
from tests.plans import queries
from tests.waves.test_waves_walk_through_the_fleet import FIRST, SECOND, THIRD, Walk

pytestmark = pytest.mark.django_db


@pytest.fixture
def walk(monkeypatch: pytest.MonkeyPatch) -> Walk:
    # The edges go by the real clock.
    monkeypatch.setattr(factories.Fleet.__init__, "__defaults__", (datetime.now(UTC),))
    return Walk()


def test_a_wave_is_begun_followed_and_stopped_on_the_pages(walk: Walk) -> None:
    client = logged_in(factories.operator())
    shown = client.get(f"/sets/{factories.the_set().pk}/").content.decode()
    assert 'href="/waves/begin/?service=shop"' in shown
    form = client.get("/waves/begin/?service=shop")
    checked = re.findall(r'name="events" id="event-\d" value="([^"]+)" checked', form.content.decode())
    assert checked == [FIRST, SECOND, THIRD]
    sent = client.post("/waves/begin/", {"service": "shop", "events": [FIRST, SECOND], "comment": "patch night"})
    wave = Wave.objects.get()
    assert (sent.status_code, sent["Location"]) == (302, f"/waves/{wave.pk}/")
    page = client.get(sent["Location"])
    assert "wave-waits-for-order" in codes(page) and "waits" in states(page)
    assert "patch night" in text_of(page)
    for address in (f"/events/{SECOND}/", "/waves/"):
        assert f'href="/waves/{wave.pk}/"' in client.get(address).content.decode(), address
    part = client.get(f"/waves/{wave.pk}/?part=wave_body", headers={"HX-Request": "true"})
    assert part.content.decode().strip().startswith('<div id="wave-body"')
    stopped = client.post(f"/waves/{wave.pk}/stop/", {"comment": "enough"}, follow=True)
    assert "STOPPED" in states(stopped) and "enough" in text_of(stopped)
    assert client.post(f"/waves/{wave.pk}/stop/").status_code == 409
    assert client.get("/waves/999/").status_code == 404


def test_form_shows_the_guard_and_takes_a_reason(walk: Walk) -> None:
    walk.open[FIRST]["event_type"] = "Redeploy"
    walk.fleet.later(0.1)
    walk.tell()
    client = logged_in(factories.operator())
    wanted = {"service": "shop", "events": [FIRST, SECOND], "comment": "x"}
    refused = client.post("/waves/begin/", wanted)
    assert refused.status_code == 409
    assert 'name="override" id="guard-lost-for-good"' in refused.content.decode()
    assert not Wave.objects.exists()
    sent = client.post("/waves/begin/", {**wanted, "override": ["lost-for-good"], "reason": "the disks are empty"})
    assert sent.status_code == 302
    assert Approval.objects.get(turn=1).overrides[0]["reason"] == "the disks are empty"


def test_a_wave_over_the_api(walk: Walk) -> None:
    call = caller(factories.operator())
    problem(call.post("waves/", {"events": [FIRST], "comment": "x"}), 422, "validation")
    problem(call.post("waves/", {"events": [FIRST], "service": "shop", "comment": "x"}), 422, "validation")
    made = call.post("waves/", {"service": "shop", "comment": "patch night"})
    assert made.status_code == 201, made.content
    wave = made.json()
    assert (wave["state"], wave["service"], wave["by"], wave["token_name"]) == ("RUNNING", "shop", "otto", "tests")
    assert [(one["turn"], one["event_id"]) for one in wave["members"]] == [(1, FIRST), (2, SECOND), (3, THIRD)]
    assert [one["phase"] for one in wave["members"]] == ["in_flight", "waits", "waits"]
    event = call.get(f"events/{SECOND}/").json()
    assert (event["approval"]["wave"], event["approval"]["turn"]) == (wave["id"], 2)
    [listed] = call.get("waves/").json()["results"]
    assert (listed["id"], listed["members"]) == (wave["id"], wave["members"])
    problem(call.post("waves/", {"service": "shop", "comment": "x"}), 422, "validation")
    stopped = call.delete(f"waves/{wave['id']}/", {"comment": "enough"}).json()
    assert (stopped["state"], "enough" in stopped["reason"]) == ("STOPPED", True)
    problem(call.delete(f"waves/{wave['id']}/"), 409, "too-late")
    problem(call.get("waves/999/"), 404, "unknown-wave")


def test_waves_cost_a_fixed_number_of_queries(walk: Walk) -> None:
    wave = walk.begin(FIRST, SECOND, THIRD)
    assert len(queries(waves.detail, wave_id=wave.pk, now=walk.fleet.now)) == 3
    assert len(queries(waves.listing, now=walk.fleet.now)) == 4
    assert len(queries(waves.candidates, now=walk.fleet.now, service="shop")) == 1
    client = logged_in(factories.operator())
    # The head of every page costs the same; the page itself nine.
    head = len(queries(client.get, "/pulse/"))
    assert len(queries(client.get, f"/waves/{wave.pk}/")) <= head + 9
