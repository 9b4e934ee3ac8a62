"""The documentation page works in a real browser under the strict policy. It needs no database."""

from collections.abc import Iterator
from typing import Literal
from unittest.mock import Mock
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.core.wsgi import get_wsgi_application
from django.db import OperationalError
from playwright.sync_api import Locator, Page, expect
from pytest_playwright.pytest_playwright import CreateContextCallback

from fleet.api.documentation import schema
from fleet.operations import clock
from tests.receivers import in_a_thread

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture(scope="session")
def base_url() -> str:
    """Playwright's own fixture of this name uses what pytest is about to remove."""
    return ""


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every query for the database's time fail."""
    monkeypatch.setattr(clock, "measure", Mock(side_effect=OperationalError))


@pytest.fixture
def address() -> Iterator[str]:
    with make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Quiet) as server, in_a_thread(server):
        yield f"http://127.0.0.1:{server.server_port}"


def shown_calls(page: Page) -> set[str]:
    """Return the ids of all calls of the page. Swagger UI builds only those near the window, so scroll to the end."""
    found: set[str] = set()
    expect(page.locator(".opblock").first).to_be_visible(timeout=60_000)
    before = -1
    while (top := page.evaluate("scrollY")) != before:
        before = top
        found |= set(page.locator(".opblock").evaluate_all("calls => calls.map(call => call.id)"))
        page.evaluate("scrollBy(0, innerHeight / 2)")
        page.wait_for_timeout(100)
    return found


def opened(page: Page, call: str) -> Locator:
    """Open a call of the tag `events`, and return its place."""
    page.locator(".operation-filter-input").fill("events")
    shown = page.locator(f"#operations-events-{call}")
    shown.locator(".opblock-summary-control").click()
    return shown


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_every_call_is_shown_and_can_be_tried_under_the_policy(
    address: str, new_context: CreateContextCallback, scheme: Literal["light", "dark"], dark: bool
) -> None:
    page = new_context(color_scheme=scheme).new_page()
    complaints: list[str] = []
    addresses: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: addresses.append(request.url))
    page.goto(f"{address}/api/docs/")
    calls = [operation for methods in schema()["paths"].values() for operation in methods.values()]
    assert len(shown_calls(page)) == len(calls)
    assert ("dark-mode" in page.locator("html").evaluate("root => root.className")) == dark
    expect(opened(page, "list_events")).to_contain_text("Requires the scope read.")
    approve = opened(page, "approve_event")
    expect(approve).to_contain_text("Idempotency-Key")
    assert complaints == []
    # Without a session the call is refused; the page shows the answer of the API, and sends the CSRF token.
    approve.locator(".try-out__btn").click()
    approve.get_by_placeholder("event_id").fill("x")
    with page.expect_request("**/approvals/") as sent:
        approve.locator(".execute").click()
    expect(approve.locator(".live-responses-table")).to_contain_text("not-authenticated")
    assert sent.value.method == "POST"
    assert sent.value.headers["x-csrftoken"]
    assert [each for each in addresses if not each.startswith((address, "data:"))] == []


def test_an_address_opens_its_call(address: str, page: Page) -> None:
    page.goto(f"{address}/api/docs/#/events/approve_event")
    expect(page.locator("#operations-events-approve_event .opblock-body")).to_be_visible(timeout=60_000)
