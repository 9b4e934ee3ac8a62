"""One cell of the access matrix: a real call that is rolled back, and the word for its outcome."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import transaction
from django.test import Client, override_settings

from fleet.models import Entry
from fleet.models.timeline import ACTING
from tests.access.bodies import sent
from tests.access.callers import COLUMNS, Caller, callers
from tests.access.routes import Route
from tests.access.world import World

# What a cell says, and what that means.
WORDS = {
    "yes": "admitted",
    "did": "admitted, and the timeline has an entry",
    "no": "refused (403)",
    "login": "sign-in required (401, or redirected)",
    "again": "verification required",
    "404": "not found (404)",
    "-": "method not allowed (405)",
}
GUARD = "set-wants-step-up"
# Admitted: the call failed after the access check, because of its content or of the current state.
FAILED_AFTER_ACCESS = (400, 409, 410, 412, 415, 422, 428)


class QuietClient(Client):
    """Django's own, without a copy of what each template was given: that is half of its time."""

    def request(self, **request: Any) -> Any:
        answer = self.handler(self._base_environ(**request))
        # The handler has said why, and answered with the page of a failure.
        self.exc_info = None
        return answer


class Matrix:
    """A world with its callers: each call sees it as it was in the beginning. Lives within one test's transaction."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.callers: dict[str, Caller] = callers(self.world)
        self.client = QuietClient()
        self.acts = _acts()

    def row(self, route: Route, method: str, columns: Iterable[str] = COLUMNS) -> dict[str, str]:
        return {column: self.cell(route, method, column) for column in columns}

    def cell(self, route: Route, method: str, column: str) -> str:
        """What this caller is answered: a word of `WORDS`. Where a row speaks of many addresses, all that they say."""
        body = sent(method, route.pattern, self.world.values)
        found = {
            self.call(self.callers[column], method, address, body)
            for address in route.addresses(self.world.values, method, column)
        }
        return " or ".join(sorted(found))

    def call(self, caller: Caller, method: str, address: str, body: Any) -> str:
        with self._undone(), override_settings(**caller.settings):
            if caller.before:
                caller.before()
            answer = self._ask(caller, method, address, body)
            word = outcome(answer, logged_in=bool(caller.session or caller.environ))
            if answer.streaming:
                # To its end, for then Django is done with it.
                for _ in answer.streaming_content:
                    pass
            return "did" if word == "yes" and _acts() > self.acts else word

    def _ask(self, caller: Caller, method: str, address: str, body: Any) -> Any:
        self.client.cookies.clear()
        if caller.session:
            self.client.cookies[settings.SESSION_COOKIE_NAME] = caller.session
        more: dict[str, Any] = {"headers": caller.headers, **caller.environ}
        if method == "GET":
            return self.client.get(address, **more)
        if address.startswith("/api/"):
            return self.client.generic(method, address, json.dumps(body), "application/json", **more)
        if method == "POST":
            return self.client.post(address, body, **more)
        return self.client.generic(method, address, **more)

    @contextmanager
    def _undone(self) -> Iterator[None]:
        with transaction.atomic():
            yield
            transaction.set_rollback(True)


def _acts() -> int:
    return Entry.objects.filter(via__in=ACTING).count()


def outcome(answer: Any, *, logged_in: bool) -> str:
    """Return the outcome of one response, or its status code if it has no name here."""
    status, there = answer.status_code, answer.get("Location", "")
    if status in (301, 302) and there.startswith("/you/again/"):
        return "again"
    if status in (301, 302) and there.startswith(("/accounts/login/?next=", "/admin/login/?next=")):
        return "login"
    if status == 401:
        return "again" if logged_in and b'action="/you/again/"' in answer.content else "login"
    if status == 409 and GUARD.encode() in answer.content:
        return "again"
    if status < 400 or status in FAILED_AFTER_ACCESS:
        return "yes"
    return {403: "no", 404: "404", 405: "-"}.get(status, str(status))
