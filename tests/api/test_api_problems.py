"""API errors: each is a problem document that states what to do next, of a type from one list."""

import ast
from collections.abc import Iterator

import pytest

from fleet.api import problems
from fleet.api.calls import MAX_BODY_BYTES, PerPerson
from fleet.wording.problems import PROBLEMS
from tests.api.conftest import Caller, problem
from tests.architecture.sources import FLEET, files, shown, tree


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
