"""Sign-in pages in a browser: waiting people, the phone layout, and the box for re-authentication."""

from __future__ import annotations

from pathlib import Path

import pytest
from drydock_agent import wire
from playwright.sync_api import expect

from fleet.models import Admission
from fleet.operations.machines import enrolment
from fleet.operations.sets import names
from tests import factories
from tests.browser.conftest import PHONE, WIDE, OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.flow, pytest.mark.real_time]
SIZES = {"light": {"viewport": WIDE}, "dark": {"viewport": WIDE, "color_scheme": "dark"}, "phone": {"viewport": PHONE}}


def test_who_waits_is_ticked_at_the_top_left_of_its_card(
    fleet: factories.Fleet, open_page: OpenPage, pictures: Path
) -> None:
    ada = factories.admin()
    for number in range(3):
        agent = fleet.enrol(f"door{number}", vm_id=f"00000000-0000-4000-8000-0000000d000{number}")
        instance = {"location": "northeurope", "privateIpAddresses": ["10.9.9.9"], "subscriptionId": "another"}
        request = wire.EnrolRequest(
            join_token=fleet.join_token, machine_id=agent.machine.vm_id, resource_name="rebuilt", ask="a secret",
            instance=instance, agent_version="0.2.0",
        )  # fmt: skip
        enrolment.enrol(request=request, now=fleet.now, address="203.0.113.9")
    for kind, size in SIZES.items():
        watched = open_page("/admissions/?q=rebuilt", who=ada.username, **size)
        watched.picture(pictures / f"admissions-{kind}.png", full_page=True)
        card = watched.page.locator(".admission").first
        box, whole = card.locator("input").bounding_box(), card.bounding_box()
        assert box is not None and whole is not None
        assert box["x"] - whole["x"] < 40 and box["y"] - whole["y"] < 40, (kind, box, whole)
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page = watched.page
    page.locator(".admission input").first.check()
    page.get_by_role("button", name="Admit", exact=True).click()
    expect(page.get_by_text("Admitted: 1.")).to_be_visible()
    assert Admission.objects.filter(resource_name="rebuilt", admitted_by="ada").count() == 1
    Admission.objects.all().delete()


@pytest.mark.long
def test_reauthentication_box_opens_and_the_set_switch_shows_it(
    fleet: factories.Fleet, open_page: OpenPage, pictures: Path
) -> None:
    factories.announced(fleet)
    ada, home = factories.admin(), factories.the_set()
    names.name_set(set_id=home.pk, step_up=True, actor=factories.acting(ada), now=fleet.now)
    otto = factories.operator()
    for kind, size in SIZES.items():
        settings = open_page(f"/sets/{home.pk}/", who=ada.username, **size)
        settings.picture(pictures / f"set-switch-{kind}.png", full_page=True)
        watched = open_page(f"/events/{factories.EVENT}/", who=otto.username, **size)
        watched.expected = ("401",)
        page = watched.page
        page.locator("#comment-now").fill("drained")
        page.locator("#approve-now").click()
        expect(page.locator("dialog.again")).to_be_visible()
        watched.picture(pictures / f"asked-again-{kind}.png", full_page=False)
        # What was typed is still behind it.
        expect(page.locator("#comment-now")).to_have_value("drained")
