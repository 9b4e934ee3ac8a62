"""The box that finds things: from the keyboard, from a phone, and without leaving where one was."""

import pytest
from playwright.sync_api import expect

from tests import factories
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.test_everybody_can_use_it import serious
from tests.factories import Fleet

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


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
    assert serious(page) == []
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
    page = open_page("/sets/?q=web", viewport=PHONE, has_touch=True, is_mobile=True).page
    bar = page.get_by_role("navigation", name="Places").bounding_box()
    assert bar is not None
    assert bar["y"] + bar["height"] == PHONE["height"]
    page.get_by_text("Save this view").tap()
    page.get_by_label("Name of the view").fill("Web")
    page.get_by_role("button", name="Save", exact=True).tap()
    expect(page.get_by_role("link", name="Web", exact=True)).to_have_attribute("aria-current", "true")
    assert serious(page) == []
    page.get_by_role("link", name="Find").tap()
    page.locator("#find-text").fill("vm2")
    expect(page.get_by_role("link", name="vm2").first).to_be_visible()
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    small = page.evaluate(
        """() => [...document.querySelectorAll('.places a, .tabs a, .watch a, #find a, #find button, .saved a')]
            .filter((node) => node.getClientRects().length && node.getBoundingClientRect().height < 43.5)
            .map((node) => node.outerHTML.slice(0, 90))"""
    )
    assert small == []
