"""Hostile texts of rules, windows, waves, drills and stops are refused, or stored and shown as text."""

import csv
import json
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode, urljoin

import pytest
from django.conf import settings
from django.db import transaction
from django.db.models import Model
from django.test import Client

from fleet.dashboard.export import FORMULAS
from fleet.models import AvailabilitySet, Claim, Drill, Hold, JoinToken, NoApprovalWindow, Rule, Stop, Wave
from fleet.notifications.models import Channel, Route
from tests.access import walks
from tests.access.bodies import sent
from tests.access.calls import Matrix
from tests.access.routes import Route as Address
from tests.messages.hostile import unseen

MARKUP = "=1+1<script>alert(1)</script>'\"><img src=x onerror=alert(1)>{{ 7*7 }}{% now 'Y' %}${7*7}</textarea>--%>"
TEXTS = {
    "markup": MARKUP,
    "controls": "a\x1b[31m\x07\x08b",
    "bidi": "a\u202egnp\u2066iso\u200b\ufeffb",
    "new lines": "a\r\nX-Evil: 1\r\n\r\nb\u2028c\x85d",
    "nul": "a\x00b",
    "long": "x" * 10_000,
    "template": "{{ settings.SECRET_KEY }}{% debug %}{0.__class__}%(password)s",
    "formula": "@SUM(1+1)*cmd|' /C calc'!A0",
    "half a pair": "a\ud800b",
}
POLICY, COMMENT, STOPPED = {"name": "name", "reason": "reason"}, {"comment": "comment"}, {"comment": "reason"}
# Each call and form that takes such a text, the model that stores it, and the columns by the names of the fields.
WRITES: dict[tuple[str, str], tuple[type[Model], dict[str, str]]] = {
    ("POST", "api/v1/rules/"): (Rule, POLICY),
    ("PATCH", "api/v1/rules/<int:rule_id>/"): (Rule, POLICY),
    ("POST", "api/v1/no-approval-windows/"): (NoApprovalWindow, POLICY),
    ("POST", "api/v1/waves/"): (Wave, COMMENT),
    ("DELETE", "api/v1/waves/<int:wave_id>/"): (Wave, STOPPED),
    ("POST", "api/v1/drills/"): (Drill, COMMENT),
    ("DELETE", "api/v1/drills/<int:drill_id>/"): (Drill, STOPPED),
    ("POST", "api/v1/stop/"): (Stop, {"comment": "why"}),
    ("POST", "rules/new/"): (Rule, POLICY),
    ("POST", "rules/<int:rule_id>/"): (Rule, POLICY),
    ("POST", "no-approval-windows/"): (NoApprovalWindow, POLICY),
    ("POST", "waves/begin/"): (Wave, COMMENT),
    ("POST", "waves/<int:wave_id>/stop/"): (Wave, STOPPED),
    ("POST", "sets/<int:set_id>/drill/"): (Drill, COMMENT),
    ("POST", "drills/<int:drill_id>/stop/"): (Drill, STOPPED),
    ("POST", "stop/all/"): (Stop, {"comment": "why"}),
}
# Names and comments of their neighbours, which share the pages.
NEIGHBOURS: dict[tuple[str, str], tuple[type[Model], dict[str, str]]] = {
    ("POST", "api/v1/channels/"): (Channel, {"name": "name"}),
    ("POST", "api/v1/routes/"): (Route, {"name": "name"}),
    ("POST", "api/v1/join-tokens/"): (JoinToken, {"comment": "comment"}),
    ("POST", "api/v1/events/<str:event_id>/claims/"): (Claim, {"comment": "comment"}),
    ("POST", "api/v1/events/<str:event_id>/holds/"): (Hold, {"reason": "reason"}),
    ("PATCH", "api/v1/sets/<int:set_id>/"): (AvailabilitySet, {"service": "service"}),
}
ALL = WRITES | NEIGHBOURS


@pytest.fixture
def admin(matrix: Matrix) -> Client:
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = matrix.callers["admin"].session
    return client


def write(client: Client, matrix: Matrix, method: str, route: str, text: str) -> Any:
    """Make this call, or send this form, with the text in each of its fields."""
    values = matrix.world.values
    area = "api" if route.startswith("api/") else "pages"
    (address,) = Address(area, route, (method,)).addresses(values, method, "admin")
    body = sent(method, route, values) | dict.fromkeys(ALL[method, route][1], text)
    if area == "api":
        return client.generic(method, address, json.dumps(body), "application/json")
    form = urlencode(body, doseq=True, errors="surrogatepass")
    return client.post(address, form, "application/x-www-form-urlencoded")


def stored(model: type[Model], columns: Iterable[str]) -> set[tuple[int, str]]:
    """Each text with the id of its row."""
    return {(row.pk, getattr(row, name)) for row in model._default_manager.all() for name in columns}


def test_it_is_refused_or_stored_without_what_cannot_be_seen(admin: Client, matrix: Matrix) -> None:
    for (method, route), (model, columns) in ALL.items():
        before = stored(model, columns.values())
        for kind, text in TEXTS.items():
            with transaction.atomic():
                answer = write(admin, matrix, method, route, text)
                texts = [value for _, value in stored(model, columns.values()) - before]
                transaction.set_rollback(True)
            what = f"{method} {route} {kind}: {answer.status_code} {texts}"
            assert answer.status_code in ((200, 201, 204, 302) if texts else (400, 422)), what
            for value in texts:
                assert unseen(value) == [] and "\ud800" not in value and len(value) < 5000, what


def test_it_is_shown_as_text_on_every_page_in_every_call_and_file(admin: Client, matrix: Matrix) -> None:
    for method, route in WRITES:
        if method == "POST" and route.startswith("api/"):
            answer = write(admin, matrix, method, route, MARKUP)
            assert answer.status_code in (200, 201), (route, answer.content)
    values = matrix.world.values
    newest = {"rule_id": Rule, "wave_id": Wave, "drill_id": Drill, "window_id": NoApprovalWindow}
    values |= {name: model._default_manager.latest("pk").pk for name, model in newest.items()}
    waiting, shown, called = [*walks.reads("pages", values), *walks.reads("api", values)], [], []
    seen = set(waiting)
    while waiting:
        address = waiting.pop()
        answer = admin.get(address)
        if answer.status_code != 200:
            continue
        assert not answer.has_header("X-Evil")
        body = (b"".join(answer.streaming_content) if answer.streaming else answer.content).decode()
        kind = answer["Content-Type"].partition(";")[0]
        if kind == "text/html":
            assert "<script>alert(1)" not in body and "<img src=x" not in body, address
            assert "=1+149" not in body and unseen(body.replace("\t", "")) == [], address
            shown += [address] if "&lt;script&gt;alert(1)" in body else []
            links = re.findall(r'href="([^"]*as=csv[^"]*)"', body.replace("&amp;", "&"))
            files = {urljoin(address, link) for link in links}
            waiting += files - seen
            seen |= files
        elif kind == "text/csv":
            cells = [cell for line in csv.reader(body.splitlines(keepends=True)) for cell in line]
            assert [cell for cell in cells if cell.startswith(FORMULAS)] == [], address
            called += [address] if "alert(1)" in body else []
        elif kind == "application/json":
            called += [address] if "alert(1)" in json.dumps(json.loads(body)) else []
    assert {"/", "/policy/", "/waves/", "/drills/", "/stop/", "/audit/", "/timeline/"} <= set(shown)
    assert [address for address in seen if "as=csv" in address]
    assert {"/audit/export.csv", "/api/v1/rules/", "/api/v1/waves/", "/api/v1/drills/"} <= set(called)
