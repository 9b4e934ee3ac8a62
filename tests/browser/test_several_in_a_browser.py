"""Selecting several rows in a real browser: a range, what the filter hides, what a refresh replaces."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fleet.models import Approval
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.test_everybody_can_use_it import serious
from tests.factories import Fleet, listing, seconds

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


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


def test_a_range_is_selected_kept_and_approved(fleet: Fleet, open_page: OpenPage, pictures: Path) -> None:
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
    watched.picture(pictures / "several-queue.png", full_page=True)
    assert serious(page) == []
    page.locator("#pick").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="Approve several events")).to_be_visible()
    expect(page.locator("#bulk input[name=event]:checked")).to_have_count(4)
    watched.picture(pictures / "several-look.png", full_page=True)
    assert serious(page) == []
    page.get_by_role("button", name=re.compile("^Start them now")).click()
    expect(page.get_by_role("heading", name="4 approved")).to_be_visible()
    watched.picture(pictures / "several-results.png", full_page=True)
    assert Approval.objects.count() == 4
    watched.open("/")
    expect(page.locator("#queue input[name=event]:checked")).to_have_count(0)


def test_what_the_filter_hides_stays_selected_and_is_said(fleet: Fleet, open_page: OpenPage, pictures: Path) -> None:
    announce(fleet, 4)
    watched = open_page("/history/", viewport=PHONE)
    page = watched.page
    for box in page.locator("input[name=event]").all():
        box.check()
    expect(page.locator(".pick-count")).to_have_text("4 selected")
    watched.open("/history/?type=Reboot")
    expect(page.locator(".pick-count")).to_have_text("4 selected, 3 of them hidden by the filter")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    watched.picture(pictures / "several-phone.png", full_page=False)
    page.locator("#pick").get_by_role("button", name="Claim").click()
    expect(page.locator("#bulk input[name=event]:checked")).to_have_count(4)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    watched.picture(pictures / "several-look-phone.png", full_page=True)
    watched.open("/")
    watched.picture(pictures / "several-queue-phone.png", full_page=True)
