"""Live parts: they follow, they keep what is typed and focused, they say when they are stale."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Route, expect

from fleet.wording import times
from tests import factories
from tests.browser.conftest import OpenPage
from tests.browser.story import START_NOW
from tests.factories import Fleet, listing
from tests.gateway_process import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


def ahead(minutes: float) -> datetime:
    return datetime.now(UTC) + timedelta(minutes=minutes)


def test_a_comment_that_is_being_typed_is_not_swept_away(fleet: Fleet, open_page: OpenPage) -> None:
    event = factories.announced(fleet)
    watched = open_page(f"/events/{event.event_id}/")
    page = watched.page
    comment = page.locator("#comment-now")
    comment.press_sequentially("half a sen")
    # A key that is pressed while the text is gone would be lost, and Enter would send an empty form.
    page.evaluate(
        """() => document.body.addEventListener("htmx:afterSwap", () => setTimeout(() => {
             const field = document.querySelector("#comment-now");
             (window.met ??= []).push(`${field?.value} ${field === document.activeElement}`);
           }))"""
    )
    fleet.all_say(listing(resources=("vm1", "vm2", "vm3"), not_before=event.not_before))
    expect(page.locator("#event-head h1")).to_contain_text("vm3")
    # The panel next to the comment is as new as the head, and states that it has changed.
    expect(page.get_by_role("button", name=START_NOW)).to_contain_text("vm3")
    expect(page.locator("#decision")).to_contain_text("changed while you were typing")
    expect(comment).to_be_focused()
    page.wait_for_function("window.met?.length")
    assert set(page.evaluate("window.met")) == {"half a sen true"}
    comment.press_sequentially("tence")
    expect(comment).to_have_value("half a sentence")
    # Approving what was looked at before is refused, and what was typed stays.
    watched.expected = ("409",)
    page.get_by_role("button", name=START_NOW).click()
    expect(page.locator("#decision [data-refusal=version-changed]")).to_be_visible()
    expect(comment).to_have_value("half a sentence")


def test_typed_text_survives_the_form_and_other_actions(fleet: Fleet, open_page: OpenPage) -> None:
    event = factories.announced(fleet)
    olga = factories.operator("olga")
    page = open_page(f"/events/{event.event_id}/").page
    comment = page.locator("#comment-now")
    comment.fill("the shop is <b>closed</b>")
    page.get_by_role("button", name="Claim this event").click()
    expect(page.locator("#decision")).to_contain_text("Claimed")
    expect(comment).to_have_value("the shop is <b>closed</b>")
    comment.focus()
    fleet.approve(by=olga)
    expect(page.locator("#decision")).to_contain_text("by olga")
    expect(page.locator("#decision")).to_contain_text("Your text: “the shop is <b>closed</b>”")
    expect(page.locator("#decision")).to_be_focused()


def test_the_focus_stays_where_it_was_while_parts_are_renewed(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol_set()
    fleet.all_say()
    page = open_page("/").page
    link = page.locator("#cards .more")
    link.focus()
    fleet.all_say(listing(resources=("vm1",), not_before=ahead(10)))
    expect(page.locator("#cards .card-events")).to_contain_text("vm1")
    expect(link).to_be_focused()
    watch = page.locator("#strip a").first
    watch.focus()
    fleet.enrol("vm7", heard=False)
    expect(watch).to_contain_text("/7")
    expect(watch).to_be_focused()


def test_a_cut_stream_is_replaced_by_asking_every_ten_seconds(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol_set()
    watched = open_page("/sets/", live=False)
    watched.expected = ("net::ERR_FAILED",)
    watched.page.route("**/stream", lambda route: route.abort())
    watched.open("/")
    badge = watched.page.locator("#live")
    expect(badge).to_have_text(re.compile("every 10 s"), timeout=30_000)
    fleet.all_say(listing(resources=("vm1",), not_before=ahead(10)))
    expect(watched.page.locator(f'[data-key="{factories.EVENT}"]').first).to_be_visible(timeout=30_000)


def test_a_page_without_a_server_says_for_how_long_it_has_been_stale(
    fleet: Fleet, open_page: OpenPage, own_gateway: Callable[..., Gateway]
) -> None:
    fleet.enrol_set()
    server = own_gateway()
    watched = open_page("/", live=False, on=server)
    page = watched.page
    page.clock.install()
    watched.open("/")
    watched.live()
    watched.expected = ("net::", "Failed to load", "htmx:")
    server.process.kill()
    page.clock.fast_forward(45_000)
    expect(page.locator("#live")).to_have_text(re.compile("stale [4-9]0 s"))


def test_the_countdown_goes_by_the_servers_clock(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol_set()
    fleet.all_say(listing(resources=("vm1",), not_before=ahead(10)))
    watched = open_page("/", live=False)
    page = watched.page
    page.clock.install(time=datetime.now(UTC) + timedelta(hours=3))
    watched.open("/")
    expect(page.locator('[data-rows="waiting"] .countdown')).to_contain_text("9:", timeout=30_000)
    shown = page.locator("#clock").inner_text()
    now = datetime.now(UTC)
    assert shown in {f"{now - timedelta(seconds=back):%H:%M:%S} UTC" for back in range(30)}


def test_browser_and_server_format_times_identically(fleet: Fleet, open_page: OpenPage) -> None:
    page = open_page("/").page
    numbers = [-4, 0, 1, 2, 42, 59.9, 60, 119, 120, 599, 3599, 3600, 7199, 7200, 86399, 86400, 172799, 172800, 999999]
    script = """async (all) => {
        const { span, ago } = await import("/static/drydock/words.js");
        return all.map((number) => [span(number), ago(number)]);
    }"""
    assert page.evaluate(script, numbers) == [[times.span(number), times.ago(number)] for number in numbers]


def test_the_theme_that_was_chosen_stays(fleet: Fleet, open_page: OpenPage) -> None:
    watched = open_page("/", color_scheme="light")
    root = watched.page.locator("html")
    expect(root).to_have_attribute("data-bs-theme", "light")
    watched.page.get_by_role("button", name="Switch between dark and light").click()
    expect(root).to_have_attribute("data-bs-theme", "dark")
    watched.open("/sets/")
    expect(root).to_have_attribute("data-bs-theme", "dark")


def test_without_scripts_everything_can_still_be_done(fleet: Fleet, open_page: OpenPage) -> None:
    event = factories.announced(fleet)
    page = open_page(f"/events/{event.event_id}/", live=False, java_script_enabled=False).page
    page.locator("#comment-now").fill("by hand")
    page.get_by_role("button", name=START_NOW).click()
    expect(page.locator("main > .notice.tone-good")).to_be_visible()
    expect(page.locator("#decision")).to_contain_text("by otto")


# A stream that the test speaks through: `said(COUNT)`.
SPOKEN = """
window.EventSource = class extends EventTarget {
  static OPEN = 1;
  static CLOSED = 2;
  readyState = 1;
  constructor() {
    super();
    const data = JSON.stringify({ kind: "event_seen", event_id: "E", set: null, machine: null });
    window.said = (count) => {
      for (let number = 0; number < count; number += 1) this.dispatchEvent(new MessageEvent("changed", { data }));
    };
  }
  close() {}
};
"""


def test_a_storm_of_news_is_asked_for_once_a_second_and_never_again_before_the_answer(open_page: OpenPage) -> None:
    page = open_page("/sets/").page
    page.add_init_script(SPOKEN)
    page.clock.install()
    page.reload()
    asked: list[Route] = []
    page.route("**/pulse/**", lambda route: asked.append(route))  # noqa: PLW0108 - Playwright wants a function of Python
    page.evaluate("said(300)")
    with page.expect_request("**/pulse/**"):
        page.clock.run_for(150)
    # While the server has not answered, no news makes the page send another request.
    for _ in range(15):
        page.evaluate("said(30)")
        page.clock.run_for(100)
    assert len(asked) == 1

    def answered(route: Route) -> None:
        asked.append(route)
        route.continue_()

    def asked_again(count: int) -> None:
        # After a slow answer a page waits for up to three seconds.
        for _ in range(80):
            if len(asked) == count:
                return
            page.clock.run_for(50)
        raise AssertionError(f"asked {len(asked)} times")

    # What came meanwhile is asked for then, by one more question.
    with page.expect_response("**/pulse/**"):
        asked[0].continue_()
    asked_again(2)
    with page.expect_response("**/pulse/**"):
        asked[1].continue_()
    # With answers, too, no more than one a second.
    page.unroute("**/pulse/**")
    page.route("**/pulse/**", answered)
    began = page.evaluate("Date.now()")
    for _ in range(20):
        page.evaluate("said(30)")
        page.clock.run_for(100)
    assert 1 <= len(asked) - 2 <= (page.evaluate("Date.now()") - began) / 1000 + 1
