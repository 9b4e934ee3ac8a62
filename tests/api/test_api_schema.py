"""The API's description of itself is valid, whole and true."""

import inspect
import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from drf_spectacular.validation import validate_schema

from fleet.api.documentation import generated, schema
from fleet.urls import CALLS
from tests.api.described import plain_route, required_scopes
from tests.architecture.sources import ROOT


def test_the_schema_is_served_and_valid(client: Client) -> None:
    answer = client.get("/api/schema/")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("application/vnd.oai.openapi+json")
    served = answer.json()
    assert served["openapi"].startswith("3.1")
    validate_schema(served)


def without_words(node: Any) -> Any:
    """The document without what is written for people: the rest is what scripts rely on."""
    if isinstance(node, dict):
        # A field may be called `description`, too; what is written for people is a text.
        words = [name for name in ("description", "summary") if isinstance(node.get(name), str)]
        return {name: without_words(item) for name, item in node.items() if name not in words}
    return [without_words(item) for item in node] if isinstance(node, list) else node


def test_only_words_differ_from_the_committed_document() -> None:
    """The document may differ in words only; for other changes run `manage.py print_docs` and commit the result."""
    committed = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    assert without_words(schema()) == without_words(committed)


def test_it_is_made_without_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    generated.cache_clear()
    schema()
    assert capfd.readouterr().err == ""


def test_threads_can_ask_for_it_at_once() -> None:
    generated.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        documents = list(pool.map(lambda _: schema(), range(4)))
    assert all(document is documents[0] for document in documents)


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    """Return every call of the document by method and address."""
    paths = schema()["paths"].items()
    return {(method, address): call for address, calls in paths for method, call in calls.items()}


def test_every_call_is_in_it_with_a_name_a_summary_and_more_than_that() -> None:
    described = operations()
    assert set(described) == {(m, plain_route(route)) for m, route in required_scopes()} | {("get", "/api/v1/stream")}
    assert len({call["operationId"] for call in described.values()}) == len(described)
    for call in described.values():
        assert call["summary"] and len(call["description"]) > 20 and call["description"].endswith("."), call


def test_everything_that_writes_names_its_scope() -> None:
    for route in CALLS:
        view = route.callback.view_class  # type: ignore[attr-defined]
        writing = [getattr(view, name) for name in ("post", "put", "patch", "delete") if hasattr(view, name)]
        assert all(method.needs for method in writing), view


def test_no_words_for_those_who_read_the_code_are_in_it() -> None:
    """Every text is one that was written for callers; docstrings of classes say how the code works."""
    said = {re.sub(r"\s+", " ", text) for text in texts(schema())}
    modules = [module for name, module in sys.modules.items() if name.startswith(("fleet.", "rest_framework."))]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    docs = [inspect.getdoc(each) or "" for each in classes]
    told = {re.sub(r"\s+", " ", text) for text in docs} - {""}
    assert said & told == set()


def texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (node[name] for name in ("description", "summary") if isinstance(node.get(name), str))
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from texts(child)


def test_every_answer_is_a_problem_of_named_types_or_a_success_that_says_where_what_it_made_is() -> None:
    created = 0
    for call, operation in operations().items():
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                [[kind, content]] = answer["content"].items()
                shapes = [one["$ref"] for one in content["schema"].get("oneOf", [content["schema"]])]
                assert kind == "application/problem+json"
                assert all(shape.endswith("Problem") for shape in shapes)
            elif status == "201":
                created += 1
                assert "Location" in answer.get("headers", {}), call
    assert created >= 13


def test_the_security_schemes_are_those_that_work() -> None:
    schemes = schema()["components"]["securitySchemes"]
    assert schemes["token"]["scheme"] == "bearer"
    assert schemes["cookieAuth"]["name"] == "drydock_session"


@pytest.mark.django_db
def test_the_docs_page_loads_local_files_only(client: Client) -> None:
    answer = client.get("/api/docs/")
    assert "script-src 'self'" in answer["Content-Security-Policy"]
    assert "unsafe" not in answer["Content-Security-Policy"]
    tags = re.findall(r"<(?:script|link)\b[^>]*>", answer.content.decode())
    assets = [(re.findall(r'(?:src|href)="([^"]*)"', tag) or ["inline"])[0] for tag in tags]
    assert (assets.count("/api/docs/?script="), len(assets) >= 6) == (1, True)
    for address in set(assets) - {"/api/docs/?script="}:
        assert address.startswith("/static/") and finders.find(address.removeprefix("/static/")), address
