"""A pointer that rests holds nothing back: new events come at once, and nothing moves or is clicked under it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from fleet.domain.approvals.conditions import When
from fleet.models import Approval
from fleet.operations.approvals import claims, conditions
from tests import factories
from tests.browser.conftest import OpenPage
from tests.browser.story import START_NOW
from tests.factories import EVENT, Fleet, listing
from tests.gateway_process import Gateway

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

SECOND = "0A1B2C3D-0000-4000-8000-000000000002"
URGENT = "0A1B2C3D-0000-4000-8000-000000000003"
SMALL = {"width": 1360, "height": 500}
# Heading, badge and title of the tab, as they are together: each read in one go, at each change of the page.
COUNTS = """() => {
  const number = (text) => Number(/\\d+/.exec(text ?? "")?.[0] ?? 0);
  const read = () => [
    number(document.getElementById("waiting-title").textContent),
    number(document.getElementById("pulse").textContent),
    document.querySelectorAll('[data-rows="waiting"] > li').length,
  ].join(" ");
  window.counts = new Set([read()]);
  new MutationObserver(() => window.counts.add(read())).observe(document.body, { childList: true, subtree: true });
}"""


# A user who repeatedly presses a key that does nothing.
TYPING = """window.typing = setInterval(() => document.body.dispatchEvent(
  new KeyboardEvent("keydown", { key: "Shift", bubbles: true })), 500)"""


def ahead(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def row_of(page: Page, event_id: str) -> Locator:
    return page.locator(f'[data-rows="waiting"] > [data-key="{event_id}"]')


def rest_on(page: Page, target: Locator) -> dict[str, float]:
    """Move the pointer onto it and leave it there; returns where it is."""
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    return place_of(target)


def place_of(target: Locator) -> dict[str, float]:
    box = target.bounding_box()
    assert box is not None
    return {"x": box["x"], "y": box["y"]}


def test_a_new_event_is_a_card_at_once_and_the_row_under_the_pointer_stays(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol_set()
    first = listing(resources=("vm1",), not_before=ahead(600))
    fleet.all_say(first)
    page = open_page("/").page
    page.evaluate(COUNTS)
    button = row_of(page, EVENT).locator(".row-go")
    place = rest_on(page, button)
    second = listing(SECOND, resources=("vm2",), not_before=ahead(300))
    fleet.all_say(first, second)
    expect(row_of(page, SECOND)).to_be_in_viewport()
    assert place_of(button) == pytest.approx(place, abs=0.1)
    urgent = listing(URGENT, event_type="Preempt", resources=("vm3",), not_before=ahead(35))
    fleet.all_say(first, second, urgent)
    expect(row_of(page, URGENT).locator(".row-link")).to_be_visible()
    assert place_of(button) == pytest.approx(place, abs=0.1)
    expect(page.locator("#waiting-title")).to_contain_text("3 events")
    expect(page).to_have_title(re.compile(r"^\(3\) 0:"))
    # At no moment did one of them say something else than the others.
    assert {len(set(one.split())) for one in page.evaluate("[...window.counts]")} == {1}
    # A click does what it would have done before.
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(f"**/events/{EVENT}/**")


def test_a_row_that_is_gone_is_held_for_some_seconds_and_not_before_anything_urgent(
    fleet: Fleet, open_page: OpenPage
) -> None:
    fleet.enrol_set()
    first = listing(resources=("vm1",), not_before=ahead(600))
    second = listing(SECOND, resources=("vm2",), not_before=ahead(700))
    fleet.all_say(first, second)
    page = open_page("/").page
    rest_on(page, row_of(page, EVENT).locator("a").first)
    # A user keeps using the keyboard, so that no hold of a row would end automatically.
    page.evaluate(TYPING)
    fleet.all_say(second)
    expect(page.locator("#queue .pill")).to_have_text("Show changes")
    expect(row_of(page, EVENT)).to_have_count(1)
    urgent = listing(URGENT, event_type="Preempt", resources=("vm3",), not_before=ahead(60))
    fleet.all_say(second, urgent)
    expect(row_of(page, URGENT).locator(".row-link")).to_be_visible()
    expect(row_of(page, EVENT)).to_have_count(0)
    page.evaluate("clearInterval(window.typing)")
    page.evaluate(COUNTS)
    rest_on(page, row_of(page, SECOND).locator(".row-go"))
    fleet.all_say(urgent)
    expect(row_of(page, SECOND)).to_have_count(0)
    expect(page.locator("#waiting-title")).to_contain_text("1 event")
    expect(page.locator("#queue .pill")).to_have_count(0)
    assert {len(set(one.split())) for one in page.evaluate("[...window.counts]")} == {1}


def test_what_came_above_the_window_is_counted_where_it_can_be_seen(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol_set()
    events = [
        listing(f"0A1B2C3D-0000-4000-8000-0000000001{n}0", resources=(f"vm{n}",), not_before=ahead(600 + n))
        for n in range(1, 5)
    ]
    fleet.all_say(*events)
    page = open_page("/", viewport=SMALL).page
    last = row_of(page, events[-1]["EventId"])
    last.evaluate("row => row.scrollIntoView({ block: 'start' })")
    place = rest_on(page, last.locator("a").first)
    fleet.all_say(*events, listing(URGENT, event_type="Preempt", resources=("vm6",), not_before=ahead(100)))
    pill = page.locator("#queue .pill")
    expect(pill).to_contain_text("1 new above")
    expect(pill).to_be_in_viewport()
    assert place_of(last.locator("a").first) == pytest.approx(place, abs=0.1)
    pill.click()
    expect(row_of(page, URGENT).locator(".row-link")).to_be_in_viewport()
    expect(pill).to_have_count(0)


def test_what_changes_above_moves_nothing_below_that_is_aimed_at(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol_set()
    page = open_page("/").page
    link = page.locator("#cards .more")
    place = rest_on(page, link)
    fleet.all_say(listing(resources=("vm1",), not_before=ahead(600)))
    expect(row_of(page, EVENT)).to_have_count(1)
    expect(page.locator("#cards .card-events")).to_contain_text("vm1")
    assert place_of(link) == pytest.approx(place, abs=0.1)


@pytest.mark.parametrize("how", ["cancelled", "started", "decided"])
def test_the_panel_follows_at_once_whatever_is_under_the_pointer(fleet: Fleet, open_page: OpenPage, how: str) -> None:
    event = factories.announced(fleet)
    olga = factories.operator("olga")
    page = open_page(f"/events/{event.event_id}/").page
    button = page.get_by_role("button", name=START_NOW)
    rest_on(page, button)
    button.focus()
    # Keyboard use does not delay the panel either.
    page.evaluate(TYPING)
    if how == "cancelled":
        fleet.all_say()
    elif how == "started":
        fleet.all_say(listing(resources=("vm1", "vm2"), status="Started"))
    else:
        fleet.approve(by=olga)
    expect(button).to_have_count(0)
    expect(page.locator("#decision .decide-when")).to_have_count(1 if how == "decided" else 0)
    page.mouse.down()
    page.mouse.up()
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    assert Approval.objects.count() == (1 if how == "decided" else 0)


def test_the_panel_follows_also_when_a_decision_overtook_its_own_question(fleet: Fleet, open_page: OpenPage) -> None:
    event = factories.announced(fleet)
    page = open_page(f"/events/{event.event_id}/").page
    slow: list[Route] = []
    page.route(re.compile("part=decision"), lambda route: route.continue_() if slow else slow.append(route))
    with page.expect_request(re.compile("part=decision")):
        page.evaluate("htmx.trigger('#decision', 'refresh')")
    page.get_by_role("button", name=START_NOW).click()
    expect(page.locator("#decision .approval")).to_have_count(1)
    slow[0].continue_()
    fleet.all_say(listing(resources=("vm1", "vm2"), status="Started"))
    # Sooner than the panel asks by itself, which is every 15 seconds.
    expect(page.locator("#decision .decide-when")).to_have_count(0, timeout=9_000)


def test_what_a_decision_is_answered_is_shown_when_the_panel_is_asked_for_meanwhile(
    fleet: Fleet, open_page: OpenPage
) -> None:
    event = factories.announced(fleet)
    page = open_page(f"/events/{event.event_id}/").page
    slow: list[Route] = []
    page.route(re.compile("/hold/"), lambda route: slow.append(route))  # noqa: PLW0108 - Playwright wants a function
    page.locator("#decision summary", has_text="Leave to Azure").click()
    page.locator("#hold-reason").fill("let it run")
    with page.expect_request(re.compile("/hold/")):
        page.keyboard.press("Enter")
    claims.claim(event_id=event.event_id, actor=factories.acting(factories.operator("olga")), now=datetime.now(UTC))
    with page.expect_response(re.compile("part=decision")):
        page.evaluate("htmx.trigger('#decision', 'refresh')")
    slow[0].continue_()
    expect(page.locator("#decision [data-answer]")).to_have_count(1)


def test_a_button_that_comes_under_the_pointer_takes_no_click_meant_for_another(
    fleet: Fleet, open_page: OpenPage
) -> None:
    event = factories.announced(fleet)
    olga = factories.operator("olga")
    approval = fleet.approve(event.event_id, by=olga, when=When.TIME, due_at=fleet.now + timedelta(minutes=5))
    page = open_page(f"/events/{event.event_id}/").page
    rest_on(page, page.get_by_role("button", name="Withdraw"))
    # The click comes at the very moment in which the panel has changed.
    page.evaluate(
        """() => document.body.addEventListener("htmx:load", ({ detail }) => {
             if (detail.elt.id === "decision") window.came = true;
           })"""
    )
    conditions.withdraw(approval_id=approval.pk, actor=factories.acting(olga), now=datetime.now(UTC))
    page.wait_for_function("() => window.came")
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_role("button", name=START_NOW)).to_be_visible()
    page.wait_for_timeout(300)
    assert Approval.objects.count() == 1


def test_after_a_decision_by_keyboard_the_focus_is_on_undo_and_the_same_key_undoes_nothing(
    fleet: Fleet, open_page: OpenPage, own_gateway: Callable[..., Gateway]
) -> None:
    server = own_gateway(environment={"APPROVAL_UNDO_SECONDS": "10"})
    event = factories.announced(fleet)
    page = open_page(f"/events/{event.event_id}/", on=server).page
    start, undo = (page.get_by_role("button", name=name) for name in (START_NOW, "Undo"))
    start.focus()
    page.keyboard.press("Enter")
    expect(undo).to_be_focused()
    expect(page.locator("#decision .undo")).to_contain_text("otto approved")
    page.wait_for_timeout(700)
    page.keyboard.press("Enter")
    expect(page.locator("#decision [role=status][data-answer]")).to_be_visible()
    # The next Enter starts nothing.
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    assert [one.state for one in Approval.objects.all()] == ["WITHDRAWN"]
    # The offer ends with its time, also under the pointer.
    start.click()
    rest_on(page, undo)
    expect(undo).to_have_count(0, timeout=30_000)
    expect(page.locator("#decision")).not_to_contain_text("due now")


def test_the_promise_of_undoing_ends_before_the_last_minute(
    fleet: Fleet, open_page: OpenPage, own_gateway: Callable[..., Gateway]
) -> None:
    event = factories.announced(fleet, not_before=ahead(75))
    page = open_page(f"/events/{event.event_id}/", on=own_gateway(environment={"APPROVAL_UNDO_SECONDS": "10"})).page
    promise = page.get_by_text("can undo the approval")
    expect(promise).to_be_hidden(timeout=40_000)
    expect(page.get_by_text("cannot be undone")).to_be_visible()
