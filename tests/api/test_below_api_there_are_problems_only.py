"""Failures below `/api/`: a client always gets a problem document, and no page, login form or empty answer."""

import ast
import json
from collections.abc import Iterator
from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import OperationalError
from django.test import Client

from fleet.api import problems
from fleet.api.calls import MAX_BODY_BYTES, PerPerson
from fleet.wording.problems import PROBLEMS
from tests import factories
from tests.api.conftest import Caller, problem
from tests.api.described import writing_calls
from tests.architecture.sources import FLEET, files, shown, tree

pytestmark = pytest.mark.django_db
HALF = '"\\ud800"'
# Addresses that no valid call has, and their neighbours.
PLACES = [f"/api/{place}" for place in (
    "", "x", "v1", "v1/", "v2/events/", "docs/x", "schema/x/", "v1/events", "v1/sets/one/", "v1/events/a/b/c/",
    "v1/sets/1/split/", "v1/join-tokens", "v1/stream/", "v1/calendar/x", "v1/calendar/x.ics", "/v1/events/",
    "v1/approvals/99999999999999999999/", "v1/approvals/9223372036854775808/", "v1/approvals/-1/", "v1/events/%ff/",
    "v1/events/%ed%a0%80/", "v1/events/%00/", "v1/people/%00/", "v1/people/%ed%a0%80/", "v1/tokens/%ff/",
    f"v1/events/{'a' * 50000}/",
)]  # fmt: skip
QUERIES = (
    "events/?type=%00", "events/?%00=x", "events/?type=%ff%00", "events/?set=99999999999999999999999",
    "events/?machine=1e400", "events/?page_size=99999999999999999", "events/?cursor=%00", "events/?cursor=%ff",
    f"events/?cursor={'a' * 20000}", "audit/?set=1e400", "people/?q=%00",
)  # fmt: skip


@pytest.fixture
def blunt(admin: Caller) -> Caller:
    """An admin who gets what a server would answer where something fails."""
    admin.client.raise_request_exception = False
    return admin


def is_problem(answer: Any, what: object) -> dict[str, Any]:
    assert 400 <= answer.status_code < 500, (what, answer.status_code, answer.content[:200])
    assert answer["Content-Type"] == "application/problem+json", (what, answer.content[:200])
    body: dict[str, Any] = json.loads(answer.content)
    assert (body["status"], bool(body["title"])) == (answer.status_code, True), what
    return body


def test_no_address_is_a_page(blunt: Caller) -> None:
    stranger = Client(raise_request_exception=False)
    for place in PLACES:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
            is_problem(blunt(method, place), (method, place[:60]))
        for method in ("GET", "POST", "BREW"):
            is_problem(stranger.generic(method, place), (method, place[:60]))


def test_no_query_is_our_failure(blunt: Caller) -> None:
    for query in QUERIES:
        is_problem(blunt.get(query), query)
    # What is no UTF-8 is read as another letter, which nothing is called.
    for query in ("events/?type=%ed%a0%80", "audit/?event=%ff", "audit/?q=%ed%a0%80", "people/?q=%ff"):
        assert blunt.get(query).json()["results"] == [], query


def test_the_page_and_the_document_are_only_read(blunt: Caller) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(factories.viewer())
    for place in ("/api/docs/", "/api/schema/", "/api/v1/calendar/x.ics", "/calendar/x.ics"):
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"):
            for client in (blunt.client, strict):
                answer = client.generic(method, place)
                problem(answer, 405, "method-not-allowed")
                assert answer["Allow"] == "GET, HEAD", (method, place)
    for place in ("/api/docs", "/api/schema"):
        assert blunt.client.get(place).headers["Location"] == f"{place}/"


def test_session_without_a_csrf_token_gets_a_problem(blunt: Caller) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(factories.admin())
    for method, place in writing_calls():
        problem(strict.generic(method, place, b"{}", content_type="application/json"), 403, "not-permitted")


def test_another_host_is_refused_as_a_problem(blunt: Caller) -> None:
    places = ("/api/v1/events/", "/api/v1/nothing", "/api/docs/", "/api/schema/")
    for place, host in product(places, ("evil.example", "e vil", "[::1")):
        answer = blunt.client.get(place, headers=blunt.headers, HTTP_HOST=host)
        problem(answer, 400, "unreadable")
    assert Client().get("/login/", HTTP_HOST="evil.example")["Content-Type"].startswith("text/html")


def test_malformed_headers_authenticate_no_caller_and_cause_no_failure(db: None) -> None:
    tokens = ("dd_\x00", "dd_\x7f", "dd_\xff", "dd_a_b c", "x" * 100_000)
    cookies = ("\x00", "%00; drydock_csrf=%00", "x" * 10_000, "\xff; \xff=\xff")
    headers = [("HTTP_AUTHORIZATION", text) for text in ("Bearer", "Basic x", *(f"Bearer {token}" for token in tokens))]
    for name, text in (*headers, *(("HTTP_COOKIE", f"drydock_session={text}") for text in cookies)):
        answer = Client(raise_request_exception=False).get("/api/v1/events/", **{name: text})
        problem(answer, 401, "not-authenticated")


def test_headers_that_say_nothing_of_who_calls_break_nothing(blunt: Caller) -> None:
    for name in ("X-Request-ID", "X-Forwarded-For", "Accept-Language", "Accept", "HX-Request", "Last-Event-ID"):
        for value in ("\x00", "\xff", "x" * 10_000, "(;,)"):
            assert blunt.get("events/", **{name.replace("-", "_"): value}).status_code == 200, name


BODIES = [
    # Names, and texts in each place where one may stand.
    f"{{{HALF}: 1}}",
    '{"\\u0000": 1}',
    *(f'{{"{name}": {text}, "comment": "x"}}' for name in ("filter", "events", "set") for text in (HALF, '"\\u0000"')),
    f'{{"filter": {{"type": {HALF}}}, "comment": "x"}}',
    f'{{"filter": {{{HALF}: "x"}}, "comment": "x"}}',
    '{"filter": {"type": "\\u0000"}, "comment": "x"}',
    '{"events": ["\\u0000"], "comment": "x"}',
    f'{{"comment": "x", "override": [{HALF}]}}',
    f'{{"comment": "x", "events": ["x"], "expected_versions": {{{HALF}: 1}}}}',
    '{"name": "\\u0000", "reason": "\\u0000", "action": "hold", "kind": "webhook", "url": "\\u0000"}',
    '{"time_zone": "\\u0000"}',
    '{"time_zone": "../../etc/passwd"}',
    # Numbers that nothing holds.
    f'{{"set": 1{"0" * 5000}}}',
    '{"set": 99999999999999999999, "comment": "x"}',
    '{"into": 1e308}',
    '{"set": 1e400}',
    '{"ids": [1e30]}',
    '{"id": 99999999999999999999}',
    '{"name": "x", "channel": 99999999999999999999}',
    '{"name": "x", "scopes": ["read"], "expires_in_seconds": 1e30}',
    # No object at all, or one that is too deep.
    "null",
    '"x"',
    "7",
    '{"a":' * 3000 + "1" + "}" * 3000,
    '{"a":' * 900 + "1" + "}" * 900,
]


def test_no_body_is_our_failure(blunt: Caller) -> None:
    for call, (method, place) in enumerate(writing_calls()):
        # Each call gets every fourth body, and each body is sent to every fourth call.
        for number, body in enumerate(BODIES):
            if number % 4 == call % 4:
                answer = blunt(method, place, body, idempotency_key=f"{method} {place} {number}")
                if answer.status_code >= 300:
                    is_problem(answer, (method, place, body[:40]))


def test_half_a_letter_is_no_text(admin: Caller) -> None:
    for body, field in (
        (f'{{"comment": {HALF}}}', "comment"),
        (f'{{{HALF}: "x"}}', ""),
        (f'{{"a": [{{"b": {HALF}}}]}}', "a.b"),
    ):
        told = problem(admin.post("join-tokens/", body), 422, "validation")
        assert told["errors"][0]["field"] == field
    # A whole pair is one.
    assert admin.post("join-tokens/", '{"comment": "\\ud83d\\ude80"}').status_code == 201


def test_failure_outside_a_call_is_a_problem_and_is_logged(
    blunt: Caller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fleet.api.calls.Call.finalize_response", Mock(side_effect=RuntimeError("the cable was cut")))
    answer = blunt.get("events/")
    problem(answer, 500, "failed")
    assert "the cable was cut" in caplog.text


def test_database_outage_before_a_call_is_a_problem(blunt: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("fleet.api.calls.Call.finalize_response", "fleet.accounts.tokens.person_of_token"):
        with monkeypatch.context() as patch:
            patch.setattr(where, Mock(side_effect=OperationalError("the connection is lost")))
            answer = blunt.get("events/")
            problem(answer, 503, "busy")
            assert int(answer["Retry-After"]) > 0


@pytest.mark.parametrize("debug", [False, True])
def test_failure_of_a_call_is_a_problem_and_is_logged(
    blunt: Caller, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, debug: bool
) -> None:
    settings.DEBUG = debug
    monkeypatch.setattr("fleet.projections.sets.listing", Mock(side_effect=RuntimeError("the cable was cut")))
    problem(blunt.get("sets/"), 500, "failed")
    assert "the cable was cut" in caplog.text
    problem(blunt.get("nothing/"), 404, "not-found")


# Each problem states what to do next, and is of a type from one list.


def test_without_a_login_it_says_how_to_sign_in(db: None) -> None:
    for method, address in (("GET", "events/"), ("POST", "join-tokens/"), ("DELETE", "approvals/1/")):
        answer = Caller()(method, address)
        problem(answer, 401, "not-authenticated")
        assert answer["WWW-Authenticate"].startswith("Bearer")


def test_a_method_that_is_not_there_names_those_that_are(operator: Caller) -> None:
    answer = operator.post("events/", {})
    problem(answer, 405, "method-not-allowed")
    assert answer["Allow"] == "GET, HEAD"
    problem(operator("OPTIONS", "events/"), 405, "method-not-allowed")


def test_a_body_that_cannot_be_read_is_named(admin: Caller) -> None:
    for body in ("{", "[]", '"x"', '{"comment": NaN}', "[" * 30000, b"\xff\xfe{}"):
        problem(admin.post("join-tokens/", body), 400, "unreadable")
    # An empty body is an object without fields.
    problem(admin.post("join-tokens/", ""), 422, "validation")
    problem(admin.post("join-tokens/", {"comment": "x" * MAX_BODY_BYTES}), 413, "too-large")
    answer = admin.client.post("/api/v1/join-tokens/", {"comment": "x"}, headers=admin.headers)
    problem(answer, 415, "unsupported-media-type")


def test_answers_forbid_storage_by_intermediaries_and_are_json_whatever_is_asked_for(operator: Caller) -> None:
    for address in ("events/", "events/nobody/", "nothing/"):
        assert operator.get(address)["Cache-Control"] == "no-store"
    answer = operator.get("events/", accept="text/html")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")


def test_too_many_calls_get_a_retry_after(operator: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PerPerson, "per_minute", 0)
    answer = operator.get("events/")
    problem(answer, 429, "throttled")
    assert 1 <= int(answer["Retry-After"]) <= 60


def test_a_parameter_that_makes_no_sense_is_named(operator: Caller) -> None:
    events = "status=scheduled needs_decision=maybe set=web set=NaN since=yesterday type=%00 sort=new page_size=0"
    queries = [f"events/?{query}" for query in f"{events} page_size=-1 page_size=all cursor=x".split()]
    cursor = "sets/?cursor=WzAsMCx7InQiOiJ4In0sMV0"
    for query in (*queries, "machines/?page_size=501", "sets/?kind=rack", cursor, "events/x/timeline/?kind=event_seen"):
        refused = problem(operator.get(query), 422, "validation")
        field = query.partition("?")[2].partition("=")[0]
        assert [error["field"] for error in refused["errors"]] == [field], query


def test_every_type_says_what_to_do_in_one_sentence() -> None:
    for name, known in PROBLEMS.items():
        assert name == name.lower()
        assert 400 <= known.status < 600
        assert known.advice.endswith(".")
        assert known.title[0].isupper()
        assert not known.title.endswith(".")


def test_detail_never_overwrites_what_every_problem_has() -> None:
    body = problems.document("too-late", more={"status": 200, "by": "ann"})
    assert (body["status"], body["by"]) == (409, "ann")


def raised(folder: str, name: str) -> Iterator[tuple[str, list[object]]]:
    """Where something of this name is made below the folder, and the plain values it is made of."""
    for path in files(FLEET / folder, ".py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
                values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
                yield f"{shown(path)}:{node.lineno}", values


def test_every_type_that_is_raised_is_known() -> None:
    for folder, name in (("operations", "Refused"), ("api", "Problem")):
        found = [(place, values[0]) for place, values in raised(folder, name) if values]
        assert len(found) > 5
        assert [place for place, code in found if code not in PROBLEMS] == []
    found = [(place, values[:2]) for place, values in raised("gateway", "Problem") if len(values) >= 2]
    assert len(found) > 5
    wrong = [
        (place, code) for place, (status, code) in found if code not in PROBLEMS or PROBLEMS[str(code)].status != status
    ]
    assert wrong == []
