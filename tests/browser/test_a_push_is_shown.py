"""The worker of a real Chromium shows what was pushed; a click leads to the page, and nothing acts by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.models import Entry
from tests import factories
from tests.browser.conftest import OpenPage
from tests.factories import Fleet

pytestmark = pytest.mark.browser

SHOWN = """async () => (await (await navigator.serviceWorker.ready).getNotifications()).map(
  (one) => ({ title: one.title, body: one.body, tag: one.tag, url: one.data.url }))"""


def shown(page: Any, count: int) -> list[dict[str, str]]:
    for _ in range(20):
        # Chromium forgets a notification that is asked for between being kept and being on the screen, so it is left
        # alone for a moment first.
        page.wait_for_timeout(500)
        found: list[dict[str, str]] = page.evaluate(SHOWN)
        if len(found) >= count:
            return found
    raise AssertionError("no notification is shown")


def test_what_is_pushed_is_shown_with_its_words(fleet: Fleet, open_page: OpenPage) -> None:
    factories.operator()
    watched = open_page("/you/")
    page, context = watched.page, watched.page.context
    context.grant_permissions(["notifications"], origin=watched.url)
    page.evaluate(
        "async () => { await navigator.serviceWorker.register('/sw.js'); await navigator.serviceWorker.ready; }"
    )
    calls = context.new_cdp_session(page)
    found: list[str] = []
    calls.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda said: found.extend(one["registrationId"] for one in said["registrations"]),
    )
    calls.send("ServiceWorker.enable")
    for _ in range(100):
        if found:
            break
        page.wait_for_timeout(50)
    before = Entry.objects.count()
    said = {
        "title": "Reboot of <b>vm1</b>",
        "body": "in web\n4 of 6 stay up",
        "url": "/events/X/",
        "tag": "drydock-event:1",
    }

    def push(data: str) -> None:
        calls.send(
            "ServiceWorker.deliverPushMessage",
            {"origin": watched.url, "registrationId": found[0], "data": data},
        )

    push(json.dumps(said))
    assert shown(page, 1) == [said]
    # The same thing takes the place of what was shown of it before; what has no words still shows something.
    push(json.dumps({**said, "title": "Reboot of vm1 has started"}))
    push("no json")
    titles = sorted(one["title"] for one in shown(page, 2))
    assert titles == ["Drydock", "Reboot of vm1 has started"]
    assert Entry.objects.count() == before
    watched.quiet()


def test_content_policy_allows_the_manifest_and_the_service_worker(fleet: Fleet, open_page: OpenPage) -> None:
    factories.operator()
    watched = open_page("/you/")
    manifest = watched.page.evaluate(
        "async () => (await fetch(document.querySelector('link[rel=manifest]').href)).json()"
    )
    assert (manifest["name"], manifest["start_url"], manifest["display"]) == ("Drydock", "/", "standalone")
    worker = watched.page.request.get(f"{watched.url}/sw.js")
    assert worker.headers["content-type"].startswith("text/javascript")
    assert worker.headers["cache-control"] == "no-cache"
    watched.quiet()
