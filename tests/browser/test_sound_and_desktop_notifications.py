"""Who wants it hears and is notified of something new to decide: once, in one tab of several."""

from __future__ import annotations

from datetime import timedelta
from time import monotonic

import pytest
from playwright.sync_api import Page, expect

from fleet.operations import profile
from tests import factories
from tests.browser.conftest import OpenPage
from tests.factories import Fleet, acting, listing

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

# What the browser is asked for, written down instead of done.
LISTENING = """
window.told = [];
window.AudioContext = class {
  constructor() { this.currentTime = 0; this.destination = {}; }
  resume() {}
  createGain() { return { gain: { setValueAtTime() {}, exponentialRampToValueAtTime() {} }, connect: (to) => to }; }
  createOscillator() {
    return { frequency: {}, connect: (to) => to, start: () => window.told.push("tone"), stop() {} };
  }
};
window.Notification = class {
  static permission = "granted";
  constructor(title, { body }) { window.told.push(`${title}: ${body}`); }
  addEventListener() {}
};
"""


def heard(page: Page) -> list[str]:
    found: list[str] = page.evaluate("window.told")
    return found


def test_something_new_sounds_and_notifies_once_for_who_wants_it(fleet: Fleet, open_page: OpenPage) -> None:
    otto = factories.operator()
    fleet.enrol_set(3)
    factories.announced(fleet)
    quiet = open_page("/")
    assert "data-tell" not in quiet.page.content()
    profile.choose(actor=acting(otto), now=fleet.now, sound=True, notifications=True)
    watched = open_page("/")
    watched.page.context.add_init_script(LISTENING)
    other = watched.page.context.new_page()
    for page in (watched.page, other):
        page.goto(f"{watched.url}/")
        page.locator('#live[data-state="live"]').wait_for()
    # What is there already is on the screen, and no news.
    assert heard(watched.page) == heard(other) == []
    again = listing(
        "0A1B2C3D-0000-4000-8000-00000000000B", resources=("vm2",), not_before=fleet.now + timedelta(hours=1)
    )
    fleet.all_say(again, names=["vm1", "vm2"])
    for page in (watched.page, other):
        expect(page.locator("#pulse")).to_have_attribute("data-waiting", "2")
    # Each tab looks once a second; what one has told stands where the other finds it.
    deadline = monotonic() + 20
    while not (heard(watched.page) + heard(other)) and monotonic() < deadline:
        watched.page.wait_for_timeout(100)
    watched.page.wait_for_timeout(1200)
    both = heard(watched.page) + heard(other)
    assert both.count("tone") == 2
    assert sum(one.startswith("Drydock: ") for one in both) == 1


def test_the_settings_ask_the_browser_and_can_be_tried(fleet: Fleet, open_page: OpenPage) -> None:
    watched = open_page("/you/")
    watched.page.context.add_init_script(LISTENING)
    watched.open("/you/")
    page = watched.page
    page.get_by_role("button", name="Try them").click()
    page.get_by_text("Tick one of them first.").wait_for()
    page.get_by_label("a sound").check()
    page.get_by_label("a notification of the desktop").check()
    page.get_by_role("button", name="Try them").click()
    deadline = monotonic() + 20
    while len(heard(page)) < 3 and monotonic() < deadline:
        page.wait_for_timeout(50)
    assert heard(page) == ["tone", "tone", "Drydock: This is how it looks"]
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Saved.").wait_for()
    assert page.get_by_label("a sound").is_checked()
