"""Fleet map and service page in a browser: usable by keyboard, touch and screen reader, in both themes."""

from datetime import UTC, datetime, timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests import factories
from tests.browser.conftest import PHONE, OpenPage
from tests.caches.walking import Listeners, line
from tests.gateway_process import Gateway

SERIOUS = ("serious", "critical")
pytestmark = [pytest.mark.browser, pytest.mark.real_time]


@pytest.fixture
def fleet(gateway: Gateway) -> Listeners:
    """Two services, one with three sets and a cache under maintenance, and an announced Reboot."""
    walker = Listeners(now=datetime.now(UTC))
    for name in ("web", "api", "batch", "mail"):
        tags = [{"name": "drydock:service", "value": "post" if name == "mail" else "shop"}]
        walker.enrol(f"{name}-vm1", availability_set=name, tagsList=tags)
    walker.cover("web-vm1", "subscribed")
    walker.hear("web-vm1", line("NodeMaintenanceStart"))
    due = walker.now + timedelta(minutes=10)
    walker.all_say(
        factories.listing(event_type="Reboot", resources=["web-vm1"], not_before=due, DurationInSeconds=-1),
        names=["web-vm1"],
    )
    return walker


def test_the_map_goes_by_keyboard_and_a_service_shows_what_meets(fleet: Listeners, open_page: OpenPage) -> None:
    watched = open_page("/fleet/")
    page = watched.page
    shop = page.get_by_role("group", name="shop")
    expect(shop.locator("a")).to_have_count(4)
    # Each service is one stop of the Tab key.
    assert page.locator('.map a[tabindex="0"]').count() == 2
    shop.locator("a").first.focus()
    page.keyboard.press("ArrowRight")
    expect(shop.locator("a").nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(shop.get_by_role("link", name="cache orders: maintenance under way")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="post", exact=True)).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="mail: 1 live")).to_be_focused()
    page.get_by_role("link", name="web: needs a decision; 1 of 1 live").press("Enter")
    expect(page.get_by_role("heading", name="web", level=1)).to_be_visible()
    # One state alone, by its chip.
    watched.open("/fleet/")
    page.get_by_role("link", name="1 needs a decision").click()
    expect(page.locator(".map a")).to_have_count(1)
    watched.open("/services/shop/")
    expect(
        page.locator(".notice", has_text="Reboot of web-vm1 (web) and the maintenance of orders may meet")
    ).to_be_visible()
    expect(page.locator(".lane-band")).to_have_count(1)
    page.get_by_text("The same as a table").click()
    expect(page.get_by_role("cell", name="node going, connections lost")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_on_a_phone_everybody_can_use_them(fleet: Listeners, open_page: OpenPage, scheme: str) -> None:
    watched = open_page("/fleet/", viewport=PHONE, color_scheme=scheme, is_mobile=True, has_touch=True)
    page = watched.page
    machine = fleet.agents["web-vm1"].machine
    for path in (
        "/fleet/",
        "/fleet/?as=table",
        "/services/shop/",
        f"/sets/{machine.availability_set_id}/",
        f"/machines/{machine.pk}/",
        "/timeline/",
        f"/caches/{machine.coverage.get().cache_id}/",
    ):
        watched.open(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
        found = Axe().run(page, context="main").response["violations"]
        assert [(path, one["id"], one["nodes"][0]["html"][:120]) for one in found if one["impact"] in SERIOUS] == []
        for cell in page.locator(".map a, .ways a, .map-chip").all():
            box = cell.bounding_box()
            assert box is None or (box["height"] >= 44 and box["width"] >= 44), path
