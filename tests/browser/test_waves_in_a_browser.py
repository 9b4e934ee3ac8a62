"""A wave and what can be done by hand, in a real browser: readable by everybody, alive, and copied by one click."""

from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fleet.models import AvailabilitySet, Wave
from fleet.operations import waves
from tests import factories
from tests.browser.conftest import PHONE, WIDE, OpenPage
from tests.browser.test_everybody_can_use_it import serious
from tests.factories import Fleet, listing

pytestmark = [pytest.mark.browser, pytest.mark.real_time]

IDS = [f"0A1B2C3D-0000-4000-8000-00000000000{number}" for number in range(1, 4)]


def begun(fleet: Fleet) -> Wave:
    """Three events of a service, the first of them on its way."""
    fleet.enrol_set(3)
    AvailabilitySet.objects.update(service="shop")
    fleet.all_say(
        *[
            listing(
                event_id,
                event_type="Reboot",
                resources=[f"vm{number}"],
                not_before=fleet.now + timedelta(minutes=15 * number),
            )
            for number, event_id in enumerate(IDS, 1)
        ]
    )
    return waves.begin(actor=factories.acting(factories.operator(), why="patch night"), service="shop", now=fleet.now)


@pytest.mark.parametrize("kind", ["light", pytest.param("phone", marks=pytest.mark.long)])
def test_a_wave_stops_before_the_eyes_of_who_looks_at_it(
    fleet: Fleet, open_page: OpenPage, pictures: Path, kind: str
) -> None:
    wave = begun(fleet)
    size = PHONE if kind == "phone" else WIDE
    watched = open_page(f"/waves/{wave.pk}/", viewport=size, color_scheme="dark" if kind == "phone" else "light")
    page = watched.page
    found = serious(page)
    watched.picture(pictures / f"wave-{kind}.png", full_page=True)
    waves.stop(wave_id=wave.pk, actor=factories.acting(factories.operator(), via="api", why="enough"), now=fleet.now)
    expect(page.locator("#wave-body .notice.tone-bad")).to_contain_text("otto stopped it.")
    found += serious(page)
    for path in ("/waves/", "/waves/begin/?service=shop", f"/events/{IDS[0]}/"):
        watched.open(path)
        found += serious(page)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{path} is wider than its window by {wide} px"
        watched.picture(pictures / f"wave-{path.strip('/').split('/')[-1][:5]}-{kind}.png", full_page=True)
    assert found == []


def test_the_command_by_hand_is_copied_by_one_click(fleet: Fleet, open_page: OpenPage, pictures: Path) -> None:
    fleet.now -= timedelta(minutes=5)
    factories.announced(fleet, not_before=fleet.now + timedelta(minutes=30))
    watched = open_page(f"/events/{factories.EVENT}/", permissions=["clipboard-read", "clipboard-write"])
    page = watched.page
    box = page.locator("#by-hand")
    expect(box).to_contain_text("No live machine of the set lists the event")
    box.get_by_role("button", name="Copy the command for Linux").click()
    expect(box.get_by_role("button").first).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#by-hand-linux").inner_text()
    assert serious(page) == []
    watched.picture(pictures / "by-hand.png", full_page=True)
