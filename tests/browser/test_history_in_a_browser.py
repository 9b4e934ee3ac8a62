"""What is read back, as people see it: on a phone in the dark, on a desk, and on paper."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.operations.approvals import claims
from tests import factories
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.story import tell
from tests.browser.test_everybody_can_use_it import serious
from tests.factories import Fleet

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


@pytest.mark.parametrize("phone", [True, pytest.param(False, marks=pytest.mark.long)])
def test_reports_are_for_everybody(fleet: Fleet, open_page: OpenPage, pictures: Path, phone: bool) -> None:
    story = tell(fleet)
    actor = factories.acting(factories.operator(), why="calling the database people")
    claims.claim(event_id=story.waiting, actor=actor, now=datetime.now(UTC))
    size = {"viewport": PHONE, "color_scheme": "dark"} if phone else {}
    watched = open_page("/reports/", **size)
    found = []
    pages = {
        "reports": "/reports/",
        "report-month": f"/reports/{datetime.now(UTC):%Y-%m}/",
        "report-event": f"/reports/events/{story.ended}/",
        "handover": "/handover/",
    }
    for name, path in pages.items():
        watched.open(path)
        found += serious(watched.page)
        wide = watched.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{path} is wider than its window by {wide} px"
        watched.picture(pictures / f"{name}{'-phone' if phone else ''}.png", full_page=True)
    assert found == []
    watched.open(pages["report-event"])
    # The printed page has no frame and no box that scrolls.
    watched.page.emulate_media(media="print", color_scheme="light")
    for frame in ("header.bar", "nav.tabs"):
        assert watched.page.locator(frame).is_hidden()
    assert watched.page.locator(".report-files").is_hidden()
    assert watched.page.locator(".report-verdict").is_visible()
    watched.picture(pictures / f"report-paper{'-phone' if phone else ''}.png", full_page=True)
