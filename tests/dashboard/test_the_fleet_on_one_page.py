"""Fleet map: each set and cache in the colour and shape of its worst known state, for four sets and for thousands."""

import csv
import gzip
import io
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from fleet.dashboard.tags import service_url
from fleet.domain.caches.maintenances import ASSUMED
from fleet.domain.desk import CacheState, StateFacts, WorstState, worst_state_of_cache, worst_state_of_set
from fleet.models import AvailabilitySet, InventoryMachine, Machine, ScheduledEvent
from fleet.models.intake import PresenceRow
from fleet.projections.desk.fleet_map import MapFilter, fleet_map
from fleet.projections.desk.service import Impact, impact_of_event, impact_of_maintenance
from tests import factories
from tests.caches.walking import Listeners, line
from tests.dashboard.conftest import codes, marks, text_of
from tests.dashboard.test_pages_keep_the_policy import Outline
from tests.factories import seconds
from tests.plans import queries


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
    """The titles of sets and caches by where they lead."""
    body = client.get(f"/fleet/{query}").content.decode()
    return dict(re.findall(r'<a[^>]* href="?(/(?:sets|caches)/\d+/)[^>]* title="([^"]*)">', body))


LEVELS = {(12, 126, 600): "map-cards", (3, 126, 600): "map-names", (3, 3, 600): "map-cells", (3, 3, 3): "map-heat"}


def test_the_more_sets_the_less_each_shows(
    listeners: Listeners, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limits, level in LEVELS.items():
        for name, limit in zip(("FEW", "PLACES", "ROOM"), limits, strict=True):
            monkeypatch.setattr(f"fleet.dashboard.fleet_map.{name}", limit)
        answer = viewer.get("/fleet/")
        body = answer.content.decode()
        assert [one for one in LEVELS.values() if re.search(rf'class="[^"]*\b{one}\b', body)] == [level]
        assert (">web</a>" in body) is (level == "map-cards")
        assert (">web</span></a>" in body) is (level == "map-names")
        assert len(cells(viewer)) == (0 if level == "map-heat" else 4)
        # What is in trouble comes first.
        groups = [key for key in marks(answer, "data-key") if key.startswith("group-")]
        assert groups == (["group-shop", "group-post", "group-"] if level in ("map-names", "map-cells") else [])


def test_few_sets_show_their_numbers_and_next_event(listeners: Listeners, viewer: Client) -> None:
    due, later = (listeners.now + timedelta(minutes=minutes) for minutes in (15, 120))
    listeners.all_say(
        factories.listing("0A1B2C3D-0000-4000-8000-000000000002", event_type="Freeze", not_before=later),
        factories.listing(event_type="Reboot", not_before=due),
        names=["vm1", "vm2"],
    )
    body = viewer.get("/fleet/").content.decode()
    card = re.sub(r"\s+", " ", body.split(">web</a></h2>")[1].partition("</li>")[0])
    assert "<strong>Reboot</strong>" in card and 'data-state="decide"' in card
    assert f'data-countdown="{due:%Y-%m-%dT%H:%M:%S}' in card
    assert "2 live" in card and "2 to decide" in card
    assert "No open event" in body.split(">quiet</a></h2>")[1].partition("</li>")[0]


def test_a_heat_map_has_a_tile_for_each_group_and_zooms(
    listeners: Listeners, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FEW", "PLACES", "ROOM"):
        monkeypatch.setattr(f"fleet.dashboard.fleet_map.{name}", 1)

    def tiles(query: str = "") -> dict[str, str]:
        body = viewer.get(f"/fleet/{query}").content.decode()
        return dict(re.findall(r'<a class=g-(\S+) href="(\?[^"]*)"', body))

    assert tiles() == {"decide": "?service=shop", "unwatched": "?service=post", "live": "?service=-"}
    assert tiles("?by=region")["unwatched"] == "?region=northeurope"
    # What lies in one service is divided by region; a cache has none.
    assert set(tiles("?service=shop")) == {"decide", "live"}
    assert set(cells(viewer, "?service=shop&region=-")) == set(cells(viewer, "?kind=cache")) != set()
    assert tiles("?service=-") == {} and set(cells(viewer, "?service=-")) == set(cells(viewer, "?state=live")) != set()
    # One square for each set, one disc for each cache.
    shop = viewer.get("/fleet/").content.decode().partition("?service=shop")[2].partition("</a>")[0]
    assert 'd="M0 3h5"/><g><path class=g-live d="M0 9h5"/></g>' in shop


def test_each_set_is_a_cell_with_its_state_and_counts_add_up(listeners: Listeners, viewer: Client) -> None:
    ids = {row.name: row.pk for row in AvailabilitySet.objects.all()}
    cache = listeners.agents["vm1"].machine.coverage.get().cache_id
    leads = {f"/sets/{ids[name]}/" for name in ("web", "mail", "quiet")} | {f"/caches/{cache}/"}
    assert set(cells(viewer)) == leads
    found = fleet_map(now=datetime.now(UTC))
    assert {cell.name: cell.state for cell in (*found.cells, *found.caches)} == {
        "web": WorstState.DECIDE, "mail": WorstState.UNWATCHED, "quiet": WorstState.LIVE, "orders": CacheState.LIVE
    }  # fmt: skip
    now = datetime.now(UTC)
    whole = fleet_map(now=now)
    assert sum(count for _, count in whole.counts) == len(whole.sets) == whole.total == 3
    assert whole.cache_counts == ((CacheState.LIVE, 1),)
    # Each chip leads to as many as it counts.
    for state, count in whole.counts:
        found = fleet_map(now=now, chosen=MapFilter(state=state.value))
        assert (len(found.sets), len(found.caches)) == (count, 0)
    (group,) = (one for one in whole.grouped() if one.name == "shop")
    assert (group.set_counts, group.cache_counts) == (((WorstState.DECIDE, 1),), ((CacheState.LIVE, 1),))
    said = text_of(viewer.get("/fleet/"))
    assert "3 sets Decision needed: 1 No live agent: 1 All agents live: 1" in said
    assert "1 cache Monitored: 1" in said


def test_a_decision_without_a_live_agent_is_the_worst(listeners: Listeners, viewer: Client) -> None:
    PresenceRow.objects.update(last_heard_at=listeners.now - timedelta(minutes=2))
    assert list(cells(viewer, "?state=decide_unwatched").values()) == [
        "web: decision needed, no live agent; 0 of 2 agents live"
    ]
    assert fleet_map(now=datetime.now(UTC)).grouped()[0].state is WorstState.DECIDE_UNWATCHED


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
    "state=live": {"quiet"},
    "state=live&kind=cache": {"orders"},
    "kind=cache": {"orders"},
    "service=-": {"quiet"},
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
    assert [to for to in cells(viewer, "?kind=cache&state=started") if to.startswith("/caches/")]


def test_the_worst_counts() -> None:
    assert worst_state_of_set(StateFacts()) is WorstState.EMPTY
    assert worst_state_of_set(StateFacts(live=2)) is WorstState.LIVE
    assert worst_state_of_set(StateFacts(live=2, late=1)) is WorstState.LATE
    assert worst_state_of_set(StateFacts(live=2, late=1, without_agent=1)) is WorstState.PARTLY
    assert worst_state_of_set(StateFacts(live=2, silent=1, scheduled=1)) is WorstState.SCHEDULED
    assert worst_state_of_set(StateFacts(live=2, scheduled=1, started=1)) is WorstState.STARTED
    assert worst_state_of_set(StateFacts(late=2, started=1)) is WorstState.UNWATCHED
    assert worst_state_of_set(StateFacts(without_agent=1)) is WorstState.UNWATCHED
    assert worst_state_of_set(StateFacts(silent=3, undecided=1)) is WorstState.DECIDE_UNWATCHED
    assert worst_state_of_set(StateFacts(live=1, silent=2, undecided=1)) is WorstState.DECIDE
    told = {"announced": 1, "under_way": 0, "unsupported": 0}
    assert worst_state_of_cache(**told, listening=0) is CacheState.UNWATCHED
    assert worst_state_of_cache(**told, listening=1) is CacheState.SCHEDULED
    assert worst_state_of_cache(announced=0, under_way=0, listening=0, unsupported=1) is CacheState.EMPTY


def test_unwatched_set_is_never_green(listeners: Listeners, viewer: Client) -> None:
    home = AvailabilitySet.objects.get(name="quiet")
    InventoryMachine.objects.create(name="lone2", availability_set=home, imported_at=listeners.now)
    assert f"/sets/{home.pk}/" in cells(viewer, "?state=partly")
    PresenceRow.objects.update(last_heard_at=listeners.now - timedelta(minutes=2))
    assert WorstState.LIVE not in dict(fleet_map(now=datetime.now(UTC)).counts)


def many_sets(count: int, services: int, *, now: datetime) -> None:
    """Create this many sets of two live machines each; every 25th has an event that needs a decision."""
    rows = AvailabilitySet.objects.bulk_create(
        AvailabilitySet(
            key=f"{number}",
            kind="availability_set",
            name=f"shop-web-{number:05}",
            subscription=f"1111-{number % 40}",
            resource_group=f"rg-{number % 400}",
            service=f"service-{number % services}",
            created_at=now,
        )
        for number in range(count)
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
    few = len(queries(viewer.get, "/fleet/"))
    many_sets(5000, 120, now=now)
    assert len(queries(viewer.get, "/fleet/")) == few
    answer = viewer.get("/fleet/", headers={"Accept-Encoding": "gzip"})
    assert len(answer.content) < 50_000
    body = gzip.decompress(answer.content).decode()
    assert len(body) < 150_000
    # A tile for each service, and in it a square for each set.
    tiles = re.findall(r'href="[?]service=(service-[0-9]+)"[^>]*>(.*?)</a>', body)
    assert len({name for name, _ in tiles}) == len(tiles) == 120
    assert sum((int(length) + 1) // 6 for _, tile in tiles for length in re.findall(r"h(\d+)", tile)) == 5000
    # A service alone shows its sets, with their names.
    alone = viewer.get("/fleet/?service=service-0").content.decode()
    assert alone.count("<a href=/sets/") == 42
    # The table goes by the hundred.
    assert viewer.get("/fleet/?as=table&page=2").content.count(b'data-key="set-') == 100
    assert fleet_map(now=now, chosen=MapFilter(q="shop-web-0499")).size == 10


# Service page: it shows sets and caches, and marks where an event and a maintenance may coincide.


@pytest.fixture
def shop(db: None) -> Listeners:
    walker = Listeners(now=datetime.now(UTC) - timedelta(minutes=20))
    for number in (1, 2):
        walker.enrol(f"vm{number}", **service("shop"))
    walker.enrol("other1", availability_set="other", **service("post"))
    walker.cover("vm1", "subscribed")
    return walker


def scheduled(walker: Listeners, *, ahead: float) -> str:
    start = (walker.now + seconds(ahead)).strftime("%Y-%m-%dT%H:%M:%S")
    return line("NodeMaintenanceScheduled") + f"|StartTimeInUTC|{start}"


def test_what_may_meet_is_said_and_marked(shop: Listeners, viewer: Client) -> None:
    shop.later(1200)
    shop.heard()
    factories.announced(shop, resources=("vm1",), not_before=shop.now + seconds(600))
    shop.hear("vm1", scheduled(shop, ahead=840))
    assert "service-meeting" not in codes(viewer.get("/services/shop/"))
    # A Freeze of five seconds is over before the node may go; a Reboot of unknown duration may not be.
    shop.all_say(
        factories.listing(
            "0A1B2C3D-0000-4000-8000-000000000001",
            event_type="Reboot",
            resources=("vm2",),
            not_before=shop.now + seconds(600),
            DurationInSeconds=-1,
        ),
        names=["vm1", "vm2"],
    )
    answer = viewer.get("/services/shop/")
    assert codes(answer).count("service-meeting") == 1
    picture = answer.content.decode().split("<svg viewBox")[1].split("</svg>")[0]
    assert picture.count('class="lane-band"') == 1
    assert "is-maybe" in picture
    assert ">web<" in re.sub(r"\s+", "", picture)
    assert ">orders<" in re.sub(r"\s+", "", picture)


def test_what_met_stays_in_the_picture(shop: Listeners, viewer: Client) -> None:
    names = ["vm1", "vm2"]
    shop.hear("vm1", line("NodeMaintenanceStart"))
    shop.later(60)
    shop.all_say(factories.listing(status="Started", resources=("vm1",)), names=names)
    shop.later(60)
    shop.hear("vm1", line("NodeMaintenanceEnded"))
    shop.later(60)
    shop.all_say(names=names)
    assert codes(viewer.get("/services/SHOP/")).count("service-meeting") == 1
    # Another service's page tells nothing of it.
    assert "service-meeting" not in codes(viewer.get("/services/post/"))
    file = b"".join(viewer.get("/services/shop/?as=csv").streaming_content).decode()
    assert {line.split(",")[1] for line in file.splitlines()[1:]} >= {"web", "orders"}


def test_when_they_have_an_impact() -> None:
    now = factories.NOW
    event: Any = SimpleNamespace(
        open=True, not_before=now + seconds(60), started_at=None, ended_at=None, duration_seconds=-1
    )
    assert impact_of_event(event, now=now) == Impact(now + seconds(60), now + seconds(60) + ASSUMED, sure=False)
    event.open = False
    assert impact_of_event(event, now=now) is None
    row: Any = SimpleNamespace(
        status="UNDER_WAY", active=True, earliest_at=None, began_at=now - seconds(60), ended_at=None
    )
    assert impact_of_maintenance(row, now=now) == Impact(now - seconds(60), now - seconds(60) + ASSUMED, sure=True)


def test_whatever_a_service_is_called_it_has_a_page(db: None, viewer: Client) -> None:
    names = ('"><script>alert(1)</script>', "a/b", "..", "ünï côde?&x=1", "100%", "trailing/")
    for name in names:
        AvailabilitySet.objects.create(
            key=name, kind="standalone", name="one", service=name, created_at=datetime.now(UTC)
        )
    page = viewer.get("/fleet/").content.decode()
    for name in names:
        assert f'href="{service_url(name).replace("&", "&amp;")}"' in page
        body = viewer.get(service_url(name)).content.decode()
        assert "<h1" in body and "<script>alert" not in body and Outline(body).inline == [], name
        # Each part that keeps itself new is found under its own address.
        for attrs in (attrs for _, attrs in Outline(body).tags if attrs.get("data-live") is not None):
            part = viewer.get(str(attrs["hx-get"]), headers={"HX-Request": "true"})
            assert f'id="{attrs["id"]}"' in part.content.decode(), name


def test_unknown_service_is_404(viewer: Client) -> None:
    assert viewer.get("/services/nobody/").status_code == 404
    assert viewer.get(reverse("service")).status_code == 404
