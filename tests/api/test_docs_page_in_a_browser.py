"""The documentation page works in a real browser under the strict policy. It needs no database."""

import threading
from collections.abc import Iterator
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.core.wsgi import get_wsgi_application
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.real_time]


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


@pytest.fixture(scope="session")
def base_url() -> str:
    """Playwright's own fixture of this name uses what pytest is about to remove."""
    return ""


@pytest.fixture
def address() -> Iterator[str]:
    with make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_calls_are_shown_and_the_policy_is_not_broken(address: str, page: Page) -> None:
    complaints: list[str] = []
    elsewhere: list[str] = []
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith((address, "data:")) else elsewhere.append(request.url)
    )
    page.goto(f"{address}/api/docs/")
    expect(page.get_by_text("Scheduled events by time left, then newest first")).to_be_visible()
    page.get_by_text("Approve: start the event now, once it is prepared, or at a time", exact=True).click()
    expect(page.get_by_text("Idempotency-Key", exact=True)).to_be_visible()
    assert complaints == []
    assert elsewhere == []
