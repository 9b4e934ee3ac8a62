"""The pictures of the documentation, taken from the running product."""

from pathlib import Path

import pytest

from tests.browser.conftest import PHONE, WIDE, OpenPage
from tests.browser.story import tell
from tests.factories import Fleet

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

KINDS = {
    "light": {"viewport": WIDE, "color_scheme": "light"},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "device_scale_factor": 2},
}


@pytest.mark.parametrize("kind", ["light", *[pytest.param(kind, marks=pytest.mark.long) for kind in ("dark", "phone")]])
def test_queue_set_and_event_can_be_pictured(fleet: Fleet, open_page: OpenPage, pictures: Path, kind: str) -> None:
    story = tell(fleet)
    watched = open_page("/", **KINDS[kind])
    for name, path in (
        ("queue", "/"),
        ("set", f"/sets/{story.set_id}/"),
        ("event", f"/events/{story.waiting}/"),
        ("event-over", f"/events/{story.ended}/"),
    ):
        watched.open(path)
        watched.live()
        raw = watched.page.locator("#raw")
        if raw.count():
            raw.scroll_into_view_if_needed()
            raw.locator("article").first.wait_for()
            watched.page.evaluate("scrollTo(0, 0)")
        watched.page.wait_for_timeout(400)
        target = pictures / f"{name}-{kind}.png"
        watched.picture(target, full_page=kind != "phone")
        assert target.stat().st_size > 20_000
