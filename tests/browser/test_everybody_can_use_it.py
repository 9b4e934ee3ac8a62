"""Accessibility, checked by axe-core in a real browser, and what can be done with the keyboard alone."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from fleet.operations.people.tokens import issue_token
from tests import factories
from tests.browser.conftest import PHONE, WIDE, OpenPage
from tests.browser.story import START_NOW, tell
from tests.factories import Fleet

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


def serious(page: Page) -> list[str]:
    """What axe-core calls serious or critical, each with its first place."""
    found = Axe().run(page)
    return [
        f"{page.url} {one['id']}: {one['nodes'][0]['html'][:160]} {one['nodes'][0].get('failureSummary', '')[:300]}"
        for one in found.response["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize(
    ("scheme", "size"),
    [
        ("light", PHONE),
        pytest.param("light", WIDE, marks=pytest.mark.long),
        pytest.param("dark", WIDE, marks=pytest.mark.long),
    ],
)
def test_axe_finds_nothing_serious_on_any_page(fleet: Fleet, open_page: OpenPage, scheme: str, size: object) -> None:
    story = tell(fleet)
    issue_token(user=factories.operator(), name="The deployment pipeline", scopes=["read"], now=fleet.now)
    watched = open_page("/", color_scheme=scheme, viewport=size)
    found = []
    for path in (
        "/",
        "/sets/",
        f"/sets/{story.set_id}/",
        "/machines/",
        f"/machines/{story.machine_id}/",
        "/history/",
        f"/events/{story.waiting}/",
        f"/events/{story.under_way}/",
        f"/events/{story.ended}/",
        f"/events/{story.ended}/documents/",
        "/timeline/",
        "/blind-spots/",
        "/audit/",
        "/you/",
        "/you/password/",
        "/policy/",
    ):
        watched.open(path)
        if watched.page.locator("#raw").count():
            watched.page.locator("#raw").scroll_into_view_if_needed()
            watched.page.locator("#raw article").first.wait_for()
        found += serious(watched.page)
        wide = watched.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{path} is wider than its window by {wide} px"
    watched.page.context.clear_cookies()
    watched.open("/accounts/login/")
    found += serious(watched.page)
    assert found == []


def test_axe_finds_nothing_serious_where_an_admin_makes_join_tokens(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol("vm1")
    factories.admin()
    page = open_page("/join-tokens/", who="ada", live=False, viewport=PHONE).page
    page.get_by_label("What is it for?").fill("rack 7")
    page.get_by_role("button", name="Make the join token").click()
    expect(page.locator("#agent-settings")).to_contain_text("DRYDOCK_JOIN_TOKEN=join_")
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


@pytest.mark.parametrize("size", [WIDE, pytest.param(PHONE, marks=pytest.mark.long)])
def test_axe_finds_nothing_serious_where_an_admin_names_and_merges_sets(
    fleet: Fleet, open_page: OpenPage, size: object
) -> None:
    tell(fleet)
    factories.admin()
    stray = fleet.agents["stray-vm"].machine.availability_set_id
    page = open_page(f"/sets/{stray}/", who="ada", viewport=size).page
    page.get_by_text("Merge this set into another").click()
    assert serious(page) == []
    page.get_by_label("Name", exact=True).fill("harbour")
    page.get_by_label("Kind").select_option("cloud_service")
    page.get_by_role("button", name="Name it").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("harbour")
    page.get_by_text("Merge this set into another").click()
    page.get_by_label("The set that remains").select_option(label="web (availability set)")
    page.get_by_role("button", name="Merge").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("web")
    expect(page.locator("#history")).to_contain_text("ada merged")


def test_a_decision_can_be_made_with_the_keyboard_alone(fleet: Fleet, open_page: OpenPage) -> None:
    event = factories.announced(fleet)
    page = open_page("/").page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
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
