"""The documentation page works in a real browser under the strict policy. It needs no database."""

import re
import threading
from collections.abc import Iterator
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from django.core.wsgi import get_wsgi_application
from django.db import OperationalError
from django.test import Client
from playwright.sync_api import Page, expect

from fleet.api.documentation import schema
from fleet.operations import clock

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
    """Whoever asks for the time finds the database away."""

    def away() -> None:
        raise OperationalError

    monkeypatch.setattr(clock, "measure", away)


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
    expect(page.locator("details[open]").get_by_text("Idempotency-Key", exact=True)).to_be_visible()
    page.get_by_label("Find a call").fill("POST withdr")
    expect(page.get_by_text("Scheduled events by time left, then newest first")).to_be_hidden()
    page.get_by_label("Find a call").fill("list_events")
    page.get_by_text("Scheduled events by time left, then newest first").click()
    assert complaints == []
    # Nobody is logged in here, so the call is refused: the page shows what the API answered.
    page.get_by_role("button", name=re.compile(r"^Send GET\b.*\blist_events$")).click()
    expect(page.locator(".try-answer").filter(has_text="401")).to_contain_text("not-authenticated")
    assert elsewhere == []
    page.goto(f"{address}/api/docs/#shape-Approve")
    expect(page.locator("#shape-Approve")).to_have_attribute("open", "")


def test_each_call_and_shape_is_on_the_page_and_every_link_leads_somewhere() -> None:
    page = Client().get("/api/docs/").content.decode()
    ids = set(re.findall(r' id="([^"]+)"', page))
    document = schema()
    for methods in document["paths"].values():
        assert {operation["operationId"] for operation in methods.values()} <= ids
    assert {f"shape-{name}" for name in document["components"]["schemas"]} <= ids
    assert set(re.findall(r'href="#([^"]+)"', page)) <= ids | {"main"}
    assert "`" not in re.sub(r"<(pre|textarea)\b.*?</\1>", "", page, flags=re.DOTALL)
