"""Decisions in a browser: each state of the panel, on a phone, several at once, and what goes wrong in the middle."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from playwright.sync_api import expect

from fleet.domain.approvals.conditions import When
from fleet.models import Approval, Order
from fleet.operations.approvals import claims
from tests import factories
from tests.browser.conftest import PHONE, OpenPage, width_beyond
from tests.browser.story import START_NOW
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
    fleet.approve(ids["proposed"], comment="All three at once, the shop is closed.")
    fleet.approve(ids["waiting"], when=When.PREPARED, comment="Drains take a minute.")
    for state in ("held", "reasons"):
        claims.claim(event_id=ids[state], actor=acting(otto, why="calling the database people"), now=fleet.now)
    claims.hold(event_id=ids["held"], actor=acting(otto, why="The sale ends at midnight."), now=fleet.now)
    fleet.approve("OTHER-EVENT")
    return ids


WINDOWS = [PHONE, *({"width": width, "height": height} for width, height in ((1280, 800), (1366, 768), (1440, 900)))]
TYPES = ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
# The next button that a user presses, in each state.
BUTTONS = {"proposed": "#decision .approve", "waiting": "form[action$='/withdraw/'] button", "held": ".held button"}


@pytest.mark.parametrize(
    "window", [*WINDOWS[:2], *(pytest.param(each, marks=pytest.mark.long) for each in WINDOWS[2:])]
)
def test_every_state_can_be_used_by_everybody_and_its_buttons_are_seen_without_scrolling(
    fleet: Fleet, open_page: OpenPage, window: Any
) -> None:
    ids = tell(fleet)
    events = {event_id: BUTTONS.get(state, "#approve-now") for state, event_id in ids.items()}
    for number, event_type in enumerate(TYPES):
        names = [f"vm-{number}-{letter}" for letter in "abc"]
        for name in names:
            fleet.enrol(name, availability_set=f"set-of-{event_type}")
            fleet.say(name)
        due = fleet.now + seconds(900)
        fleet.all_say(
            listing(f"TYPE-{number}", event_type=event_type, resources=names[:2], not_before=due), names=names
        )
        events[f"TYPE-{number}"] = "#approve-now"
    factories.approver()
    watched = open_page("/", who="anna", viewport=window, color_scheme="dark" if window == PHONE else "light")
    page, faults = watched.page, watched.faults()
    heights = [page.locator(part).bounding_box() for part in (".bar", ".under-bar")]
    assert window != PHONE or sum(height["height"] for height in heights if height) <= 120
    for event_id, button in events.items():
        for place in ("", "#decision"):
            page.goto("about:blank")
            watched.open(f"/events/{event_id}/{place}")
            for part in ("h1", "#decision .countdown", ".decide-what", ".decide-stays", button):
                expect(page.locator(part).first).to_be_in_viewport(ratio=1)
        for box in page.locator("#decision summary").all():
            box.click()
        faults += watched.faults()
    assert faults == []
    # The second person agrees, and the panel updates without a reload. The walk takes minutes on a slow machine, and
    # without a live agent nothing can be approved.
    fleet.later((datetime.now(UTC) - fleet.now).total_seconds())
    fleet.heard()
    watched.open(f"/events/{ids['proposed']}/")
    page.get_by_role("button", name=re.compile("^Agree: ")).click()
    expect(page.locator("#decision")).to_contain_text("anna agreed as the second person")


@pytest.mark.parametrize("field", ["at", "comment-time"])
def test_enter_in_a_time_field_never_starts_the_event_now(fleet: Fleet, open_page: OpenPage, field: str) -> None:
    event = factories.announced(fleet)
    page = open_page(f"/events/{event.event_id}/").page
    page.get_by_text("When prepared, or at a time").click()
    due = datetime.now(UTC) + timedelta(minutes=3)
    page.fill("#at", f"{due:%Y-%m-%dT%H:%M:%S}")
    page.locator(f"#{field}").press("Enter")
    expect(page.locator("#decision [data-code=waits-for-time]")).to_be_visible()
    approval = Approval.objects.get(event=event)
    assert (approval.when, approval.state) == ("time", "WAITING")


def test_at_not_before_nothing_can_be_approved_even_without_an_update(fleet: Fleet, open_page: OpenPage) -> None:
    event = factories.announced(fleet, not_before=datetime.now(UTC) + timedelta(seconds=12))
    queue, page = open_page("/").page, open_page(f"/events/{event.event_id}/").page
    box, button = queue.locator("#queue input[name=event]"), page.locator("#approve-now")
    expect(button).to_be_enabled()
    box.check()
    for each in (queue, page):
        # From here on no request of theirs is answered.
        each.route("**/*", lambda route: None)
    expect(button).to_be_disabled(timeout=20_000)
    expect(box).to_be_disabled()
    expect(box).not_to_be_checked()


# However high the header is.
@pytest.mark.parametrize(("event_type", "header"), [("Freeze", "header.bar { min-height: 240px }"), ("Terminate", "")])
def test_on_a_phone_decide_shows_the_card_and_its_button_together(
    fleet: Fleet, open_page: OpenPage, event_type: str, header: str
) -> None:
    factories.announced(fleet, event_type=event_type, resources=("vm1",))
    page = open_page("/", viewport=PHONE, has_touch=True).page
    expect(page.locator("#queue .desk-advice")).to_be_visible()
    page.get_by_role("link", name=re.compile("^Decide")).tap()
    expect(page.get_by_role("button", name=START_NOW)).to_be_visible()
    page.evaluate(
        "css => { const sheet = new CSSStyleSheet(); sheet.replaceSync(css); document.adoptedStyleSheets.push(sheet);"
        " location.hash = ''; location.hash = 'decision' }",
        header,
    )
    page.wait_for_function("window.scrollY > 0")
    expect(page.locator("h1")).to_be_in_viewport(ratio=1)
    for part in (".decide-when", ".decide-what", ".decide-stays", "[data-fact=advice]", "[data-fact=default]"):
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
    expect(hers.locator("#decision .undo")).to_contain_text(re.compile(r"otto approved.* in 0:0\d"))
    expect(hers.get_by_role("button", name="Undo")).to_be_in_viewport(ratio=1)
    hers.get_by_role("button", name="Undo").click()
    expect(hers.locator("#decision [role=status][data-answer]")).to_be_visible()
    expect(hers.get_by_role("button", name=START_NOW)).to_be_visible()
    assert not Order.objects.exists()


def test_a_line_about_many_machines_fits_a_phone(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol_set(prefix="a-machine-with-a-long-name-")
    fleet.later(1)
    fleet.all_say(listing(resources=("a-machine-with-a-long-name-1",)))
    page = open_page("/timeline/?kind=event_sighted", viewport=PHONE).page
    expect(page.locator(".entry-who").filter(has_text="machines a-machine").first).to_be_visible()
    assert width_beyond(page) <= 0


PASSWORD = "a pier of green heart"


def known(password: str) -> Callable[[], object]:
    """Otto has this password; the answer ends all sessions."""
    otto = User.objects.get(username="otto")
    # As the server reads it: the tests' own passwords are hashed quickly, and only for themselves.
    otto.password = PBKDF2PasswordHasher().encode(password, "salt", iterations=10)
    otto.save()
    return Session.objects.all().delete


def test_an_ended_session_asks_for_the_password_in_place_and_a_failure_keeps_what_was_typed(
    fleet: Fleet, open_page: OpenPage
) -> None:
    event = factories.announced(fleet)
    watched = open_page(f"/events/{event.event_id}/", viewport=PHONE)
    end_sessions = known(PASSWORD)
    watched.expected = ("401", "503")
    page = watched.page
    page.locator("#comment-now").fill("drained, the shop knows")
    end_sessions()
    # A part of the page may have asked in between, and the box be there already.
    page.locator("#approve").evaluate("form => form.requestSubmit()")
    box = page.get_by_role("dialog", name="Your session has ended")
    expect(box.get_by_label("Name")).to_have_value("otto")
    expect(box.get_by_label("Password")).to_be_focused()
    box.get_by_label("Password").fill("wrong")
    box.get_by_role("button", name="Sign in and continue").click()
    expect(box.get_by_role("alert")).to_contain_text("password is wrong")
    box.get_by_label("Password").fill(PASSWORD)
    box.get_by_label("Password").press("Enter")
    expect(page.locator(".again-done")).to_be_visible()
    expect(page.locator("#comment-now")).to_have_value("drained, the shop knows")
    assert not Approval.objects.exists()
    # The next click meets a database that does not answer.
    page.route("**/approve/", lambda route: route.fulfill(status=503, content_type="text/html", body=AWAY))
    page.get_by_role("button", name=START_NOW).click()
    expect(page.locator("#approve").get_by_role("alert")).to_contain_text("The database is unavailable")
    expect(page.locator("#comment-now")).to_have_value("drained, the shop knows")
    page.unroute("**/approve/")
    expect(page.get_by_role("button", name="Try again")).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#decision")).to_contain_text(re.compile("Approved"))
    assert Approval.objects.get().comment == "drained, the shop knows"


AWAY = """<!doctype html><html><body><main id="main"><h1>The database is unavailable</h1>
<p class="what-to-do">The database cannot be reached right now.</p></main></body></html>"""


def announce(fleet: Fleet, count: int) -> None:
    """So many events in sets of their own; the last is a Reboot."""
    for number in range(count):
        names = [f"web-{number}-{letter}" for letter in "abc"]
        for domain, name in enumerate(names):
            fleet.enrol(name, availability_set=f"web-{number}", fault_domain=domain)
            fleet.say(name)
        fleet.later(0.1)
        told = listing(
            f"00000000-0000-4000-8000-{number:012}",
            event_type="Reboot" if number == count - 1 else "Freeze",
            resources=names[:1],
            not_before=fleet.now + seconds(600 + 10 * number),
        )
        fleet.all_say(told, names=names)


@pytest.mark.parametrize(("window", "count"), [(PHONE, 6), (WINDOWS[1], 14)])
def test_many_events_are_seen_at_a_glance(fleet: Fleet, open_page: OpenPage, window: Any, count: int) -> None:
    announce(fleet, 14)
    page = open_page("/", viewport=window).page
    rows = page.locator("#queue [data-rows=waiting] > li")
    expect(rows).to_have_count(14)
    end = page.locator(".places" if window == PHONE else "#pick")
    last, bar = rows.nth(count - 1).bounding_box(), end.bounding_box()
    assert last and bar
    assert last["y"] + last["height"] <= bar["y"]
    # The reason of a recommendation opens by keyboard, and lies above everything else.
    rows.nth(count - 1).locator(".why > summary").press("Enter")
    expect(rows.nth(count - 1).locator(".why-box")).to_be_visible()


def test_a_range_is_selected_kept_and_approved(fleet: Fleet, open_page: OpenPage) -> None:
    announce(fleet, 6)
    watched = open_page("/")
    page = watched.page
    boxes = page.locator("#queue input[name=event]")
    boxes.nth(1).check()
    boxes.nth(4).click(modifiers=["Shift"])
    count = page.locator(".pick-count")
    expect(count).to_have_text("4 selected")
    # A part of the page that is replaced keeps what is ticked.
    fleet.say("web-0-a", listing("NEW-EVENT", resources=["web-0-b"], not_before=fleet.now + seconds(900)))
    expect(page.locator("#queue")).to_contain_text("7 events need a decision")
    expect(count).to_have_text("4 selected")
    expect(page.locator("#queue input[name=event]:checked")).to_have_count(4)
    assert watched.faults() == []
    page.locator("#pick").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="Approve several events")).to_be_visible()
    expect(page.locator("#bulk input[name=event]:checked")).to_have_count(4)
    assert watched.faults() == []
    page.get_by_role("button", name=re.compile("^Start now")).click()
    expect(page.get_by_role("heading", name="4 approved")).to_be_visible()
    assert Approval.objects.count() == 4
    watched.open("/")
    expect(page.locator("#queue input[name=event]:checked")).to_have_count(0)


def test_what_the_filter_hides_stays_selected_and_is_said(fleet: Fleet, open_page: OpenPage) -> None:
    announce(fleet, 4)
    watched = open_page("/history/", viewport=PHONE)
    page = watched.page
    for box in page.locator("input[name=event]").all():
        box.check()
    expect(page.locator(".pick-count")).to_have_text("4 selected")
    watched.open("/history/?type=Reboot")
    expect(page.locator(".pick-count")).to_have_text("4 selected, 3 of them hidden by the filter")
    assert width_beyond(page) <= 0
    page.locator("#pick").get_by_role("button", name="Claim").click()
    expect(page.locator("#bulk input[name=event]:checked")).to_have_count(4)
    assert width_beyond(page) <= 0
