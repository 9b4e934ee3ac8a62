"""Accessibility, checked by axe-core in a real browser, and what can be done with the keyboard alone."""

from base64 import b64encode
from collections.abc import Mapping
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from fleet.dashboard.tags import icon
from fleet.models import AvailabilitySet, PresenceRow, ScheduledEvent
from fleet.notifications.channels import KINDS
from fleet.operations.policy import rules as stop
from fleet.urls import PAGES
from tests import accounts, factories
from tests.access.walks import pages
from tests.access.world import busy_world
from tests.browser.conftest import PHONE, OpenPage, Watched, described, width_beyond
from tests.browser.story import START_NOW
from tests.browser.test_deciding_in_a_browser import announce
from tests.dashboard.conftest import logged_in
from tests.dashboard.test_states_have_shape_and_words import TABLES
from tests.factories import EVENT, Fleet, acting, listing, seconds

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


# What WCAG 2.2 asks for up to level AA, and axe-core's own good practice: landmarks, headings, regions.
RULES = {
    "runOnly": {
        "type": "tag",
        "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"],
    },
    "rules": {"target-size": {"enabled": True}},
}
# Controls that a thumb has to hit: all but links within a sentence or a cell, which WCAG leaves out as well.
SMALL_TARGETS = """() => {
  const controls = "button, summary, select, textarea, input:not([type=hidden]):not([type=checkbox]):not([type=radio]),"
    + " a.btn, nav a, label:has(input), .more, th[scope=row] > a, .row-link, .who-link";
  const found = [];
  for (const node of document.querySelectorAll(controls)) {
    const box = node.getBoundingClientRect();
    if (!node.checkVisibility({ visibilityProperty: true }) || !box.width) continue;
    if (node.closest(".visually-hidden, .skip")) continue;
    if (box.height < 43.5 || box.width < 43.5) {
      const size = `${Math.round(box.width)} x ${Math.round(box.height)}`;
      found.push(`${node.tagName.toLowerCase()}.${node.className} "${node.textContent.trim().slice(0, 30)}" ${size}`);
    }
  }
  for (const node of document.querySelectorAll("input[type=checkbox], input[type=radio]")) {
    const label = node.labels[0];
    if (!label || !node.checkVisibility()) continue;
    const height = Math.max(label.getBoundingClientRect().height, node.parentElement.getBoundingClientRect().height);
    if (height < 43.5) found.push(`checkbox "${label.textContent.trim().slice(0, 30)}" ${Math.round(height)}`);
  }
  return found;
}"""


# What the theme and the size change; names, roles and landmarks are the same in both.
SEEN = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block", "target-size"]}}


# How pages are seen, with the rules that it may break. The browser runs all with reduced motion.
DESK = {"width": 1280, "height": 800}
VIEWS: dict[str, tuple[dict[str, Any], Mapping[str, object]]] = {
    "dark": ({"viewport": DESK, "color_scheme": "dark"}, SEEN),
    "phone": ({"viewport": PHONE}, RULES),
    # 1280 x 800 at 200 %.
    "zoomed": ({"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}, RULES),
    "forced": ({"viewport": DESK, "forced_colors": "active"}, RULES),
}
# Controls that the keyboard does not reach. In the map of the fleet the arrow keys move.
UNREACHED = """() => [...document.querySelectorAll("a, button, summary, select, textarea, input:not([type=hidden])")]
  .filter((node) => node.checkVisibility() && !node.disabled && !node.closest(".map"))
  .filter((node) => node.tabIndex < 0 || node.matches("a:not([href])"))
  .map((node) => node.outerHTML.slice(0, 90))"""


def faults(page: Page, rules: Mapping[str, object] = RULES) -> list[str]:
    """Everything that axe-core finds by these rules, however small, each with its first place."""
    violations = Axe().run(page, options=dict(rules)).response["violations"]
    return [
        described(page, one)
        for one in violations
        # What lies half under the bar at the bottom comes forth by scrolling.
        if not all("partially obscured" in node.get("failureSummary", "") for node in one["nodes"])
    ]


def looked_at(watched: Watched, *paths: str, rules: Mapping[str, object] = RULES) -> list[str]:
    """Return the accessibility faults of pages, at the size and in the theme that they are opened in."""
    page, found = watched.page, list[str]()
    for path in paths:
        watched.open(path)
        if page.locator("#raw").count():
            page.locator("#raw").scroll_into_view_if_needed()
            page.locator("#raw > *").first.wait_for()
        page.evaluate("for (const box of document.querySelectorAll('main details:not([name])')) box.open = true")
        page.evaluate("scrollTo(0, 0)")
        found += faults(page, rules)
        found += [f"{path}: without a keyboard: {one}" for one in page.evaluate(UNREACHED)]
        if width_beyond(page) > 0:
            found.append(f"{path} is wider than its window by {width_beyond(page)} px")
        viewport = page.viewport_size
        if viewport and viewport["width"] < 500:
            found += [f"{path}: too small for a thumb: {one}" for one in page.evaluate(SMALL_TARGETS)]
    return found


# Together: contrast in both schemes, sizes of targets at three widths, and the pages of a reader.
SEEN_BY = [("ada", "dark"), ("ada", "phone"), ("ada", "zoomed"), ("vera", "forced")]


@pytest.mark.long
@pytest.mark.parametrize(("who", "view"), SEEN_BY, ids=map("-".join, SEEN_BY))
def test_every_page_of_the_routing_table_can_be_used_by_everybody(
    fleet: Fleet, open_page: OpenPage, who: str, view: str
) -> None:
    whole = busy_world()
    person = factories.admin() if who == "ada" else factories.viewer()
    accounts.token(user=person, name="The deployment pipeline", scopes=["read"], now=fleet.now)
    window, rules = VIEWS[view]
    paths = [address for address, _ in pages(logged_in(person), whole.values)]
    assert len(paths) > 40
    paths += ["/bulk/?do=approve&all=on&of=queue", "/waves/begin/?service=pier"]
    if view == "phone":
        # Of other views one example of each page: they have the same words.
        paths += [f"/events/{event_id}/" for event_id in ScheduledEvent.objects.values_list("event_id", flat=True)]
        paths += [f"/channels/new/{kind}/" for kind in KINDS]
    watched = open_page("/", who=who, **window)
    found = looked_at(watched, *paths, rules=rules)
    watched.expected = ("404",)
    found += looked_at(watched, "/no/such/page/", "/sets/999999/", rules=rules)
    watched.page.context.clear_cookies()
    assert found + looked_at(watched, "/accounts/login/", rules=rules) == []


@pytest.mark.parametrize("view", ["zoomed", "forced"])
def test_a_long_queue_and_a_decision_can_be_used_by_everybody(fleet: Fleet, open_page: OpenPage, view: str) -> None:
    announce(fleet, 18)
    AvailabilitySet.objects.filter(name__in=[f"web-{number}" for number in range(9, 17)]).update(service="shop")
    window, rules = VIEWS[view]
    watched = open_page("/", **window)
    page = watched.page
    found = looked_at(watched, "/", rules=rules)
    fold = page.locator("#queue .fold > details")
    fold.locator("> summary").press("Enter")
    rows = fold.locator(".desk-row")
    expect(rows.first).to_be_hidden()
    # The next key goes past what is closed, and the one after the group is open goes into it.
    fold.locator("> summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    expect(rows.first.locator(".row-link")).to_be_focused()
    page.keyboard.press("k")
    expect(fold.locator("> summary")).to_be_focused()
    # It stays open, and the focus where it is, when the part is renewed.
    fleet.say("web-0-a", listing("NEW-EVENT", resources=["web-0-b"], not_before=fleet.now + seconds(900)))
    expect(page.locator("#waiting-title")).to_contain_text("19 events")
    expect(rows).to_have_count(8)
    expect(rows.first).to_be_visible()
    expect(fold.locator("> summary")).to_be_focused()
    page.get_by_role("link", name="shop 8").click()
    expect(page.locator("#queue .desk-row")).to_have_count(8)
    found += looked_at(watched, "/events/00000000-0000-4000-8000-000000000003/#decision", rules=rules)
    assert found == []
    page.goto("about:blank")
    watched.open("/events/00000000-0000-4000-8000-000000000003/#decision")
    for part in ("#decision .countdown", "#approve-now"):
        expect(page.locator(part)).to_be_in_viewport(ratio=1)


# What an empty installation has: pages whose address names nothing.
BARE = [f"/{pattern.pattern}" for pattern in PAGES if "<" not in str(pattern.pattern)]


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "rules"), [("light", RULES), ("dark", SEEN)])
def test_an_empty_installation_can_be_used_by_everybody(
    open_page: OpenPage, scheme: str, rules: Mapping[str, object]
) -> None:
    session = logged_in(factories.admin())
    watched = open_page("/", who="ada", color_scheme=scheme, viewport=PHONE)
    answers: dict[str, Any] = {path: session.get(path) for path in BARE}
    shown = {path: answer for path, answer in answers.items() if b"<main" in getattr(answer, "content", b"")}
    assert looked_at(watched, *(path for path in shown if shown[path].status_code == 200), rules=rules) == []


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_fleet_in_trouble_can_be_used_by_everybody(fleet: Fleet, open_page: OpenPage, scheme: str) -> None:
    """Everything is stopped, no agent is live, a form was refused, and the pages have not been renewed for a while."""
    values, past = busy_world().values, fleet.now - timedelta(minutes=30)
    PresenceRow.objects.update(last_heard_at=past, last_poll_at=past)
    stop.stop_all(actor=acting(factories.admin(), why="Something is wrong."), now=fleet.now)
    watched = open_page("/", who="ada", color_scheme=scheme, viewport=PHONE)
    page = watched.page
    places = (f"/sets/{values['stray_id']}/", f"/events/{EVENT}/", "/blind-spots/", "/machines/", "/stop/")
    found = looked_at(watched, "/", "/fleet/", *places)
    watched.expected = ("422",)
    watched.open("/inventory/")
    page.get_by_label("Or paste the output").fill("no inventory")
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_role("alert").last).to_contain_text("This is not JSON")
    found += faults(page)
    page.evaluate("document.getElementById('live').dataset.state = 'stale'")
    found += faults(page)
    assert found == []


def test_axe_finds_nothing_serious_where_an_admin_makes_join_tokens(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol("vm1")
    factories.admin()
    watched = open_page("/join-tokens/", who="ada", live=False, viewport=PHONE)
    page = watched.page
    page.get_by_label("Purpose").fill("rack 7")
    page.get_by_role("button", name="Create the join token").click()
    expect(page.locator("#install-linux")).to_contain_text("DRYDOCK_JOIN_TOKEN=join_")
    assert watched.faults() == []


def test_a_decision_can_be_made_with_the_keyboard_alone(fleet: Fleet, open_page: OpenPage) -> None:
    event = factories.announced(fleet)
    page = open_page("/").page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    # The first row comes after what chooses several rows.
    for _ in range(6):
        page.keyboard.press("Tab")
        if event.event_id in (page.evaluate("document.activeElement.getAttribute('href')") or ""):
            break
    row = page.locator(f'[data-rows="waiting"] [data-key="{event.event_id}"]')
    expect(row.locator("a").first).to_be_focused()
    page.keyboard.press("Enter")
    page.locator("#comment-now").focus()
    page.keyboard.type("no mouse")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name=START_NOW)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#decision")).to_contain_text("no mouse")
    expect(page.locator("#decision")).to_contain_text("by otto")


def test_a_row_is_selected_with_the_keyboard_where_rows_can_be(fleet: Fleet, open_page: OpenPage) -> None:
    announce(fleet, 2)
    AvailabilitySet.objects.update(service="shop")
    page = open_page("/waves/begin/?service=shop").page
    boxes = page.locator('[data-rows="candidates"] input[type=checkbox]')
    before = [box.is_checked() for box in boxes.all()]
    assert before
    page.keyboard.press("j")
    expect(boxes.first).to_be_focused()
    page.keyboard.press("x")
    assert [box.is_checked() for box in boxes.all()] == [not before[0], *before[1:]]
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("select the row")


# How Chromium imitates eyes that see colours otherwise, or none.
EYES = ("achromatopsia", "deuteranopia", "protanopia", "tritanopia")
# Of two pictures of equal size, how many points differ so much that an eye sees it.
DIFFERING = """async ([first, second]) => {
  const points = async (data) => {
    const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const canvas = new OffscreenCanvas(image.width, image.height);
    const drawn = canvas.getContext("2d");
    drawn.drawImage(image, 0, 0);
    return drawn.getImageData(0, 0, image.width, image.height).data;
  };
  const [one, other] = [await points(first), await points(second)];
  let count = 0;
  for (let at = 0; at < Math.min(one.length, other.length); at += 4) {
    const far = [0, 1, 2].reduce((sum, part) => sum + Math.abs(one[at + part] - other[at + part]), 0);
    if (far > 150) count += 1;
  }
  return count;
}"""


@pytest.mark.long
def test_states_stay_apart_for_eyes_that_see_no_colours(fleet: Fleet, open_page: OpenPage) -> None:
    watched = open_page("/first-steps/", who=factories.admin().get_username(), live=False)
    page, session = watched.page, watched.page.context.new_cdp_session(watched.page)
    blank = page.context.new_page()
    # Each mark as pages draw it, at its size in lists.
    for name in ("Presence", "EventStatus", "ApprovalState", "Prepared", "MaintenanceStatus", "Phase"):
        looks = list({look.icon: look for look in TABLES[name].values()}.values())
        marks = "".join(f'<span class="chip tone-{look.tone}">{icon(look.icon, 14)}</span> ' for look in looks)
        page.evaluate("(marks) => { document.getElementById('main').innerHTML = marks }", marks)
        for eyes in EYES[: 1 if name != "Presence" else None]:
            session.send("Emulation.setEmulatedVisionDeficiency", {"type": eyes})
            shots = [b64encode(mark.screenshot()).decode() for mark in page.locator("#main .chip").all()]
            for (one, first), (other, second) in combinations(zip(looks, shots, strict=True), 2):
                count = blank.evaluate(DIFFERING, [first, second])
                assert count >= 12, f"{name}: {one.label} and {other.label} look alike to {eyes} ({count} points)"
