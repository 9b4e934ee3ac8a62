"""A real browser before the real server, over the database of the test: walkers change it, the page has to follow."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from fleet.embedded import Urls
from tests import factories
from tests.databases import database_named
from tests.gateway_process import Gateway, running_gateway

# Five seconds by itself, which is little where others keep the processor busy.
expect.set_options(timeout=20_000)

WIDE = {"width": 1360, "height": 860}
PHONE = {"width": 390, "height": 844}


def of_this_run() -> Urls:
    return Urls(database=database_named(str(connection.settings_dict["NAME"])), redis=os.environ["REDIS_URL"])


# Of this package alone: it sweeps the worker's test database by the real clock, which other tests must not meet.
@pytest.fixture(scope="package")
def one_gateway(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running_gateway(of_this_run(), tmp_path_factory.mktemp("gateway")) as it:
        yield it


@pytest.fixture
def gateway(one_gateway: Gateway, transactional_db: None, redis_url: str) -> Gateway:
    """The real server over the emptied database; the next test finds it running."""
    with connection.cursor() as cursor:
        # The gateway queries its tables every second, also while the fixture empties them after the test. In a
        # deadlock between the two, Postgres must not cancel this process.
        cursor.execute(
            "SELECT set_config('deadlock_timeout', '20s', false) WHERE current_setting('is_superuser') = 'on'"
        )
    return one_gateway


@pytest.fixture
def own_gateway(gateway: Gateway, tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    """Return a function that starts a server of this test alone, with these options of `running_gateway`."""
    with ExitStack() as servers:
        yield lambda **options: servers.enter_context(running_gateway(gateway.urls, tmp_path, **options))


@pytest.fixture
def fleet(gateway: Gateway) -> factories.Fleet:
    return factories.Fleet(now=datetime.now(UTC))


def serious(page: Page) -> list[str]:
    """What axe-core calls serious or critical, each with its first place."""
    violations = Axe().run(page).response["violations"]
    return [described(page, one) for one in violations if one["impact"] in ("serious", "critical")]


def described(page: Page, violation: dict[str, Any]) -> str:
    node = violation["nodes"][0]
    return f"{page.url} {violation['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:300]}"


def width_beyond(page: Page) -> int:
    """By how many pixels a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


# What the content policy blocks is an error of the console.
REFUSALS = (
    "addEventListener('securitypolicyviolation', (it) => console.error('CSP', it.violatedDirective, it.blockedURI))"
)


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
        page.add_init_script(REFUSALS)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def quiet(self) -> None:
        unexpected = [error for error in self.errors if not any(part in error for part in self.expected)]
        assert unexpected == []

    def session_of(self, person: User) -> None:
        """From now on this person is signed in."""
        client = Client()
        client.force_login(person)
        key = client.cookies[settings.SESSION_COOKIE_NAME].value
        self.page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": key, "url": self.url}])

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}{path}")

    def log_in(self, username: str, password: str, then: str = "/") -> None:
        """As a person does it, with the form."""
        self.open(f"/accounts/login/?next={then}")
        self.page.get_by_label("Name").fill(username)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()

    def faults(self) -> list[str]:
        """What keeps people from using the page as it is: serious findings of axe-core, and a cut-off right side."""
        beyond = width_beyond(self.page)
        return serious(self.page) + ([f"{self.page.url} is wider than its window by {beyond} px"] if beyond > 0 else [])

    def live(self) -> None:
        """Returns once the stream is open."""
        self.page.locator('#live[data-state="live"]').wait_for()


OpenPage = Callable[..., Watched]


@contextmanager
def watched_pages(browser: Browser) -> Iterator[OpenPage]:
    """Return a function that opens pages in contexts of their own; at the end their consoles must be empty."""
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
    """Opens a page of the gateway, signed in as an operator or as `who`, once it is live."""
    with watched_pages(browser) as make:

        def opened(
            path: str = "/", *, who: str = "otto", live: bool = True, on: Gateway | None = None, **context: Any
        ) -> Watched:
            if who == "otto":
                factories.operator()
            found = make(on.url if on else gateway.url, **context)
            found.session_of(User.objects.get(username=who))
            found.open(path)
            if live:
                found.live()
            return found

        yield opened
