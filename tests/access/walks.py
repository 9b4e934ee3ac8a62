"""What an admin reads and changes, according to the access tables: addresses, calls and forms."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.test import Client

from fleet.models import Entry
from fleet.models.timeline import ACTING
from fleet.operations.policy import rules
from tests import factories
from tests.access import table
from tests.access.bodies import sent
from tests.access.routes import STATIC, Route
from tests.accounts import a_session
from tests.factories import acting


def stop() -> None:
    rules.stop_all(actor=acting(factories.admin("amy"), why="it runs wild"), now=datetime.now(UTC))


PASSWORDS = {"old_password": "harbour-ada", "new_password1": "a whole new pier", "new_password2": "a whole new pier"}
# What changes something only with another body than that of the tables, or after something else.
BODIES: dict[str, Any] = {"api/v1/sessions/end/": {"person": "grace"}, "you/password/": PASSWORDS}
BEFORE: dict[str, Callable[[], object]] = {
    **dict.fromkeys(("api/v1/stop/lift/", "stop/lift/"), stop),
    "you/sessions/end/": lambda: a_session(factories.admin()),
}


@dataclass(frozen=True, slots=True)
class Write:
    """One call or form: `route` as Django spells it, the `body` an object for JSON or the fields of a form."""

    method: str
    route: str
    address: str
    body: Any


def writes(area: str, values: dict[str, Any]) -> Iterator[Write]:
    """Every write of an area (`api` or `pages`). What is done with one is undone before the next is yielded."""
    for (route, method), cells in table.read(area).items():
        if method != "GET" and (cells["admin"] == "did" or route in BODIES or route in BEFORE):
            (address,) = Route(area, route, (method,)).addresses(values, method, "admin")
            with transaction.atomic():
                BEFORE.get(route, lambda: None)()
                yield Write(method, route, address, BODIES.get(route) or sent(method, route, values))
                transaction.set_rollback(True)


def reads(area: str, values: dict[str, Any]) -> Iterator[str]:
    """Every address of an area that answers a GET of an admin; no static file, which would have to be closed."""
    for (route, method), cells in table.read(area).items():
        if method == "GET" and cells["admin"] == "yes" and route != STATIC:
            yield from Route(area, route, (method,)).addresses(values, method, "admin")


def pages(client: Client, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every page that this client may open, with its response. Files, parts and old addresses are no pages."""
    for address in reads("pages", values):
        answer: Any = client.get(address)
        if answer.status_code == 200 and not answer.streaming and b"<main" in answer.content:
            yield address, answer


def acts(request_id: str) -> list[Entry]:
    """The entries of users' acts by this request."""
    return list(Entry.objects.filter(request_id=request_id, via__in=ACTING))


def the_act(request_id: str) -> Entry:
    """The one complete entry of this request."""
    (entry,) = acts(request_id)
    assert entry.address == "127.0.0.1"
    assert entry.before != entry.after, entry.kind
    return entry
