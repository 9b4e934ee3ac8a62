"""Caches in a real browser: pictures for the documentation, a quiet console, and what axe-core says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleet.models import Maintenance
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.test_everybody_can_use_it import serious
from tests.caches.walking import HOST, Listeners, line, the_cache
from tests.gateway_process import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.real_time]

SESSIONS = "sessions.redis.cache.windows.net"


@pytest.fixture
def fleet(gateway: Gateway) -> Listeners:
    return caches_told(datetime.now(UTC))


def caches_told(now: datetime) -> Listeners:
    """A failover twenty minutes ago on one cache, an announcement on the other, and a time without a listener."""
    walker = Listeners(now=now - timedelta(hours=2))
    for number in range(1, 5):
        walker.enrol(f"web-{number}", fault_domain=number % 2, update_domain=number % 2)
    for name in ("web-1", "web-2", "web-3"):
        walker.cover(name, "subscribed", tier="standard")
    walker.cover("web-3", "subscribed", host=SESSIONS, tier="basic")
    walker.cover("web-4", "refused", host=SESSIONS, reason="NOPERM this user has no permissions")
    walker.now = now - timedelta(minutes=80)
    walker.heard()
    walker.advance()
    for name in ("web-1", "web-2", "web-3"):
        walker.cover(name, "lost", reason="closed by the server")
    walker.now = now - timedelta(minutes=62)
    for name in ("web-1", "web-2", "web-3"):
        walker.cover(name, "subscribed")
    walker.now = now - timedelta(minutes=21)
    start = (walker.now + timedelta(seconds=858)).strftime("%Y-%m-%dT%H:%M:%S")

    def told(raw: str, names: tuple[str, ...] = ("web-1", "web-2", "web-3")) -> None:
        for name in names:
            walker.hear(name, raw)

    told(line("NodeMaintenanceScheduled") + f"|StartTimeInUTC|{start}")
    walker.later(767)
    begins = (walker.now + timedelta(seconds=20)).strftime("%Y-%m-%dT%H:%M:%S")
    told(line("NodeMaintenanceStarting") + f"|StartTimeInUTC|{begins}")
    walker.later(20)
    told(line("NodeMaintenanceStart"))
    walker.later(1)
    for name in ("web-1", "web-2"):
        walker.cover(name, "lost", reason="closed by the server")
    walker.later(9)
    for name in ("web-1", "web-2"):
        walker.cover(name, "subscribed")
    told(line("NodeMaintenanceFailover", port=15001), ("web-3",))
    walker.later(172)
    told(line("NodeMaintenanceEnded", replica="True") + f"|StartTimeInUTC|{walker.now:%Y-%m-%dT%H:%M:%S}")
    walker.now = now
    walker.heard()
    soon = (now + timedelta(seconds=700)).strftime("%Y-%m-%dT%H:%M:%S")
    walker.hear("web-3", line("NodeMaintenanceScheduled") + f"|StartTimeInUTC|{soon}", host=SESSIONS)
    return walker


@pytest.mark.parametrize("kind", ["light", *[pytest.param(kind, marks=pytest.mark.long) for kind in ("dark", "phone")]])
def test_caches_can_be_pictured(fleet: Listeners, open_page: OpenPage, pictures: Path, kind: str) -> None:
    context: dict[str, Any] = {"color_scheme": "dark" if kind == "dark" else "light"}
    if kind == "phone":
        context["viewport"] = PHONE
    watched = open_page("/", **context)
    operation = Maintenance.objects.get(cache__host=HOST)
    for name, path in (
        ("caches", "/caches/"),
        ("cache", f"/caches/{the_cache().pk}/?hours=6"),
        ("maintenance", f"/maintenances/{operation.pk}/"),
        ("queue-maintenance", "/"),
    ):
        watched.open(path)
        watched.live()
        watched.page.wait_for_timeout(300)
        wide = watched.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert wide, f"{path} is wider than the window"
        assert serious(watched.page) == []
        target = pictures / f"{name}-{kind}.png"
        watched.picture(target, full_page=name != "queue-maintenance")
        assert target.stat().st_size > 10_000


def test_an_announcement_appears_on_the_front_page_by_itself(fleet: Listeners, open_page: OpenPage) -> None:
    watched = open_page("/")
    watched.page.locator(".cache-strip >> text=sessions").wait_for()
    soon = (fleet.now + timedelta(seconds=600)).strftime("%Y-%m-%dT%H:%M:%S")
    fleet.hear("web-1", line("NodeMaintenanceScheduled", port=15001, replica="True") + f"|StartTimeInUTC|{soon}")
    watched.page.locator(".cache-strip >> text=orders").wait_for(timeout=30_000)
