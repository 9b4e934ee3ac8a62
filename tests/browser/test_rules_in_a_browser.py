"""Making a rule in a real browser: tried on history, saved, switched on, moved; checked by axe-core on the way."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import expect

from fleet.models import Rule
from fleet.operations.policy import rules
from tests import factories
from tests.browser.conftest import PHONE, WIDE, OpenPage
from tests.browser.story import tell
from tests.browser.test_everybody_can_use_it import serious
from tests.factories import Fleet, acting
from tests.policy.conftest import made

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


def fits(page: object, path: str) -> None:
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")  # type: ignore[attr-defined]
    assert wide <= 0, f"{path} is wider than its window by {wide} px"


@pytest.mark.parametrize(("scheme", "size"), [("dark", WIDE), pytest.param("light", PHONE, marks=pytest.mark.long)])
def test_a_rule_is_made_tried_and_switched_on(
    fleet: Fleet, open_page: OpenPage, pictures: Path, scheme: str, size: dict[str, int]
) -> None:
    tell(fleet)
    Rule.objects.all().delete()
    now = datetime.now(UTC)
    made(at=now, name="Deletions of spot machines", event_types=["Preempt"], reason="They come back by themselves.")
    made(at=now, name="Freezes are harmless", event_types=["Freeze"], max_duration_seconds=8, enabled=False)
    rules.create_window(
        rules.WindowRequestSerializer(
            data={"name": "Summer sale", "reason": "The shop is full.", "weekdays": [0, 1, 2, 3, 4, 5, 6]}
        ),
        actor=acting(factories.admin()),
        now=now,
    )
    watched = open_page("/policy/", who="ada", color_scheme=scheme, viewport=size)
    page = watched.page
    kind = "phone" if size is PHONE else scheme
    assert serious(page) == []
    fits(page, "/policy/")
    page.screenshot(path=pictures / f"rules-{kind}.png", full_page=True)
    page.get_by_text("New no-approval window").click()
    assert serious(page) == []
    page.get_by_role("link", name="New rule").click()
    page.get_by_label("Name", exact=True).fill("Short freezes")
    page.get_by_label("Reason").fill("Nobody notices five seconds.")
    page.get_by_label("Freeze").check()
    page.get_by_label("At most, in seconds").first.fill("5")
    page.get_by_role("button", name="Try on history").click()
    expect(page.locator(".tried-sentence")).to_contain_text("Would have approved")
    assert serious(page) == []
    fits(page, "/rules/new/")
    page.screenshot(path=pictures / f"rule-{kind}.png", full_page=True)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Short freezes")
    page.get_by_role("link", name="Rules", exact=True).first.click()
    page.get_by_role("button", name="Try Short freezes earlier").click()
    expect(page.locator(".rule-name").nth(1)).to_contain_text("Short freezes")
    page.get_by_role("switch", name="Short freezes").click()
    expect(page.get_by_role("switch", name="Short freezes")).to_have_attribute("aria-checked", "true")
    assert Rule.objects.get(name="Short freezes").enabled
