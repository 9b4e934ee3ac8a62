"""A silent machine may leave thousands of events open: lists and pages show the first of its set, and count
the others.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.signals import post_init

from fleet.dashboard import events
from fleet.models import ScheduledEvent
from fleet.projections import machines, sets
from fleet.projections.events import detail
from tests import factories
from tests.api.conftest import caller
from tests.dashboard.conftest import logged_in

MANY = 60


@pytest.fixture
def fleet(db: None, monkeypatch: pytest.MonkeyPatch) -> factories.Fleet:
    """`web` with sixty open events, each of which names `vm1` or `vm2`, and `db` with one."""
    monkeypatch.setattr(sets, "OPEN_IN_SET", 25)
    monkeypatch.setattr(machines, "MOST_EVENTS", 7)
    monkeypatch.setattr(detail, "MOST_OTHERS", 9)
    monkeypatch.setattr(events, "MOST_OTHERS", 4)
    found = factories.Fleet(now=datetime.now(UTC))
    for name, home in (("vm1", "web"), ("vm2", "web"), ("db1", "db")):
        found.enrol(name, availability_set=home)
    found.say(
        "vm1", factories.listing("0A1B2C3D-0000-4000-8000-000000000000", not_before=found.now + timedelta(minutes=90))
    )
    first = ScheduledEvent.objects.get()
    ScheduledEvent.objects.filter(pk=first.pk).update(resources=["vm2"])
    columns = {name: value for name, value in vars(first).items() if name not in ("id", "_state")}
    # The last one is the first one due.
    ScheduledEvent.objects.bulk_create(
        ScheduledEvent(
            **columns
            | {
                "event_id": f"0A1B2C3D-0000-4000-8000-{number:012d}",
                "resources": ["VM1" if number % 2 else "vm2"],
                "not_before": found.now + timedelta(minutes=90 - number),
            }
        )
        for number in range(1, MANY)
    )
    found.say("db1", factories.listing(resources=("db1",), not_before=found.now + timedelta(minutes=5)))
    return found


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The events that are loaded as objects from here on."""
    found: list[str] = []

    def note(instance: ScheduledEvent, **_: Any) -> None:
        found.append(instance.event_id)

    post_init.connect(note, sender=ScheduledEvent)
    yield found
    post_init.disconnect(note, sender=ScheduledEvent)


def ids(*numbers: int) -> list[str]:
    return [f"0A1B2C3D-0000-4000-8000-{number:012d}" for number in numbers]


def test_lists_of_sets_have_the_first_twenty_and_the_number(fleet: factories.Fleet, loaded: list[str]) -> None:
    reader = caller(factories.viewer())
    quiet, flooded = reader.get("sets/").json()["results"]
    assert [event["event_id"] for event in flooded["open_events"]] == ids(*range(59, 39, -1))
    assert (flooded["open_event_count"], quiet["open_event_count"]) == (MANY, 1)
    assert len(quiet["open_events"]) == 1
    assert len(loaded) <= 20 + 1 + 1
    (short,) = reader.get("sets/?machines=false&q=web").json()["results"]
    assert short["open_events"][0]["event_id"] == flooded["open_events"][0]["event_id"]
    assert short["open_event_count"] == MANY


def test_one_set_has_more_of_them_and_its_page_leads_to_all(fleet: factories.Fleet, loaded: list[str]) -> None:
    home = factories.the_set("web")
    found = caller(factories.viewer()).get(f"sets/{home.pk}/").json()
    assert [event["event_id"] for event in found["open_events"]] == ids(*range(59, 34, -1))
    assert found["open_event_count"] == MANY
    assert len(loaded) <= 25 + 1
    client = logged_in(factories.operator())
    body = client.get(f"/sets/{home.pk}/").content.decode()
    assert body.count('class="row-card') == 25
    assert f'?set={home.pk}&amp;status=SCHEDULED&amp;status=STARTED">60\n      open events</a>' in body
    rows = client.get("/sets/").content.decode()
    assert rows.count('class="in-cell"') == 2 + 1 + 1 and "58 more</a>" in rows


def test_a_machine_has_the_first_that_name_it_and_the_first_others(fleet: factories.Fleet, loaded: list[str]) -> None:
    machine = fleet.agents["vm1"].machine
    found = caller(factories.viewer()).get(f"machines/{machine.pk}/").json()
    assert [event["event_id"] for event in found["hit_by"]] == ids(*range(59, 45, -2))
    assert [event["event_id"] for event in found["other_events"]] == ids(*range(58, 44, -2))
    assert (found["hit_by_count"], found["other_event_count"]) == (30, 30)
    assert len(loaded) <= 2 * (7 + 1)
    body = logged_in(factories.operator()).get(f"/machines/{machine.pk}/").content.decode()
    assert body.count("affects this machine") == body.count("affects other machines") == 7
    assert ">46 more open events</a>" in body


def test_an_event_names_the_first_others_of_its_set(fleet: factories.Fleet) -> None:
    (event_id,) = ids(0)
    found = caller(factories.viewer()).get(f"events/{event_id}/").json()
    assert (len(found["other_open"]), found["other_open_count"]) == (9, MANY - 1)
    body = logged_in(factories.operator()).get(f"/events/{event_id}/").content.decode()
    assert ">55\n          more</a>" in body


def test_the_grid_shows_the_soonest_event_of_each_machine(fleet: factories.Fleet) -> None:
    found = sets.detail(set_id=factories.the_set("web").pk, now=fleet.now)
    assert found is not None
    hits = {
        item.machine.resource_name: item.hit_by[0].event_id
        for row in found.set.grid.rows
        for cell in row.cells
        for item in cell
        if item.hit_by
    }
    assert hits == dict(zip(("vm1", "vm2"), ids(59, 58), strict=True))
