"""The demo's front page in a browser, while the simulated Azure announces events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import Browser, expect

from tests.processes import Process

pytestmark = [pytest.mark.flow, pytest.mark.browser, pytest.mark.real_time]

WIDE = {"width": 1360, "height": 860}
ANNOUNCED: tuple[dict[str, Any], ...] = (
    {"set": "web", "type": "Freeze", "resources": ["web-vm2", "web-vm4"], "notice_seconds": 540, "duration_seconds": 5},
    {"set": "workers", "type": "Preempt", "resources": ["workers_3"], "notice_seconds": 95},
    {"set": "jumpbox", "type": "Reboot", "source": "User", "notice_seconds": 870},
    {"set": "legacy", "type": "Reboot", "starts_as": "Started", "resources": ["BackEnd_IN_0"], "started_seconds": 300},
)


def test_the_front_page_shows_what_azure_announces(
    demo: Process, environment: dict[str, str], browser: Browser, tmp_path: Path
) -> None:
    credentials = json.loads(Path(environment["DEMO_DIR"], "credentials.json").read_text())
    errors: list[str] = []
    with browser.new_context(viewport=WIDE, color_scheme="light") as context:
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(credentials["url"])
        page.fill("input[name=login]", credentials["operator"]["username"])
        page.fill("input[name=password]", credentials["operator"]["password"])
        page.click("main button[type=submit]")
        expect(page.get_by_text("Nothing needs a decision")).to_be_visible()
        for event in ANNOUNCED:
            answer = requests.post(f"{credentials['simulator_url']}/control/events", json=event, timeout=30)
            assert answer.status_code < 300, answer.text
        # Without a reload: three wait for a decision, the fourth has begun without asking.
        expect(page.get_by_role("heading", name="3 events need a decision")).to_be_visible(timeout=60_000)
        expect(page.get_by_text("Started for BackEnd_IN_0").first).to_be_visible(timeout=60_000)
        page.mouse.move(2, 2)
        page.wait_for_timeout(500)
        target = tmp_path / "demo.png"
        page.screenshot(path=target, caret="initial")
    assert target.stat().st_size > 20_000
    assert errors == []
