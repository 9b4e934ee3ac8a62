"""Time charts: they draw gaps without observation, accept any requested window, and render any size."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.dashboard.lanes.picture import MOST_ITEMS, Bar, Interval, Row, Scale, draw
from fleet.dashboard.lanes.timeline import chosen_window
from fleet.models import AvailabilitySet, ScheduledEvent
from fleet.projections.caches.coverage import Span
from fleet.projections.spans import SILENCE, unwatched
from tests.caches.walking import Listeners, line, the_cache
from tests.factories import NOW, listing, seconds

HOUR = timedelta(hours=1)


def eid(number: int) -> str:
    return f"0A1B2C3D-0000-4000-8000-{number:012d}"


def picture(client: Client, address: str) -> str:
    body = client.get(address).content.decode()
    return body.split("<svg viewBox")[1].split("</svg>")[0]


def titles(svg: str) -> list[str]:
    return re.findall(r"<title>([^<]*)</title>", svg)


@pytest.fixture
def fleet(db: None) -> Listeners:
    """Build set `web` of the service shop, three hours old.

    It has a whole Reboot, a Redeploy that ran when it was first seen, and an announced Freeze. No agent watched in
    between.
    """
    walker = Listeners(now=datetime.now(UTC) - 3 * HOUR)
    walker.enrol_set(2)
    AvailabilitySet.objects.update(service="shop")
    walker.later(60)
    whole = listing(eid(1), event_type="Reboot", resources=["vm1"], not_before=walker.now + seconds(300))
    walker.all_say(whole)
    walker.later(300)
    walker.all_say({**whole, "EventStatus": "Started", "NotBefore": ""})
    walker.later(300)
    walker.all_say()
    walker.later(3600)
    walker.all_say(listing(eid(2), event_type="Redeploy", status="Started", resources=["vm2"]))
    walker.later(300)
    walker.all_say()
    walker.now = datetime.now(UTC)
    walker.all_say(listing(eid(3), event_type="Freeze", resources=["vm1"], not_before=walker.now + seconds(600)))
    return walker


def test_a_set_has_a_lane_for_each_machine(fleet: Listeners, viewer: Client) -> None:
    home = fleet.agents["vm1"].machine.availability_set_id
    svg = picture(viewer, f"/sets/{home}/")
    # It is unknown whether the Freeze starts.
    assert [title.split(" of ")[0].split(": ")[1] for title in titles(svg) if " of vm" in title].count("Reboot") == 2
    assert svg.count("is-maybe") == 1
    # The Redeploy ran when it was first seen: its edge is torn.
    assert svg.count("<path class=") == 1
    # Every bar is a link.
    bars = re.findall(r'<(?:rect|path) class="tone-fill', svg)
    assert len(bars) == svg.count('<a href="/events/') == 5
    # Two silences were longer than usual; before the first machine enrolled, the chart claims no gap.
    assert svg.count('class="lane-gap"') == 2
    assert ">now</text>" in svg
    # A machine with reports is watched between them; for a machine that never reported, no gap is known.
    window = Span(fleet.now - 4 * HOUR, fleet.now)
    gaps = unwatched([(fleet.agents["vm1"].machine.pk, fleet.now)], window, now=fleet.now)
    assert len(gaps) == 2 and all(gap.seconds > SILENCE.total_seconds() for gap in gaps)
    assert unwatched([(0, None)], window, now=fleet.now) == ()


def test_fleet_service_set_machine_and_cache_have_one(fleet: Listeners, viewer: Client) -> None:
    fleet.cover("vm1", "subscribed")
    fleet.hear("vm1", line("NodeMaintenanceStart"))
    machine = fleet.agents["vm1"].machine
    for address, lanes in (
        ("/timeline/", ["shop", "orders"]),
        ("/services/shop/", ["web", "orders"]),
        (f"/sets/{machine.availability_set_id}/", ["vm1", "vm2", "orders"]),
        (f"/machines/{machine.pk}/", ["vm1", "others of the set", "orders"]),
        (f"/caches/{the_cache().pk}/", ["shard 0", "vm1"]),
    ):
        svg = picture(viewer, address)
        names = [name.replace("◆", "").strip() for name in re.findall(r'lane-name"[^>]*>([^<]*)<', svg)]
        assert names == lanes, address
        answer = viewer.get(address)
        file: Any = viewer.get(f"{address}?as=csv")
        rows = b"".join(file.streaming_content).decode().splitlines()
        assert rows[0] == "what,where,state,begin,until,address"
        # The table and the file say the same.
        table = answer.content.decode().split('data-key="as-table"')[1].split("</tbody>")[0]
        assert table.count("<tr data-key=") == len(rows) - 1 > 0, address


def test_what_is_shown_can_be_chosen(fleet: Listeners, viewer: Client) -> None:
    svg = picture(viewer, "/timeline/?show=Redeploy")
    assert "Redeploy" in svg
    assert "Freeze" not in svg
    assert 'aria-current="true">Redeploy</a>' in viewer.get("/timeline/?show=Redeploy").content.decode()
    begin = (fleet.now - 3 * HOUR).strftime("%Y-%m-%dT%H:%M:%SZ")
    end = (fleet.now - 2.5 * HOUR).strftime("%Y-%m-%dT%H:%M:%SZ")
    svg = picture(viewer, f"/timeline/?from={begin}&to={end}")
    assert "Reboot of vm1" in svg
    assert "Redeploy" not in svg
    assert "now</text>" not in svg
    part = (
        f'hx-get="/timeline/?from={begin.replace(":", "%3A")}&amp;to={end.replace(":", "%3A")}&amp;part=fleet_picture"'
    )
    assert part in viewer.get(f"/timeline/?from={begin}&to={end}").content.decode()


STRANGE_TIMES = (
    "from=nonsense&to=",
    "from=9999-12-31T23:59:59Z",
    "to=0001-01-01T00:00:00Z",
    "from=2100-01-01T00:00:00Z&to=1999-01-01T00:00:00Z",
    "from=2000-01-01&to=2099-12-31",
    "hours=-1",
    "hours=1e9",
    "show=%3Cscript%3E",
    "from=2026-03-02T14:00:00+01:00",
)


def test_no_time_breaks_a_picture(fleet: Listeners, viewer: Client) -> None:
    machine = fleet.agents["vm1"].machine.pk
    for query in STRANGE_TIMES:
        for address in ("/timeline/", "/services/shop/", f"/machines/{machine}/"):
            answer = viewer.get(f"{address}?{query}")
            assert answer.status_code == 200, query
            # Wherever its links lead there is an answer, too.
            ways = re.findall(r'class="btn btn-sm btn-outline-secondary" href="(\?[^"]*)"', answer.content.decode())
            assert len(ways) >= 4
            assert viewer.get(address + ways[3].replace("&amp;", "&")).status_code == 200, query


def test_the_links_lead_earlier_later_closer_and_farther() -> None:
    choice = chosen_window({"from": "2022-04-11T20:00:00Z", "to": "2022-04-11T22:00:00Z", "show": "Reboot"}, now=NOW)
    ways = {way.label: way.href for way in choice.ways}
    assert "from=2022-04-11T19%3A00%3A00.000Z&to=2022-04-11T21%3A00%3A00.000Z" in ways["Earlier"]
    assert "from=2022-04-11T20%3A30%3A00.000Z&to=2022-04-11T21%3A30%3A00.000Z" in ways["Zoom in"]
    assert ways["Now"] == "?show=Reboot"
    assert all("show=Reboot" in href for href in ways.values())
    # The chart draws nothing of a time before the first agent could have listened.
    assert chosen_window({}, now=NOW, since=NOW - HOUR).window.begin == NOW - HOUR - timedelta(minutes=1)


def test_a_thousand_events_are_a_bounded_picture(fleet: Listeners, viewer: Client) -> None:
    home = fleet.agents["vm1"].machine.availability_set
    now = datetime.now(UTC)
    ScheduledEvent.objects.bulk_create(
        ScheduledEvent(
            event_id=eid(1000 + number),
            availability_set=home,
            created_at=now,
            event_type="Reboot",
            resources=["vm1"],
            status="ENDED",
            first_seen_at=now - timedelta(minutes=170) + seconds(9 * number),
            started_at=now - timedelta(minutes=170) + seconds(9 * number + 5),
            ended_at=now - timedelta(minutes=169) + seconds(9 * number),
        )
        for number in range(1000)
    )
    svg = picture(viewer, "/timeline/")
    assert len(svg) < 20_000
    # One bar for many, in a pattern, which leads closer.
    assert "from=" in svg
    assert '<rect fill="url(#lanes-several)"' in svg


def test_what_overlaps_lies_below_each_other_and_too_much_is_one_bar() -> None:
    scale = Scale(NOW, NOW + HOUR)
    two = [
        Interval(NOW, NOW + HOUR / 2, "busy", "a", key="a"),
        Interval(NOW + HOUR / 4, NOW + HOUR, "busy", "b", key="b"),
    ]
    drawn = draw(scale, [Row("lane", two)], moments=[], summary="")
    first, second = drawn.lanes[0].bars
    assert second.y > first.y
    many = [
        Interval(NOW + seconds(number), NOW + HOUR, "busy" if number % 3 else "due", f"s{number % 3}", key=f"{number}")
        for number in range(MOST_ITEMS + 1)
    ]
    drawn = draw(scale, [Row("lane", many)], moments=[], summary="", zoom=lambda begin, end: "?closer")
    (bar,) = drawn.lanes[0].bars
    assert (bar.interval.count, bar.interval.href) == (MOST_ITEMS + 1, "?closer")
    # Its tone is that of none of its states; the title counts them.
    assert bar.interval.tone == "several"
    assert f"{MOST_ITEMS + 1} at once (21 s0, 20 s1, 20 s2)" in bar.title


def short(number: int, at: datetime) -> list[Interval]:
    """An event of six seconds: announced, then started."""
    key, half = f"event {number}", seconds(3)
    return [
        Interval(at, at + half, "due", "announced", key=key),
        Interval(at + half, at + 2 * half, "busy", "started", key=key),
    ]


def test_events_in_one_pixel_do_not_merge_their_states() -> None:
    scale = Scale(NOW, NOW + 24 * HOUR)

    def bars(count: int, apart: float = 1) -> list[Bar]:
        events = [part for number in range(count) for part in short(number, NOW + HOUR + seconds(apart * number))]
        return list(draw(scale, [Row("lane", events)], moments=[], summary="").lanes[0].bars)

    # Of one event both states are seen.
    announced, started = bars(1)
    assert (announced.interval.tone, started.interval.tone) == ("due", "busy")
    assert started.x >= announced.x + 3
    # A few lie below each other, also where only their drawn ends would touch.
    assert len({bar.y for bar in bars(4)}) == len({bar.y for bar in bars(4, apart=100)}) == 4
    # More are one bar with a number, which is wide enough for it, in a pattern and not in the tone of a state.
    (several,) = bars(23)
    assert (several.interval.count, several.interval.tone) == (23, "several")
    assert several.width >= 16 and "23 at once (23 started)" in several.title


def test_of_many_caches_those_under_maintenance_are_drawn(fleet: Listeners, viewer: Client) -> None:
    for number in range(30):
        fleet.cover("vm1", "subscribed", host=f"a{number:02}.redis.cache.windows.net")
    fleet.cover("vm1", "subscribed", host="zulu.redis.cache.windows.net")
    fleet.hear("vm1", line("NodeMaintenanceStart"), host="zulu.redis.cache.windows.net")
    for address in ("/timeline/", "/services/shop/"):
        svg = picture(viewer, address)
        assert "zulu" in svg
        assert svg.count('class="lane-name"') < 30
