"""A real browser before the real server, over the database of the test: walkers change it, the page has to follow.

Pictures go into `SCREENSHOTS` where that is set (`SCREENSHOTS=docs/screenshots make test ARGS=tests/browser`), else
into the test's own folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

from fleet.embedded import Urls
from tests import factories
from tests.conftest import database_named
from tests.running import Gateway, running_gateway

WIDE = {"width": 1360, "height": 860}
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def gateway(transactional_db: None, redis_url: str, tmp_path: Path) -> Iterator[Gateway]:
    """The real server over the database of this test."""
    database = database_named(str(connection.settings_dict["NAME"]))
    with running_gateway(Urls(database=database, redis=redis_url), tmp_path) as it:
        yield it


@pytest.fixture
def fleet(gateway: Gateway) -> factories.Fleet:
    return factories.Fleet(now=datetime.now(UTC))


class Watched:
    """A page whose console is read: an error there fails the test."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        # The browser itself notes every answer that is no success; a test that provokes one names it here.
        self.expected: tuple[str, ...] = ()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def quiet(self) -> None:
        unexpected = [error for error in self.errors if not any(part in error for part in self.expected)]
        assert unexpected == []

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}")

    def log_in(self, username: str, password: str = "") -> None:
        self.open("/accounts/login/")
        self.page.get_by_label("Name").fill(username)
        self.page.get_by_label("Password").fill(password or f"harbour-{username}")
        self.page.get_by_role("button", name="Log in").click()
        self.page.locator("#queue").wait_for()

    def live(self) -> None:
        """Returns once the stream is open."""
        self.page.locator('#live[data-state="live"]').wait_for()


OpenPage = Callable[..., Watched]


@contextmanager
def watched_pages(browser: Browser) -> Iterator[OpenPage]:
    """A function that opens pages in contexts of their own; at the end nothing may stand in their consoles."""
    contexts: list[BrowserContext] = []
    pages: list[Watched] = []

    def make(url: str, **context: Any) -> Watched:
        contexts.append(browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", **context}))
        pages.append(Watched(contexts[-1].new_page(), url))
        return pages[-1]

    try:
        yield make
        for page in pages:
            page.quiet()
    finally:
        for context in contexts:
            context.close()


@pytest.fixture
def open_page(browser: Browser, gateway: Gateway) -> Iterator[OpenPage]:
    """Opens a page of the gateway, logged in as an operator or as `who`, once it is live."""
    with watched_pages(browser) as make:

        def opened(path: str = "/", *, who: str = "otto", live: bool = True, **context: Any) -> Watched:
            if who == "otto":
                factories.operator()
            found = make(gateway.url, **context)
            found.log_in(who)
            if path != "/":
                found.open(path)
            if live:
                found.live()
            return found

        yield opened


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where pictures go."""
    folder = Path(os.environ.get("SCREENSHOTS") or tmp_path / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
