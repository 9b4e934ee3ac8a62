"""Sets of thousands of machines or open events: pages summarise them in numbers and list what needs attention first."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.signals import post_init
from django.test import Client
from django.test.utils import CaptureQueriesContext

from fleet.dashboard import events
from fleet.models import Machine, PresenceRow, ScheduledEvent
from fleet.projections import machines, set_summaries, sets
from fleet.projections.events import detail
from tests import factories
from tests.api.conftest import caller
from tests.dashboard.conftest import logged_in, text_of

MANY = 30


@pytest.fixture
def fleet(db: None, monkeypatch: pytest.MonkeyPatch) -> factories.Fleet:
    """`web` with thirty machines, where ten are many: `m07` is silent, `m08` was never heard, `m09` has a warning,
    `m25` is named by an event, and `m01` is gone.
    """
    monkeypatch.setattr(sets, "MOST_SHOWN", 10)
    monkeypatch.setattr(set_summaries, "MOST", 10)
    monkeypatch.setattr(sets, "MOST", 10)
    found = factories.Fleet(now=datetime.now(UTC))
    found.enrol("m00", availability_set="web")
    first = found.agents["m00"].machine
    found.say("m00")
    for number in range(1, MANY):
        machine = Machine.objects.create(
            vm_id=f"vm-{number}",
            resource_name=f"m{number:02}",
            availability_set=first.availability_set,
            enrolled_at=found.now,
            fault_domain=number % 2,
            update_domain=0,
        )
        heard = found.now - timedelta(minutes=10 if number == 7 else 0)
        if number != 8:
            PresenceRow.objects.create(machine=machine, last_heard_at=heard, last_poll_at=heard)
    Machine.objects.filter(resource_name="m01").update(revoked_at=found.now)
    Machine.objects.filter(resource_name="m09").update(warnings=["Not detectable."])
    found.later(0.1)
    found.say("m00", factories.listing(resources=("m25",), not_before=found.now + timedelta(minutes=9)))
    return found


def named(body: str) -> list[str]:
    """The machines of the table of a page."""
    table = body.partition('id="agents-title"')[2].partition("</table>")[0]
    return re.findall(r'<th scope="row"><a href="/machines/\d+/">(.*?)</a>', table)


def walked(client: Client, address: str) -> list[list[str]]:
    pages = []
    while address:
        body = client.get(address).content.decode()
        pages.append(named(body))
        following = re.search(r'href="(\?[^"]*cursor=[^"]*)" rel="next"', body)
        address = f"{address.partition('?')[0]}{following[1].replace('&amp;', '&')}" if following else ""
    return pages


def test_machines_that_need_attention_come_first_and_none_is_omitted(fleet: factories.Fleet, viewer: Client) -> None:
    pages = walked(viewer, f"/sets/{factories.the_set('web').pk}/")
    assert [len(page) for page in pages] == [10, 10, 10]
    whole = [name for page in pages for name in page]
    needy = ["m07", "m08", "m09", "m25"]
    assert whole == [*needy, *(f"m{n:02}" for n in range(MANY) if n != 1 and f"m{n:02}" not in needy), "m01"]


@pytest.fixture
def viewer(db: None) -> Client:
    return logged_in(factories.viewer())


def test_the_page_tells_the_others_in_numbers(fleet: factories.Fleet, viewer: Client) -> None:
    said = text_of(viewer.get(f"/sets/{factories.the_set('web').pk}/"))
    assert "30 machines: those that need action first" in said
    assert "No recent report: m07." in said
    assert "Enrolled, but without a report so far: m08." in said
    # By domain: 13 of those with an odd number are live, 14 of those with an even one.
    assert re.search(r"Fault domain 0 14 live", said.replace("  ", " ")), said
    front = viewer.get("/").content.decode()
    assert front.count('class="mini-machine') == 0


def test_paging_through_a_growing_set_repeats_no_machine(fleet: factories.Fleet, viewer: Client) -> None:
    home = factories.the_set("web")
    first = set_summaries.page(set_id=home.pk, hit=(), now=fleet.now, size=10)
    for name in ("a00", "m05b", "z99"):
        new = Machine.objects.create(vm_id=name, resource_name=name, availability_set=home, enrolled_at=fleet.now)
        PresenceRow.objects.create(machine=new, last_heard_at=fleet.now, last_poll_at=fleet.now)
    rows, cursor = [], first.next
    while cursor:
        page = set_summaries.page(set_id=home.pk, hit=(), now=fleet.now, cursor=cursor, size=10)
        rows += [row.resource_name for row in page.results]
        cursor = page.next
    before = [row.resource_name for row in first.results]
    assert len({*before, *rows}) == len(before) + len(rows)
    assert "z99" in rows
    assert viewer.get(f"/sets/{home.pk}/?cursor=made-up").status_code == 302


def test_the_api_keeps_its_shape_and_says_how_many_are_left_out(fleet: factories.Fleet) -> None:
    reader, home = caller(factories.viewer()), factories.the_set("web")
    found = reader.get(f"sets/{home.pk}/").json()
    assert [machine["resource_name"] for machine in found["machines"]] == [f"m{n:02}" for n in range(10)]
    assert (found["omitted"], found["presence"]) == (20, {"live": 27, "late": 0, "silent": 1, "gone": 1, "expected": 1})
    assert found["warnings"] == [
        "No recent report: m07.",
        "Enrolled, but without a report so far: m08.",
        "m09: Not detectable.",
    ]
    (listed,) = reader.get("sets/").json()["results"]
    assert listed == found | {"server_time": listed["server_time"], "open_events": listed["open_events"]}
    names, address = [], f"machines/?set={home.pk}&page_size=7"
    while address:
        body = reader.get(address).json()
        names += [row["resource_name"] for row in body["results"]]
        address = (body["next"] or "").partition("/api/v1/")[2]
    assert len(set(names)) == len(names) == MANY


def test_it_costs_the_same_however_many_there_are(fleet: factories.Fleet) -> None:
    home = factories.the_set("web")

    def asked() -> list[str]:
        with CaptureQueriesContext(connection) as caught:
            assert sets.detail(set_id=home.pk, now=fleet.now) is not None
            set_summaries.page(set_id=home.pk, hit=(), now=fleet.now)
        return [one["sql"] for one in caught.captured_queries]

    before = asked()
    Machine.objects.bulk_create(
        Machine(vm_id=f"more-{n}", resource_name=f"n{n}", availability_set=home, enrolled_at=fleet.now)
        for n in range(100)
    )
    assert len(asked()) <= len(before)


def test_what_a_large_set_says_is_what_a_small_one_would(
    fleet: factories.Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = factories.the_set("web")
    Machine.objects.filter(resource_name="m12").update(resource_name="M13")
    large = sets.detail(set_id=home.pk, now=fleet.now, most=10)
    whole = sets.detail(set_id=home.pk, now=fleet.now, most=MANY)
    assert (large.set.omitted, whole.set.omitted) == (20, 0)
    assert large.set.presence == whole.set.presence
    assert {w.code for w in large.set.warnings} == {w.code for w in whole.set.warnings}
    assert "set-name-twice" in {warning.code for warning in large.set.warnings}
    assert large.set.grid.update_domains == whole.set.grid.update_domains


# A silent machine may leave thousands of events open: lists and pages show the first of its set, and count the others.

OPEN = 60


@pytest.fixture
def flooded(db: None, monkeypatch: pytest.MonkeyPatch) -> factories.Fleet:
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
        for number in range(1, OPEN)
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


def test_lists_of_sets_have_the_first_twenty_and_the_number(flooded: factories.Fleet, loaded: list[str]) -> None:
    reader = caller(factories.viewer())
    quiet, flooded = reader.get("sets/").json()["results"]
    assert [event["event_id"] for event in flooded["open_events"]] == ids(*range(59, 39, -1))
    assert (flooded["open_event_count"], quiet["open_event_count"]) == (OPEN, 1)
    assert len(quiet["open_events"]) == 1
    assert len(loaded) <= 20 + 1 + 1
    (short,) = reader.get("sets/?machines=false&q=web").json()["results"]
    assert short["open_events"][0]["event_id"] == flooded["open_events"][0]["event_id"]
    assert short["open_event_count"] == OPEN


def test_one_set_has_more_of_them_and_its_page_leads_to_all(flooded: factories.Fleet, loaded: list[str]) -> None:
    home = factories.the_set("web")
    found = caller(factories.viewer()).get(f"sets/{home.pk}/").json()
    assert [event["event_id"] for event in found["open_events"]] == ids(*range(59, 34, -1))
    assert found["open_event_count"] == OPEN
    assert len(loaded) <= 25 + 1
    client = logged_in(factories.operator())
    body = client.get(f"/sets/{home.pk}/").content.decode()
    assert body.count('class="row-card') == 25
    assert f'?set={home.pk}&amp;status=SCHEDULED&amp;status=STARTED">60\n      open events</a>' in body
    rows = client.get("/sets/").content.decode()
    assert rows.count('class="in-cell"') == 2 + 1 + 1 and "58 more</a>" in rows


def test_a_machine_has_the_first_that_name_it_and_the_first_others(flooded: factories.Fleet, loaded: list[str]) -> None:
    machine = flooded.agents["vm1"].machine
    found = caller(factories.viewer()).get(f"machines/{machine.pk}/").json()
    assert [event["event_id"] for event in found["hit_by"]] == ids(*range(59, 45, -2))
    assert [event["event_id"] for event in found["other_events"]] == ids(*range(58, 44, -2))
    assert (found["hit_by_count"], found["other_event_count"]) == (30, 30)
    assert len(loaded) <= 2 * (7 + 1)
    body = logged_in(factories.operator()).get(f"/machines/{machine.pk}/").content.decode()
    assert body.count("affects this machine") == body.count("affects other machines") == 7
    assert ">46 more open events</a>" in body


def test_an_event_names_the_first_others_of_its_set(flooded: factories.Fleet) -> None:
    (event_id,) = ids(0)
    found = caller(factories.viewer()).get(f"events/{event_id}/").json()
    assert (len(found["other_open"]), found["other_open_count"]) == (9, OPEN - 1)
    body = logged_in(factories.operator()).get(f"/events/{event_id}/").content.decode()
    assert ">55\n          more</a>" in body


def test_the_grid_shows_the_soonest_event_of_each_machine(flooded: factories.Fleet) -> None:
    found = sets.detail(set_id=factories.the_set("web").pk, now=flooded.now)
    assert found is not None
    hits = {
        item.machine.resource_name: item.hit_by[0].event_id
        for row in found.set.grid.rows
        for cell in row.cells
        for item in cell
        if item.hit_by
    }
    assert hits == dict(zip(("vm1", "vm2"), ids(59, 58), strict=True))
