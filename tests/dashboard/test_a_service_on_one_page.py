"""Service page: it shows sets and caches, and marks where an event and a maintenance may coincide."""

import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from fleet.dashboard.tags import service_url
from fleet.domain.caches.maintenances import ASSUMED
from fleet.models import AvailabilitySet
from fleet.projections.desk.service import Impact, impact_of_event, impact_of_maintenance
from tests import factories
from tests.caches.walking import Listeners, line
from tests.dashboard.conftest import codes
from tests.dashboard.test_pages_keep_the_policy import Outline
from tests.dashboard.test_the_fleet_on_one_page import service
from tests.factories import seconds


@pytest.fixture
def listeners(db: None) -> Listeners:
    walker = Listeners(now=datetime.now(UTC) - timedelta(minutes=20))
    for number in (1, 2):
        walker.enrol(f"vm{number}", **service("shop"))
    walker.enrol("other1", availability_set="other", **service("post"))
    walker.cover("vm1", "subscribed")
    return walker


def scheduled(walker: Listeners, *, ahead: float) -> str:
    start = (walker.now + seconds(ahead)).strftime("%Y-%m-%dT%H:%M:%S")
    return line("NodeMaintenanceScheduled") + f"|StartTimeInUTC|{start}"


def test_what_may_meet_is_said_and_marked(listeners: Listeners, viewer: Client) -> None:
    listeners.later(1200)
    listeners.heard()
    factories.announced(listeners, resources=("vm1",), not_before=listeners.now + seconds(600))
    listeners.hear("vm1", scheduled(listeners, ahead=840))
    assert "service-meeting" not in codes(viewer.get("/services/shop/"))
    # A Freeze of five seconds is over before the node may go; a Reboot of unknown duration may not be.
    listeners.all_say(
        factories.listing(
            "0A1B2C3D-0000-4000-8000-000000000001",
            event_type="Reboot",
            resources=("vm2",),
            not_before=listeners.now + seconds(600),
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


def test_what_met_stays_in_the_picture(listeners: Listeners, viewer: Client) -> None:
    names = ["vm1", "vm2"]
    listeners.hear("vm1", line("NodeMaintenanceStart"))
    listeners.later(60)
    listeners.all_say(factories.listing(status="Started", resources=("vm1",)), names=names)
    listeners.later(60)
    listeners.hear("vm1", line("NodeMaintenanceEnded"))
    listeners.later(60)
    listeners.all_say(names=names)
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
