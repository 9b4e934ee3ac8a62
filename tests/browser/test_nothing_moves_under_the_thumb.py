"""Nothing moves while a page comes alive, and what is selected covers nothing that could be reached before."""

from collections import defaultdict
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, WIDE, OpenPage, width_beyond
from tests.browser.test_deciding_in_a_browser import announce
from tests.factories import Fleet

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

# What moved, and how far: of the bar and of the page below it, without what news brings.
WATCH = """window.moved = [];
new PerformanceObserver((found) => {
  for (const entry of found.getEntries()) for (const { node, previousRect: a, currentRect: b } of entry.sources) {
    if (a.width && b.width) window.moved.push([node?.id || node?.className || node?.nodeName, a.x, a.y, b.x, b.y]);
  }
}).observe({ type: "layout-shift", buffered: true });
window.scrolled = [];
addEventListener("scroll", () => window.scrolled.push(scrollY));"""
# Rows' boxes and buttons whose middle nothing covers.
REACHED = """() => [...document.querySelectorAll('#queue input[name=event], #queue .row-go')].filter((node) => {
  const { x, y, width, height } = node.getBoundingClientRect();
  const top = document.elementFromPoint(x + width / 2, y + height / 2);
  return top && (top === node || node.contains(top) || top.contains(node) && top.matches("label"));
}).map((node) => node.value ?? node.getAttribute("href"))"""


@pytest.mark.parametrize("screen", [{"viewport": WIDE}, {"viewport": PHONE, "is_mobile": True, "has_touch": True}])
def test_a_page_that_comes_alive_stays_where_it_is(fleet: Fleet, open_page: OpenPage, screen: dict[str, Any]) -> None:
    announce(fleet, 1)
    watched = open_page("/drills/", reduced_motion="no-preference", **screen)
    page = watched.page
    page.add_init_script(WATCH)
    watched.open("/drills/")
    watched.live()
    assert page.evaluate("window.moved") == []
    bar = page.locator("#live")
    width = bar.bounding_box()
    for word in ("Connecting", "Page: every 10 s", "Page stale 120 s"):
        page.evaluate("(word) => { document.querySelector('.live-word').textContent = word; }", word)
        assert bar.bounding_box() == width
        assert _overflow(page) <= 0
    watched.open("/events/00000000-0000-4000-8000-000000000000/#decision")
    watched.live()
    # The page scrolls once, and not in steps while a user already aims.
    assert len(page.evaluate("window.scrolled")) <= 1


def _overflow(page: Page) -> int:
    """By how many pixels the word is wider than its badge."""
    return int(page.evaluate("(() => { const { scrollWidth, clientWidth } = document.getElementById('live');"
                             " return scrollWidth - clientWidth; })()"))  # fmt: skip


def test_the_status_bar_has_one_place_at_every_width(fleet: Fleet, open_page: OpenPage) -> None:
    announce(fleet, 1)
    watched, places = open_page("/"), defaultdict[int, set[Any]](set)
    page = watched.page
    for path in ("/", "/sets/", "/policy/", "/timeline/", "/events/00000000-0000-4000-8000-000000000000/"):
        watched.open(path)
        for width in (360, 390, 768, 1024, 1280, 1440, 1920):
            page.set_viewport_size({"width": width, "height": 800})
            places[width].add(
                page.evaluate(
                    """() => { const { right, top, height } = document.getElementById("strip").getBoundingClientRect();
                         return [right, top, height].map(Math.round).join(" "); }"""
                )
            )
            assert width_beyond(page) <= 0, (path, width)
    assert {width: len(found) for width, found in places.items()} == dict.fromkeys(places, 1), places


def test_what_is_selected_covers_nothing_that_could_be_reached_before(fleet: Fleet, open_page: OpenPage) -> None:
    announce(fleet, 4)
    page = open_page("/", viewport=PHONE, is_mobile=True, has_touch=True).page
    before = page.evaluate(REACHED)
    assert before
    page.locator("#queue input[name=event]").first.check()
    expect(page.locator(".pick-count")).to_have_text("1 selected")
    assert set(before) <= set(page.evaluate(REACHED))
    for button in page.locator(".pick-acts .btn").all():
        box = button.bounding_box()
        assert box is not None
        assert box["height"] >= 44 and box["y"] + box["height"] <= PHONE["height"]
    # The bar of places lies behind it, and comes back with the keyboard and with the last box.
    page.locator(".places a").first.focus()
    assert page.evaluate("document.elementFromPoint(40, innerHeight - 20).closest('.places') !== null")
    page.locator("#queue input[name=event]").first.uncheck()
    assert page.evaluate("document.elementFromPoint(40, innerHeight - 20).closest('.places') !== null")


def test_a_table_that_is_cut_off_says_that_there_is_more(fleet: Fleet, open_page: OpenPage) -> None:
    announce(fleet, 1)
    page = open_page("/history/", viewport=PHONE, is_mobile=True, has_touch=True).page
    table = page.locator(".scroll").first
    assert table.evaluate("(node) => node.scrollWidth > node.clientWidth")
    box = table.bounding_box()
    assert box is not None
    edge = {"x": box["x"] + box["width"] - 3, "y": box["y"] + 2, "width": 2, "height": 2}
    begun = page.screenshot(clip=edge)
    table.evaluate("(node) => { node.scrollLeft = node.scrollWidth; }")
    assert page.screenshot(clip=edge) != begun, "a shade that is gone at the end"


def test_boxes_to_tick_do_not_look_disabled_and_crumbs_stand_apart(fleet: Fleet, open_page: OpenPage) -> None:
    announce(fleet, 1)
    page = open_page("/").page
    border, ground = page.locator("#queue input[name=event]").first.evaluate(
        "(node) => [getComputedStyle(node).borderTopColor, getComputedStyle(node).backgroundColor]"
    )
    quiet, surface = page.evaluate(
        "['--ink-quiet', '--surface'].map((name) => { const probe = document.createElement('i');"
        " probe.style.color = `var(${name})`; document.body.append(probe); return getComputedStyle(probe).color; })"
    )
    assert (border, ground) == (quiet, surface)
    page.goto(page.url + "events/00000000-0000-4000-8000-000000000000/")
    crumbs = page.locator(".crumbs > *")
    told = crumbs.evaluate_all("(all) => all.map((node) => getComputedStyle(node, '::before').content)")
    assert [one != "none" for one in told] == [False, True, True]
