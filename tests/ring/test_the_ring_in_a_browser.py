"""An operator's whole story in a browser, with every part of the ring real."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import watched_pages
from tests.processes import wait_for
from tests.ring.ring import MIGRATION, Ring

pytestmark = [pytest.mark.browser, pytest.mark.flow, pytest.mark.real_time]

# The test ends it: on a busy machine a short event would end before the browser showed it running.
LASTING = {**MIGRATION, "started_seconds": 600}
# Of the tab: the count and the shortest time.
TITLE = re.compile(r"^\(1\) 14:\d\d · Decision queue · Drydock$")


def test_an_event_arrives_is_approved_and_ends_without_a_reload(it: Ring, browser: Browser) -> None:
    with watched_pages(browser) as make:
        operator = it.people["operator"]
        watched = make(it.url)
        watched.log_in(operator["username"], operator["password"])
        page = watched.page
        expect(page.get_by_role("heading", name="Nothing needs a decision")).to_be_visible()
        watched.live()
        # A reload would lose this.
        page.evaluate("window.notReloaded = true")

        event_id = it.simulator.events.create(**LASTING)
        row = page.locator(f'[data-rows="waiting"] [data-key="{event_id}"]')
        expect(row).to_be_visible(timeout=30_000)
        expect(row).to_contain_text("Freeze of WestNO_0, WestNO_1")
        expect(row).to_contain_text("1 of 3 machines stays live")
        expect(page).to_have_title(TITLE)
        assert page.evaluate("window.notReloaded") is True

        row.get_by_role("link", name="Decide").click()
        watched.live()
        expect(page.get_by_text("seen by 3 of 3", exact=True)).to_be_visible(timeout=30_000)
        page.evaluate("window.notReloaded = true")
        page.locator("#comment-now").fill("Drained by hand.")
        page.get_by_role("button", name="Start now: Freeze of WestNO_0, WestNO_1").click()
        panel = page.locator("#decision")
        expect(panel).to_contain_text("Azure answered 200", timeout=30_000)
        # The pointer still rests where the button was: what comes next must not wait for it.
        page.mouse.move(5, 5)
        expect(panel.get_by_role("heading", name="Started")).to_be_visible(timeout=30_000)
        it.simulator.events.complete(event_id)
        expect(panel.get_by_role("heading", name="Ended")).to_be_visible(timeout=60_000)
        expect(panel).to_contain_text("Confirmed")
        expect(page.locator("#event-head")).to_contain_text("completed")
        expect(page.locator("#event-body .entries")).to_contain_text("Drained by hand.")
        assert page.evaluate("window.notReloaded") is True

        approval = it.event(event_id)["approval"]
        assert (approval["via"], approval["comment"]) == ("page", "Drained by hand.")
        assert wait_for(it.starts, seconds=20, what="StartRequests at Azure")
        page.goto(it.url)
        expect(page.get_by_role("heading", name="Nothing needs a decision")).to_be_visible()
