"""What goes wrong in the middle of a decision, in a real browser: what was typed stays, and the way on is one step."""

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from playwright.sync_api import expect

from fleet.models import Approval
from tests import factories
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.story import START_NOW
from tests.factories import Fleet

pytestmark = [pytest.mark.browser, pytest.mark.real_time]
PASSWORD = "a pier of green heart"


def known(password: str) -> Callable[[], object]:
    """Otto has this password; the answer ends all sessions."""
    otto = User.objects.get(username="otto")
    # As the server reads it: the tests' own passwords are hashed quickly, and only for themselves.
    otto.password = PBKDF2PasswordHasher().encode(password, "salt", iterations=10)
    otto.save()
    return Session.objects.all().delete


def test_an_ended_session_asks_for_the_password_in_place_and_a_failure_keeps_what_was_typed(
    fleet: Fleet, open_page: OpenPage
) -> None:
    event = factories.announced(fleet)
    watched = open_page(f"/events/{event.event_id}/", viewport=PHONE)
    end_sessions = known(PASSWORD)
    watched.expected = ("401", "503")
    page = watched.page
    page.locator("#comment-now").fill("drained, the shop knows")
    end_sessions()
    # A part of the page may have asked in between, and the box be there already.
    page.locator("#approve").evaluate("form => form.requestSubmit()")
    box = page.get_by_role("dialog", name="Your session has ended")
    expect(box.get_by_label("Name")).to_have_value("otto")
    expect(box.get_by_label("Password")).to_be_focused()
    box.get_by_label("Password").fill("wrong")
    box.get_by_role("button", name="Log in and go on").click()
    expect(box.get_by_role("alert")).to_contain_text("password is wrong")
    box.get_by_label("Password").fill(PASSWORD)
    box.get_by_label("Password").press("Enter")
    expect(page.locator(".again-done")).to_be_visible()
    expect(page.locator("#comment-now")).to_have_value("drained, the shop knows")
    assert not Approval.objects.exists()
    # The next click meets a database that does not answer.
    page.route("**/approve/", lambda route: route.fulfill(status=503, content_type="text/html", body=AWAY))
    page.get_by_role("button", name=START_NOW).click()
    expect(page.locator("#approve").get_by_role("alert")).to_contain_text("The database is unavailable")
    expect(page.locator("#comment-now")).to_have_value("drained, the shop knows")
    page.unroute("**/approve/")
    page.get_by_role("button", name=START_NOW).click()
    expect(page.locator("#decision")).to_contain_text(re.compile("Approved"))
    assert Approval.objects.get().comment == "drained, the shop knows"


AWAY = """<!doctype html><html><body><main id="main"><h1>The database is unavailable</h1>
<p class="what-to-do">The database cannot be reached right now.</p></main></body></html>"""


def test_without_javascript_an_ended_session_keeps_what_was_typed(fleet: Fleet, open_page: OpenPage) -> None:
    event = factories.announced(fleet)
    watched = open_page(f"/events/{event.event_id}/", live=False, java_script_enabled=False)
    end_sessions = known(PASSWORD)
    watched.expected = ("401",)
    page = watched.page
    page.locator("#comment-now").fill("drained")
    end_sessions()
    page.get_by_role("button", name=START_NOW).click()
    expect(page.get_by_role("heading", name="Your session has ended")).to_be_visible()
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in and go on").click()
    expect(page.get_by_role("heading", name="You are back. This was not sent yet")).to_be_visible()
    page.get_by_role("button", name="Send it now").click()
    expect(page.locator("#decision")).to_contain_text("drained")
    assert Approval.objects.get().comment == "drained"
