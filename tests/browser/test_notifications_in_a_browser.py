"""Browser notifications: a sound and a notification in one tab of several, and what the push worker shows."""

import json
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from fleet.models import Entry
from fleet.operations import profile
from tests import factories
from tests.browser.conftest import OpenPage
from tests.factories import Fleet, acting, listing

pytestmark = pytest.mark.browser

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


def heard(*pages: Page, count: int = 0) -> list[str]:
    """What these pages have asked of the browser, after up to 20 seconds for this number of it."""
    deadline = monotonic() + 20
    while True:
        found = [one for page in pages for one in page.evaluate("window.told")]
        if len(found) >= count or monotonic() > deadline:
            return found
        pages[0].wait_for_timeout(50)


@pytest.mark.real_time
def test_something_new_sounds_and_notifies_once_for_who_wants_it(fleet: Fleet, open_page: OpenPage) -> None:
    otto = factories.operator()
    fleet.enrol_set(3)
    factories.announced(fleet)
    quiet = open_page("/")
    assert "data-tell" not in quiet.page.content()
    sent = profile.ChoicesSerializer(data={"sound": True, "notifications": True})
    profile.choose(sent, actor=acting(otto), now=fleet.now)
    watched = open_page("/")
    watched.page.context.add_init_script(LISTENING)
    other = watched.page.context.new_page()
    for page in (watched.page, other):
        page.goto(f"{watched.url}/")
        page.locator('#live[data-state="live"]').wait_for()
    # What is there already is on the screen, and no news.
    assert heard(watched.page, other) == []
    again = listing(
        "0A1B2C3D-0000-4000-8000-00000000000B", resources=("vm2",), not_before=fleet.now + timedelta(hours=1)
    )
    fleet.all_say(again, names=["vm1", "vm2"])
    for page in (watched.page, other):
        expect(page.locator("#pulse")).to_have_attribute("data-waiting", "2")
    # Each tab looks once a second; what one has told stands where the other finds it.
    heard(watched.page, other, count=1)
    watched.page.wait_for_timeout(1200)
    both = heard(watched.page, other)
    assert both.count("tone") == 2
    assert sum(one.startswith("Drydock: ") for one in both) == 1


@pytest.mark.real_time
def test_the_settings_ask_the_browser_and_can_be_tried(fleet: Fleet, open_page: OpenPage) -> None:
    watched = open_page("/you/")
    watched.page.context.add_init_script(LISTENING)
    watched.open("/you/")
    page = watched.page
    page.get_by_role("button", name="Test").click()
    page.get_by_text("Select an option first.").wait_for()
    page.get_by_label("Play a sound").check()
    page.get_by_label("Show a desktop notification").check()
    page.get_by_role("button", name="Test").click()
    assert heard(page, count=3) == ["tone", "tone", "Drydock: Test of Drydock"]
    page.get_by_role("button", name="Save").click()
    page.get_by_text("Saved.").wait_for()
    assert page.get_by_label("Play a sound").is_checked()


@pytest.mark.real_time
def test_alerts_are_set_up_in_the_queue_and_show_whether_the_browser_blocks_them(
    fleet: Fleet, open_page: OpenPage
) -> None:
    factories.announced(fleet)
    watched = open_page("/")
    page = watched.page
    # Chromium without a window allows nothing that it is not told to.
    page.context.add_init_script(LISTENING.replace('permission = "granted"', 'permission = "denied"'))
    watched.open("/")
    alerts = page.locator("#alerts")
    expect(alerts).to_have_attribute("data-alerts", "blocked-off")
    expect(alerts.get_by_text("This browser blocks desktop notifications")).to_be_visible()
    page.context.add_init_script(LISTENING)
    watched.open("/")
    expect(alerts).to_have_attribute("data-alerts", "off")
    alerts.get_by_role("button", name="Turn on").click()
    expect(alerts).to_have_attribute("data-alerts", "on")
    critical = listing(
        "0A1B2C3D-0000-4000-8000-00000000000B", event_type="Preempt", not_before=fleet.now + timedelta(hours=1)
    )
    fleet.all_say(listing(not_before=fleet.now + timedelta(minutes=14)), critical)
    expect(page.locator("#pulse")).to_have_attribute("data-waiting", "2")
    sounds = heard(page, count=7)
    assert sounds.count("tone") == 6
    assert sounds[-1].startswith("Drydock: Critical: ")
    alerts.get_by_role("button", name="Turn off").click()
    expect(alerts).to_have_attribute("data-alerts", "off")


SHOWN = """async () => (await (await navigator.serviceWorker.ready).getNotifications()).map(
  (one) => ({ title: one.title, body: one.body, tag: one.tag, url: one.data.url }))"""


def shown(page: Any, count: int) -> list[dict[str, str]]:
    for _ in range(20):
        # Chromium forgets a notification that is asked for between being kept and being on the screen, so it is left
        # alone for a moment first.
        page.wait_for_timeout(500)
        found: list[dict[str, str]] = page.evaluate(SHOWN)
        if len(found) >= count:
            return found
    raise AssertionError("no notification is shown")


def test_what_is_pushed_is_shown_with_its_words(fleet: Fleet, open_page: OpenPage) -> None:
    factories.operator()
    watched = open_page("/you/")
    page, context = watched.page, watched.page.context
    manifest = page.evaluate("async () => (await fetch(document.querySelector('link[rel=manifest]').href)).json()")
    assert (manifest["name"], manifest["start_url"], manifest["display"]) == ("Drydock", "/", "standalone")
    worker = page.request.get(f"{watched.url}/sw.js").headers
    assert (worker["content-type"].split(";")[0], worker["cache-control"]) == ("text/javascript", "no-cache")
    context.grant_permissions(["notifications"], origin=watched.url)
    page.evaluate(
        "async () => { await navigator.serviceWorker.register('/sw.js'); await navigator.serviceWorker.ready; }"
    )
    calls = context.new_cdp_session(page)
    found: list[str] = []
    calls.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda said: found.extend(one["registrationId"] for one in said["registrations"]),
    )
    calls.send("ServiceWorker.enable")
    for _ in range(100):
        if found:
            break
        page.wait_for_timeout(50)
    before = Entry.objects.count()
    said = {"title": "Reboot of <b>vm1</b>", "body": "in web\n4 of 6 stay up", "url": "/events/X/"}
    said["tag"] = "drydock-event:1"

    def push(data: str) -> None:
        to = {"origin": watched.url, "registrationId": found[0]}
        calls.send("ServiceWorker.deliverPushMessage", {**to, "data": data})

    push(json.dumps(said))
    assert shown(page, 1) == [said]
    # The same thing takes the place of what was shown of it before; what has no words still shows something.
    push(json.dumps({**said, "title": "Reboot of vm1 has started"}))
    push("no json")
    titles = sorted(one["title"] for one in shown(page, 2))
    assert titles == ["Drydock", "Reboot of vm1 has started"]
    assert Entry.objects.count() == before
    watched.quiet()
