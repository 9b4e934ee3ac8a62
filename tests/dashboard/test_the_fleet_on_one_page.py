"""Fleet map: each set and cache is a cell in the colour and shape of its worst known state, grouped by service."""

import csv
import gzip
import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from fleet.dashboard import fleet_map as fleet_map_page
from fleet.domain.desk import StateFacts, WorstState, worst_state_of_cache, worst_state_of_set
from fleet.models import AvailabilitySet, InventoryMachine, Machine, ScheduledEvent
from fleet.models.intake import PresenceRow
from fleet.projections.desk.fleet_map import MapFilter, fleet_map
from tests import factories
from tests.caches.walking import Listeners, line
from tests.dashboard.conftest import marks
from tests.dashboard.test_pages_keep_the_policy import Outline


def service(name: str, **compute: Any) -> dict[str, Any]:
    return {"tagsList": [{"name": "drydock:service", "value": name}], **compute}


@pytest.fixture
def listeners(db: None) -> Listeners:
    """Build three sets and a cache of the service shop.

    Set `web` of shop has an undecided Reboot, `mail` of post is silent, and `quiet` has no service and is live.
    """
    walker = Listeners(now=datetime.now(UTC))
    for number in (1, 2):
        walker.enrol(f"vm{number}", **service("shop"))
    walker.enrol("mail1", availability_set="mail", heard=False, **service("post", location="northeurope"))
    walker.enrol("lone", availability_set="scale_set:quiet", resourceGroupName="attic", subscriptionId="2222")
    walker.later(0.1)
    due = walker.now + timedelta(minutes=15)
    walker.all_say(factories.listing(event_type="Reboot", not_before=due), names=["vm1", "vm2"])
    walker.cover("vm1", "subscribed")
    return walker


def cells(client: Client, query: str = "") -> dict[str, str]:
    """The titles of the cells by where they lead."""
    body = client.get(f"/fleet/{query}").content.decode()
    maps = "".join(re.findall(r'<div class="map[" ].*?</div>', body, re.DOTALL))
    return dict(re.findall(r'<a href=(\S+)[^>]* title="([^"]*)">', maps))


def test_few_cells_carry_their_names_and_many_do_not(
    listeners: Listeners, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/fleet/", "/services/shop/"):
        body = viewer.get(path).content.decode()
        assert 'class="map map-named"' in body
        assert ">web</span></a>" in body and ">orders</span></a>" in body
    monkeypatch.setattr("fleet.dashboard.fleet_map.NAMED", 3)
    body = viewer.get("/fleet/").content.decode()
    assert 'class="map"' in body
    assert ">web</span></a>" not in body


def test_each_set_is_a_cell_with_its_state(listeners: Listeners, viewer: Client) -> None:
    ids = {row.name: row.pk for row in AvailabilitySet.objects.all()}
    cache = listeners.agents["vm1"].machine.coverage.get().cache_id
    leads = {f"/sets/{ids[name]}/" for name in ("web", "mail", "quiet")} | {f"/caches/{cache}/"}
    assert set(cells(viewer)) == leads
    found = fleet_map(now=datetime.now(UTC))
    glances = {row.name: row.glance for group in found.groups for row in (*group.sets, *group.caches)}
    assert glances == {
        "web": WorstState.DECIDE, "mail": WorstState.UNWATCHED, "quiet": WorstState.LIVE, "orders": WorstState.LIVE
    }  # fmt: skip
    # What is in trouble stands first.
    page = viewer.get("/fleet/")
    assert [key for key in marks(page, "data-key") if key.startswith("service-")] == [
        "service-shop", "service-post", "service-"
    ]  # fmt: skip


FILTERS: dict[str, set[str]] = {
    "service=SHOP": {"web", "orders"},
    "resource_group=attic": {"quiet"},
    "subscription=2222": {"quiet"},
    "region=northeurope": {"mail"},
    "presence=live": {"web", "quiet"},
    "presence=expected": {"mail"},
    "type=reboot": {"web"},
    "kind=scale_set": {"quiet"},
    "state=unwatched": {"mail"},
    "state=live": {"quiet", "orders"},
    "q=UIE": {"quiet"},
    "q=nobody": set(),
    "service=shop&type=Freeze": set(),
}


def test_filters_are_part_of_the_address(listeners: Listeners, viewer: Client) -> None:
    for query, shown in FILTERS.items():
        titles = {title.removeprefix("cache ").partition(":")[0] for title in cells(viewer, f"?{query}").values()}
        assert titles == shown, query
        body = viewer.get(f"/fleet/?{query}").content.decode()
        assert f'hx-get="/fleet/?{query.replace("&", "&amp;")}&amp;part=map"' in body
        # The other two forms have the same filter.
        rows = viewer.get(f"/fleet/?{query}&as=table").content.decode()
        named = set(re.findall(r'<th scope="row"><a href="/sets/\d+/">(.*?)</a>', rows))
        assert named == shown - {"orders"}, query
        file = b"".join(viewer.get(f"/fleet/export.csv?{query}").streaming_content).decode()
        assert {row["set"] for row in csv.DictReader(io.StringIO(file))} == shown - {"orders"}, query


def test_a_cache_under_maintenance_is_seen_among_its_service(listeners: Listeners, viewer: Client) -> None:
    listeners.hear("vm1", line("NodeMaintenanceStart"))
    assert [to for to in cells(viewer, "?service=shop&state=started") if to.startswith("/caches/")]


def test_the_worst_counts() -> None:
    assert worst_state_of_set(StateFacts()) is WorstState.EMPTY
    assert worst_state_of_set(StateFacts(live=2)) is WorstState.LIVE
    assert worst_state_of_set(StateFacts(live=2, late=1)) is WorstState.LATE
    assert worst_state_of_set(StateFacts(live=2, late=1, without_agent=1)) is WorstState.PARTLY
    assert worst_state_of_set(StateFacts(live=2, silent=1, scheduled=1)) is WorstState.SCHEDULED
    assert worst_state_of_set(StateFacts(live=2, scheduled=1, started=1)) is WorstState.STARTED
    assert worst_state_of_set(StateFacts(late=2, started=1)) is WorstState.UNWATCHED
    assert worst_state_of_set(StateFacts(without_agent=1)) is WorstState.UNWATCHED
    assert worst_state_of_set(StateFacts(silent=3, undecided=1)) is WorstState.DECIDE
    told = {"announced": 1, "under_way": 0, "unsupported": 0}
    assert worst_state_of_cache(**told, listening=0) is WorstState.UNWATCHED
    assert worst_state_of_cache(**told, listening=1) is WorstState.SCHEDULED
    assert worst_state_of_cache(announced=0, under_way=0, listening=0, unsupported=1) is WorstState.EMPTY


def test_unwatched_set_is_never_green(listeners: Listeners, viewer: Client) -> None:
    home = AvailabilitySet.objects.get(name="quiet")
    InventoryMachine.objects.create(name="lone2", availability_set=home, imported_at=listeners.now)
    assert f"/sets/{home.pk}/" in cells(viewer, "?state=partly")
    PresenceRow.objects.update(last_heard_at=listeners.now - timedelta(minutes=2))
    assert not {glance for glance, _ in fleet_map(now=datetime.now(UTC)).counts} & {WorstState.LIVE}


def test_a_hostile_name_is_text(db: None, viewer: Client) -> None:
    hostile = '"><script>alert(1)</script>'
    AvailabilitySet.objects.create(
        key="k", kind="standalone", name=hostile, service=hostile, created_at=datetime.now(UTC)
    )
    for query in ("", "?as=table", f"?service={hostile}"):
        body = viewer.get(f"/fleet/{query}").content.decode()
        assert "<script>alert" not in body
        assert Outline(body).inline == []
    file = b"".join(viewer.get("/fleet/export.csv").streaming_content).decode()
    assert "'" not in file.splitlines()[0]


def five_thousand(now: datetime) -> None:
    rows = AvailabilitySet.objects.bulk_create(
        AvailabilitySet(
            key=f"{number}",
            kind="availability_set",
            name=f"shop-web-{number:05}",
            subscription=f"1111-{number % 40}",
            resource_group=f"rg-{number % 400}",
            service=f"service-{number % 120}",
            created_at=now,
        )
        for number in range(5000)
    )
    machines = Machine.objects.bulk_create(
        Machine(vm_id=f"{row.pk}-{k}", resource_name=f"vm{row.pk}-{k}", availability_set=row, enrolled_at=now)
        for row in rows
        for k in range(2)
    )
    PresenceRow.objects.bulk_create(
        PresenceRow(machine=machine, last_heard_at=now, last_poll_at=now) for machine in machines
    )
    ScheduledEvent.objects.bulk_create(
        ScheduledEvent(event_id=f"E{row.pk}", availability_set=row, created_at=now, first_seen_at=now, resources=["x"])
        for row in rows[::25]
    )


@pytest.mark.long
def test_five_thousand_sets_are_one_small_page(viewer: Client) -> None:
    now = datetime.now(UTC)
    viewer.get("/fleet/")
    with CaptureQueriesContext(connection) as few:
        viewer.get("/fleet/")
    five_thousand(now)
    with CaptureQueriesContext(connection) as many:
        answer = viewer.get("/fleet/", headers={"Accept-Encoding": "gzip"})
    assert len(many) == len(few)
    assert len(answer.content) < 50_000
    body = gzip.decompress(answer.content).decode()
    assert len(body) < 150_000
    # Whole services as long as there is room, and a cell for each of the others.
    assert 400 < body.count("<a href=/sets/") <= fleet_map_page.ROOM
    shown = re.findall(r'data-key="service-(service-[0-9]+)"', body)
    others = re.findall(r'class="service[^"]*" href="[?]service=(service-[0-9]+)"', body)
    assert len(shown) + len(others) == len({*shown, *others}) == 120
    # The worst sets of the one that is asked for, and the rest in the table.
    alone = viewer.get("/fleet/?service=service-0").content.decode()
    assert alone.count("<a href=/sets/") == 42
    # The table goes by the hundred.
    assert viewer.get("/fleet/?as=table&page=2").content.count(b'data-key="set-') == 100
    assert fleet_map(now=now, chosen=MapFilter(q="shop-web-0499")).shown == 10
