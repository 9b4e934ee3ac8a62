"""The pages of a drill in a real browser: begun on the set's page, marked everywhere, usable by everybody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fleet.models import Drill
from tests import factories
from tests.browser.conftest import PHONE, WIDE, OpenPage
from tests.browser.test_everybody_can_use_it import serious
from tests.drills.walking import Walk, answer, hooks, the_order
from tests.factories import Fleet

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


def test_an_operator_begins_a_drill_on_the_page_of_a_set(fleet: Fleet, open_page: OpenPage) -> None:
    fleet.enrol_set(3)
    watched = open_page("/")
    watched.open(f"/sets/{factories.the_set().pk}/")
    page = watched.page
    page.get_by_text("Begin a drill", exact=True).click()
    page.get_by_label("vm2").check()
    page.get_by_role("button", name="Begin the drill").click()
    expect(page.locator("#drill-body h1")).to_contain_text("of vm2")
    assert Drill.objects.get().event.resources == ["vm2"]


@pytest.mark.parametrize(
    ("scheme", "size"),
    [
        ("dark", WIDE),
        pytest.param("light", WIDE, marks=pytest.mark.long),
        pytest.param("light", PHONE, marks=pytest.mark.long),
    ],
)
def test_every_page_of_a_drill_can_be_used_by_everybody(
    fleet: Fleet, open_page: OpenPage, tmp_path: Path, scheme: str, size: dict[str, int]
) -> None:
    fleet.enrol_set(3)
    walk = Walk(fleet, machines=["vm1", "vm2"])
    answer(fleet, "vm3", the_order(fleet, "vm3", "rehearse"), outcome="refused", reason="not-listed")
    walk.announced("vm1", "vm2")
    hooks(fleet, "vm1", walk.event.event_id, "prepare")
    walk.approved()
    walk.all_say("started")
    home = walk.event.availability_set_id
    paths = ("/", "/drills/", f"/drills/{walk.drill.pk}/", f"/events/{walk.event.event_id}/", f"/sets/{home}/")
    target = Path(os.environ.get("SCREENSHOTS") or tmp_path)
    found = []
    watched = open_page("/", color_scheme=scheme, viewport=size)
    for number, path in enumerate(paths):
        watched.open(path)
        if path.startswith("/sets/"):
            watched.page.get_by_text("Begin a drill", exact=True).click()
        watched.page.locator(".drill-badge").first.wait_for()
        found += serious(watched.page)
        wide = watched.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{path} is wider than its window by {wide} px"
        if os.environ.get("DRILL_PICTURES"):
            watched.picture(target / f"drill-{scheme}-{size['width']}-{number}.png", full_page=True)
    assert found == []
