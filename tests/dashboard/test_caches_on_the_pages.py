"""Cache pages: listening agents, current maintenance, each step with its meaning, and gaps without a listener."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from fleet.models import AvailabilitySet, Cache, Maintenance
from fleet.projections.caches import overview
from tests.caches.walking import HOST, Listeners, line, the_cache, the_maintenance
from tests.dashboard.conftest import codes, states, text_of
from tests.factories import seconds


@pytest.fixture
def listeners(db: None) -> Listeners:
    walker = Listeners(now=datetime.now(UTC) - timedelta(minutes=30))
    for name in ("vm1", "vm2", "vm3"):
        walker.enrol(name)
    return walker


def stated(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S")


def announced(walker: Listeners, *, host: str = HOST, replica: str = "False") -> None:
    """An announcement now, for 14 minutes from now."""
    raw = line("NodeMaintenanceScheduled", replica=replica) + f"|StartTimeInUTC|{stated(walker.now + seconds(840))}"
    walker.hear("vm1", raw, host=host)


def failed_over(walker: Listeners, *, host: str = HOST) -> None:
    """Announced twenty minutes ago, started, failed over, ended."""
    announced(walker, host=host)
    walker.later(827)
    walker.hear("vm1", line("NodeMaintenanceStart"), host=host)
    walker.hear("vm2", line("NodeMaintenanceStart"), host=host)
    walker.later(10)
    walker.hear("vm1", line("NodeMaintenanceFailover", port=15001), host=host)
    walker.later(172)
    walker.hear("vm1", line("NodeMaintenanceEnded", replica="True"), host=host)


def test_the_list_says_tier_nodes_listeners_and_what_is_under_way(listeners: Listeners, viewer: Client) -> None:
    listeners.cover("vm1", "subscribed", tier="standard")
    listeners.cover("vm2", "refused")
    failed_over(listeners)
    listeners.now = datetime.now(UTC)
    listeners.heard()
    announced(listeners, replica="True")
    shown = text_of(viewer.get("/caches/"))
    for expected in ("standard", "15000", "15001", "1 of 2"):
        assert expected in shown
    assert "ANNOUNCED" in states(viewer.get("/caches/"))
    listeners.cover("vm1", "lost", reason="closed by the server")
    page = viewer.get(f"/caches/{the_cache().pk}/")
    assert "lost" in states(page) and "closed by the server" in text_of(page)


def test_a_listener_whose_agent_is_silent_does_not_count(listeners: Listeners, viewer: Client) -> None:
    listeners.cover("vm1", "subscribed")
    detail = overview.detail(cache_id=the_cache().pk, now=datetime.now(UTC))
    assert detail is not None
    assert (detail.cache.listening, detail.cache.coverage[0].state) == (0, "silent")
    assert "silent" in states(viewer.get(f"/caches/{the_cache().pk}/"))


def test_cache_without_a_listener_is_a_blind_spot(listeners: Listeners, viewer: Client) -> None:
    listeners.now = datetime.now(UTC)
    listeners.heard()
    listeners.cover("vm1", "subscribed")
    assert "cache-unheard.reason" not in codes(viewer.get("/blind-spots/"))
    listeners.cover("vm1", "refused", reason="NOPERM")
    listeners.cover("vm2", "unsupported", host="new.westeurope.redis.azure.net")
    body = viewer.get("/blind-spots/")
    assert codes(body).count("cache-unheard.reason") == 2
    assert f"{HOST} (NOPERM)" in text_of(body) and "new.westeurope.redis.azure.net" in text_of(body)
    assert f'href="/caches/{the_cache().pk}/"' in body.content.decode()
    without = Cache.objects.get(host="new.westeurope.redis.azure.net")
    assert "unsupported" in states(viewer.get(f"/caches/{without.pk}/"))


def test_the_maintenance_page_tells_each_step_and_what_it_means(listeners: Listeners, viewer: Client) -> None:
    listeners.cover("vm1", "subscribed", tier="premium")
    failed_over(listeners)
    answer = viewer.get(f"/maintenances/{the_maintenance().pk}/")
    assert "NotificationType|NodeMaintenanceFailover|" in text_of(answer)
    assert codes(answer).count("notification-meaning") == 4
    picture = answer.content.decode().split("<svg viewBox")[1].split("</svg>")[0]
    for mark in ("Scheduled", "Start", "Failover complete", "Ended"):
        assert f">{mark}</text>" in picture


def test_there_is_nothing_to_approve(listeners: Listeners, operator: Client) -> None:
    announced(listeners)
    for address in ("/caches/", f"/caches/{the_cache().pk}/", f"/maintenances/{the_maintenance().pk}/"):
        body = operator.get(address).content.decode()
        assert "approve/" not in body
        assert not re.search(r"<button[^>]*>\s*Approve", body)


def test_times_without_a_listener_are_drawn_as_gaps(listeners: Listeners, viewer: Client) -> None:
    begin = listeners.now
    listeners.cover("vm1", "subscribed")
    listeners.cover("vm2", "subscribed")
    listeners.later(300)
    listeners.cover("vm1", "lost")
    listeners.later(60)
    listeners.cover("vm2", "lost")
    listeners.later(120)
    listeners.cover("vm1", "subscribed")
    listeners.now = datetime.now(UTC)
    listeners.heard()
    detail = overview.detail(cache_id=the_cache().pk, now=listeners.now, hours=1)
    assert detail is not None
    # The time before the first agent could have listened is not a gap.
    assert [round(gap.seconds) for gap in detail.gaps] == [120]
    assert detail.begin < begin
    picture = viewer.get(f"/caches/{the_cache().pk}/?hours=1").content.decode()
    assert picture.count('class="lane-gap"') == 1


def test_never_started_without_a_listener_is_marked_unproved(listeners: Listeners, viewer: Client) -> None:
    listeners.now -= timedelta(hours=1)
    announced(listeners)
    listeners.now = datetime.now(UTC)
    listeners.advance()
    assert the_maintenance().status == "NEVER_STARTED"
    assert "start-unheard" in codes(viewer.get(f"/maintenances/{the_maintenance().pk}/"))


def test_the_front_page_tells_of_a_maintenance_while_it_lasts(listeners: Listeners, viewer: Client) -> None:
    listeners.now = datetime.now(UTC)
    assert 'class="cache-strip"' not in viewer.get("/").content.decode()
    announced(listeners)
    page = viewer.get("/").content.decode()
    # The maintenance appears below the queue and is never due: users cannot decide about it.
    assert page.index('id="queue"') < page.index('class="cache-strip"')
    listeners.hear("vm1", line("NodeMaintenanceEnded", replica="True"), at=listeners.now + seconds(840))
    assert 'class="cache-strip"' not in viewer.get("/").content.decode()


def test_the_fleets_timeline_leads_to_the_maintenance_and_can_be_filtered(listeners: Listeners, viewer: Client) -> None:
    failed_over(listeners)
    listeners.hear("vm1", line("NodeMaintenanceStart"), host="sessions.redis.cache.windows.net")
    body = viewer.get("/timeline/").content.decode()
    assert f'href="/maintenances/{Maintenance.objects.get(cache=the_cache()).pk}/"' in body
    assert "sessions" not in text_of(viewer.get(f"/timeline/?cache={the_cache().pk}"))


def test_a_services_timeline_holds_its_sets_and_the_caches_that_they_listen_to(
    listeners: Listeners, operator: Client
) -> None:
    listeners.enrol("mail1", availability_set="mail", tagsList=[{"name": "drydock:service", "value": "post"}])
    AvailabilitySet.objects.filter(name="web").update(service="shop")
    for name in ("vm1", "vm2", "vm3"):
        listeners.cover(name, "subscribed")
    announced(listeners)
    shop = text_of(operator.get("/timeline/?service=shop"))
    assert "vm1" in shop and HOST in shop and "mail1" not in shop
    post = text_of(operator.get("/timeline/?service=POST"))
    assert "mail1" in post and HOST not in post
    set_page = operator.get(f"/sets/{AvailabilitySet.objects.get(name='web').pk}/").content.decode()
    assert 'href="/services/shop/"' in set_page
