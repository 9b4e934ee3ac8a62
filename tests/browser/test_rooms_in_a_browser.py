"""Pages of rooms in a browser: caches, drills, waves, rules, reports, the map and the search box, for everybody."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from fleet.models import AvailabilitySet, Rule
from fleet.operations import waves
from fleet.operations.policy import rules
from tests import factories
from tests.browser.conftest import PHONE, WIDE, OpenPage
from tests.browser.story import caches_told
from tests.browser.test_deciding_in_a_browser import announce
from tests.caches.walking import Listeners, line
from tests.dashboard.test_the_fleet_on_one_page import many_sets
from tests.factories import Fleet, acting, listing
from tests.gateway_process import Gateway
from tests.policy.conftest import made

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


def test_a_wave_stops_before_the_eyes_of_who_looks_at_it(fleet: Fleet, open_page: OpenPage) -> None:
    announce(fleet, 3)
    AvailabilitySet.objects.update(service="shop")
    wave = waves.begin(actor=acting(factories.operator(), why="patch night"), service="shop", now=fleet.now)
    watched = open_page(f"/waves/{wave.pk}/", viewport=PHONE, color_scheme="dark")
    faults = watched.faults()
    waves.stop(wave_id=wave.pk, actor=acting(factories.operator(), via="api", why="enough"), now=fleet.now)
    expect(watched.page.locator("#wave-body .notice.tone-bad")).to_contain_text("otto stopped the wave.")
    assert faults + watched.faults() == []


def test_the_command_by_hand_is_copied_by_one_click(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.now -= timedelta(minutes=5)
    factories.announced(fleet, not_before=fleet.now + timedelta(minutes=30))
    watched = open_page(f"/events/{factories.EVENT}/", permissions=["clipboard-read", "clipboard-write"])
    page = watched.page
    box = page.locator("#by-hand")
    expect(box).to_contain_text("No live machine of the set lists the event")
    box.get_by_role("button", name="Copy the command for Linux").click()
    expect(box.get_by_role("button").first).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#by-hand-linux").inner_text()
    assert watched.faults() == []


@pytest.mark.parametrize(("scheme", "size"), [("dark", WIDE), pytest.param("light", PHONE, marks=pytest.mark.long)])
def test_a_rule_is_made_tried_and_switched_on(
    fleet: Fleet, open_page: OpenPage, scheme: str, size: dict[str, int]
) -> None:
    fleet.now -= timedelta(minutes=5)
    factories.freeze_completed(fleet)
    factories.admin()
    now = datetime.now(UTC)
    made(at=now, name="Deletions of spot machines", event_types=["Preempt"], reason="They come back by themselves.")
    made(at=now, name="Freezes are harmless", event_types=["Freeze"], max_duration_seconds=8, enabled=False)
    sale = {"name": "Summer sale", "reason": "The shop is full.", "weekdays": list(range(7))}
    rules.create_window(rules.WindowRequestSerializer(data=sale), actor=acting(factories.admin()), now=now)
    watched = open_page("/policy/", who="ada", color_scheme=scheme, viewport=size)
    page = watched.page
    assert watched.faults() == []
    page.get_by_text("New no-approval window").click()
    assert watched.faults() == []
    page.get_by_role("link", name="New rule").click()
    page.get_by_label("Name", exact=True).fill("Short freezes")
    page.get_by_label("Reason").fill("No user notices five seconds.")
    page.get_by_label("Freeze").check()
    page.get_by_label("At most, in seconds").first.fill("5")
    page.get_by_role("button", name="Dry run on history").click()
    expect(page.locator(".tried-sentence")).to_contain_text("Would have approved")
    assert watched.faults() == []
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Short freezes")
    page.get_by_role("link", name="Rules", exact=True).first.click()
    page.get_by_role("button", name="Move Short freezes up").click()
    expect(page.locator(".rule-name").nth(1)).to_contain_text("Short freezes")
    page.get_by_role("switch", name="Short freezes").click()
    expect(page.get_by_role("switch", name="Short freezes")).to_have_attribute("aria-checked", "true")
    assert Rule.objects.get(name="Short freezes").enabled


def test_a_printed_report_has_no_frame_and_no_box_that_scrolls(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.now -= timedelta(minutes=5)
    page = open_page(f"/reports/events/{factories.freeze_completed(fleet).event_id}/").page
    page.emulate_media(media="print", color_scheme="light")
    for frame in ("header.bar", "nav.tabs", ".report-files"):
        assert page.locator(frame).is_hidden()
    assert page.locator(".report-verdict").is_visible()


def test_an_announcement_appears_on_the_front_page_by_itself(gateway: Gateway, open_page: OpenPage) -> None:
    walker = caches_told(datetime.now(UTC))
    watched = open_page("/")
    watched.page.locator(".cache-strip >> text=sessions").wait_for()
    soon = (walker.now + timedelta(seconds=600)).strftime("%Y-%m-%dT%H:%M:%S")
    walker.hear("web-1", line("NodeMaintenanceScheduled", port=15001, replica="True") + f"|StartTimeInUTC|{soon}")
    watched.page.locator(".cache-strip >> text=orders").wait_for(timeout=30_000)


def test_the_keyboard_finds_chooses_and_opens(fleet: Fleet, open_page: OpenPage) -> None:
    event = factories.announced(fleet)
    fleet.enrol("vm10", availability_set="web", heard=False)
    watched = open_page(f"/events/{event.event_id}/")
    page = watched.page
    # Typing on and leaving the page end requests that are under way; htmx notes that.
    watched.expected = ("htmx:afterRequest", "htmx:sendAbort", "htmx:sendError")
    # In the middle of a sentence, which stays as it is.
    comment = page.locator("#comment-now")
    comment.press_sequentially("half a / sen")
    page.keyboard.press("Control+k")
    box = page.get_by_role("dialog", name="Find")
    expect(box).to_be_visible()
    page.keyboard.type("vm1")
    expect(box.get_by_role("link", name="vm10")).to_be_visible()
    assert watched.faults() == []
    page.keyboard.press("Escape")
    expect(box).to_be_hidden()
    expect(comment).to_be_focused()
    expect(comment).to_have_value("half a / sen")
    page.locator("#main").focus()
    page.keyboard.press("/")
    expect(page.locator("#find-text")).to_be_focused()
    # What was typed before is selected; typing on replaces it.
    page.keyboard.type("vm")
    expect(box.get_by_role("link", name="vm10")).to_be_visible()
    page.keyboard.type("10")
    expect(box.get_by_role("link")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(box.get_by_role("link", name="vm10")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.locator("#find-text")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("vm10")


def test_on_a_phone_the_box_and_the_bar_of_places_fit(fleet: Fleet, open_page: OpenPage) -> None:
    factories.announced(fleet)
    watched = open_page("/sets/?q=web", viewport=PHONE, has_touch=True, is_mobile=True)
    page = watched.page
    bar = page.get_by_role("navigation", name="Areas").bounding_box()
    assert bar is not None
    assert bar["y"] + bar["height"] == PHONE["height"]
    page.get_by_text("Save this view").tap()
    page.get_by_label("Name of the view").fill("Web")
    page.get_by_role("button", name="Save", exact=True).tap()
    expect(page.get_by_role("link", name="Web", exact=True)).to_have_attribute("aria-current", "true")
    assert watched.faults() == []
    page.get_by_role("link", name="Find").tap()
    page.locator("#find-text").fill("vm2")
    expect(page.get_by_role("link", name="vm2").first).to_be_visible()
    assert watched.faults() == []
    # The status bar is lower, as WCAG allows, so that more of a decision fits on the screen.
    small = page.evaluate(
        """() => [...document.querySelectorAll('.places a, .tabs a, .watch a, #find a, #find button, .saved a')]
            .filter((node) => node.getClientRects().length
              && node.getBoundingClientRect().height < (node.closest('.watch') ? 24 : 43.5))
            .map((node) => node.outerHTML.slice(0, 90))"""
    )
    assert small == []


@pytest.fixture
def services(gateway: Gateway) -> Listeners:
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


def test_the_map_goes_by_keyboard_and_a_service_shows_what_meets(services: Listeners, open_page: OpenPage) -> None:
    # With this many sets, each is a cell with its name.
    AvailabilitySet.objects.bulk_create(
        AvailabilitySet(key=name, kind="standalone", name=name, service="post", created_at=services.now)
        for name in (f"zone-{number:02}" for number in range(10))
    )
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
    page.get_by_role("link", name="web: decision needed; 1 of 1 agents live").press("Enter")
    expect(page.get_by_role("heading", name="web", level=1)).to_be_visible()
    # One state alone, by its chip.
    watched.open("/fleet/")
    page.get_by_role("link", name="Decision needed: 1").click()
    expect(page.locator(".map-card")).to_have_count(1)
    watched.open("/services/shop/")
    expect(page.locator(".notice", has_text="Reboot of web-vm1 (web) and the maintenance of orders")).to_be_visible()
    expect(page.locator(".lane-band")).to_have_count(1)
    page.get_by_text("Show as a table").click()
    expect(page.get_by_role("cell", name="node stopped, connections lost")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_on_a_phone_everybody_can_use_them(services: Listeners, open_page: OpenPage, scheme: str) -> None:
    watched = open_page("/fleet/", viewport=PHONE, color_scheme=scheme, is_mobile=True, has_touch=True)
    page = watched.page
    machine = services.agents["web-vm1"].machine
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
        assert watched.faults() == []
        for cell in page.locator(".map a, .map-card, .ways a, .map-chip").all():
            box = cell.bounding_box()
            assert box is None or (box["height"] >= 44 and box["width"] >= 44), path


LAPTOP = {"width": 1280, "height": 800}


def page_height(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollHeight"))


def test_four_sets_fill_the_page_with_names_counts_and_next_event(fleet: Fleet, open_page: OpenPage) -> None:
    for name in ("web", "api", "batch", "mail"):
        fleet.enrol(f"{name}-vm1", availability_set=name)
        fleet.say(f"{name}-vm1")
    fleet.all_say(listing(resources=("web-vm1",), not_before=fleet.now + timedelta(minutes=9)), names=["web-vm1"])
    watched = open_page("/fleet/", viewport=LAPTOP)
    page = watched.page
    cards = page.locator(".map-card")
    expect(cards).to_have_count(4)
    expect(cards.first).to_contain_text("web")
    expect(cards.first).to_contain_text("Freeze")
    expect(cards.first.get_by_role("timer")).to_be_visible()
    boxes = [box for card in cards.all() if (box := card.bounding_box())]
    assert {box["width"] > 550 and box["height"] > 180 for box in boxes} == {True}
    assert page_height(page) <= LAPTOP["height"]
    assert watched.faults() == []


@pytest.mark.parametrize("groups", [1, 20, pytest.param(100, marks=pytest.mark.long)])
def test_a_hundred_sets_fit_without_scrolling(gateway: Gateway, open_page: OpenPage, groups: int) -> None:
    many_sets(100, groups, now=datetime.now(UTC))
    watched = open_page("/fleet/", viewport=LAPTOP)
    page = watched.page
    expect(page.locator(".map a")).to_have_count(100)
    assert page_height(page) <= LAPTOP["height"]
    if groups < 100:
        expect(page.get_by_text("shop-web-00099", exact=True)).to_be_in_viewport(ratio=1)
    assert watched.faults() == []


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_a_heat_map_zooms_to_a_service(gateway: Gateway, open_page: OpenPage, scheme: str) -> None:
    many_sets(700, 30, now=datetime.now(UTC))
    watched = open_page("/fleet/", viewport=LAPTOP, color_scheme=scheme)
    page = watched.page
    expect(page.locator(".map-heat > a")).to_have_count(30)
    assert page_height(page) <= LAPTOP["height"]
    assert watched.faults() == []
    page.get_by_role("link", name="service-7: ").click()
    expect(page.locator(".map-named > a")).to_have_count(24)
    page.get_by_role("link", name="Service: service-7").click()
    expect(page.locator(".map-heat > a")).to_have_count(30)


@pytest.mark.parametrize("size", [LAPTOP, pytest.param(PHONE, marks=pytest.mark.long)])
def test_twenty_machines_of_one_domain_are_tiles(fleet: Fleet, open_page: OpenPage, size: Any) -> None:
    for number in range(20):
        fleet.enrol(f"vm{number:02}", fault_domain=0, update_domain=0)
    watched = open_page(f"/sets/{factories.the_set().pk}/", viewport=size)
    boxes = [box for tile in watched.page.locator(".tile").all() if (box := tile.bounding_box())]
    assert len(boxes) == 20
    assert len({box["y"] for box in boxes}) <= (10 if size is PHONE else 4)
    assert watched.faults() == []
