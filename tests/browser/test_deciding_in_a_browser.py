"""The decision panel in each of its states: for axe, in the dark, on a phone; and a proposal that two people make."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from fleet.domain.approvals.conditions import When
from fleet.models import Approval, Order
from fleet.operations.approvals import claims
from tests import factories
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.story import START_NOW
from tests.browser.test_everybody_can_use_it import serious
from tests.factories import Fleet, acting, listing, seconds

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

STATES = ("reasons", "proposed", "waiting", "held", "guarded")


def tell(fleet: Fleet) -> dict[str, str]:
    """EventIds of events in each state, in sets of their own."""
    ids = {}
    for number, state in enumerate(STATES):
        names = [f"{state}-{letter}" for letter in "abc"]
        for place, name in enumerate(names):
            fleet.enrol(name, availability_set=f"set-{state}", fault_domain=place)
            fleet.say(name)
        ids[state] = f"00000000-0000-4000-8000-{number:012}"
        event_type = {"reasons": "Redeploy", "proposed": "Reboot"}.get(state, "Freeze")
        hit = names if state == "proposed" else names[:1]
        fleet.later(0.1)
        told = [listing(ids[state], event_type=event_type, resources=hit, not_before=fleet.now + seconds(400 + number))]
        if state == "guarded":
            told.append(listing("OTHER-EVENT", resources=names[2:], not_before=fleet.now + seconds(700)))
        fleet.all_say(*told, names=names)
    otto = factories.operator()
    fleet.approve(ids["proposed"], comment="All three at once, nobody is in the shop.")
    fleet.approve(ids["waiting"], when=When.PREPARED, comment="Drains take a minute.")
    for state in ("held", "reasons"):
        claims.claim(event_id=ids[state], actor=acting(otto, why="calling the database people"), now=fleet.now)
    claims.hold(event_id=ids["held"], actor=acting(otto, why="The sale ends at midnight."), now=fleet.now)
    fleet.approve("OTHER-EVENT")
    return ids


@pytest.mark.parametrize("phone", [True, pytest.param(False, marks=pytest.mark.long)])
def test_every_state_can_be_used_by_everybody(fleet: Fleet, open_page: OpenPage, pictures: Path, phone: bool) -> None:
    ids = tell(fleet)
    factories.approver()
    size = {"viewport": PHONE, "color_scheme": "dark"} if phone else {}
    watched = open_page("/", who="anna", **size)
    watched.page.screenshot(path=pictures / f"deciding-queue{'-phone' if phone else ''}.png", full_page=True)
    found = serious(watched.page)
    for state, event_id in ids.items():
        watched.open(f"/events/{event_id}/")
        for box in watched.page.locator("#decision summary").all():
            box.click()
        found += serious(watched.page)
        wide = watched.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{state} is wider than its window by {wide} px"
        name = f"deciding-{state}{'-phone' if phone else ''}.png"
        watched.page.locator("#decision").screenshot(path=pictures / name)
    assert found == []
    # The second person agrees, and the panel updates without a reload.
    watched.open(f"/events/{ids['proposed']}/")
    watched.page.get_by_role("button", name=re.compile("^Agree: start .+ now$")).click()
    expect(watched.page.locator("#decision")).to_contain_text("anna agreed as the second person")


@pytest.mark.parametrize("field", ["at", "comment-time"])
def test_enter_in_a_time_field_never_starts_the_event_now(fleet: Fleet, open_page: OpenPage, field: str) -> None:
    event = factories.announced(fleet)
    page = open_page(f"/events/{event.event_id}/").page
    page.get_by_text("Approve for later").click()
    due = datetime.now(UTC) + timedelta(minutes=3)
    page.fill("#at", f"{due:%Y-%m-%dT%H:%M:%S}")
    page.locator(f"#{field}").press("Enter")
    expect(page.locator("#decision")).to_contain_text("It waits until")
    approval = Approval.objects.get(event=event)
    assert (approval.when, approval.state) == ("time", "WAITING")


# However high the header is, and whether or not it stays at the top.
HEADERS = {"as it is": "", "high": "header.bar { min-height: 240px }", "sticky": "header.bar { position: sticky }"}


@pytest.mark.parametrize(("event_type", "header"), [("Freeze", "high"), ("Terminate", "as it is")])
def test_on_a_phone_decide_shows_the_card_and_its_button_together(
    fleet: Fleet, open_page: OpenPage, event_type: str, header: str
) -> None:
    factories.announced(fleet, event_type=event_type, resources=("vm1",))
    page = open_page("/", viewport=PHONE, has_touch=True).page
    expect(page.locator("#queue .decide-advice")).to_be_visible()
    page.get_by_role("link", name=re.compile("^Decide")).tap()
    expect(page.get_by_role("button", name=START_NOW)).to_be_visible()
    page.evaluate(
        "css => { const sheet = new CSSStyleSheet(); sheet.replaceSync(css); document.adoptedStyleSheets.push(sheet);"
        " location.hash = ''; location.hash = 'decision' }",
        HEADERS[header],
    )
    page.wait_for_function("window.scrollY > 0")
    for part in (".decide-name", ".decide-when", ".decide-what", ".decide-stays", ".decide-advice", ".decide-nobody"):
        expect(page.locator(f"#decision {part}")).to_be_in_viewport(ratio=1)
    button = page.locator("#approve-now")
    expect(button).to_be_in_viewport(ratio=1)
    # Nothing lies over it: neither the bar of places nor the card.
    at = button.bounding_box()
    assert at is not None
    hit = page.evaluate(
        "([x, y]) => document.elementFromPoint(x, y).closest('button')?.id",
        [at["x"] + at["width"] / 2, at["y"] + at["height"] / 2],
    )
    assert hit == "approve-now"
    assert at["height"] >= 44


def test_a_click_can_be_undone_in_front_of_everybody(fleet: Fleet, open_page: OpenPage, settings: Any) -> None:
    # Long enough for a slow machine; the default is 3.
    settings.APPROVAL_UNDO_SECONDS = 10
    event = factories.announced(fleet)
    factories.operator("olga")
    hers = open_page(f"/events/{event.event_id}/#decision", who="olga", viewport=PHONE).page
    fleet.approve(event.event_id, when=When.UNDO)
    expect(hers.locator("#decision")).to_contain_text("by otto")
    expect(hers.locator("#decision .undo")).to_contain_text(re.compile(r"otto approved: goes to Azure in 0:0\d"))
    expect(hers.get_by_role("button", name="Undo")).to_be_in_viewport(ratio=1)
    hers.get_by_role("button", name="Undo").click()
    expect(hers.get_by_role("status").filter(has_text="Undone: nothing went to Azure.")).to_be_visible()
    expect(hers.get_by_role("button", name=START_NOW)).to_be_visible()
    assert not Order.objects.exists()


def test_a_line_about_many_machines_fits_a_phone(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol_set(prefix="a-machine-with-a-long-name-")
    fleet.later(1)
    fleet.all_say(listing(resources=("a-machine-with-a-long-name-1",)))
    page = open_page("/timeline/", viewport=PHONE).page
    expect(page.locator(".entry-who").filter(has_text="machines a-machine").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
