"""The API's description of itself is valid, whole and true."""

import inspect
import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
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


def test_every_call_is_in_it_with_a_name_and_a_summary() -> None:
    described = {
        (method, address): operation
        for address, methods in schema()["paths"].items()
        for method, operation in methods.items()
    }
    assert set(described) == {(m, plain_route(route)) for m, route in required_scopes()} | {("get", "/api/v1/stream")}
    names = [operation["operationId"] for operation in described.values()]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for operation in described.values())


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


def test_every_call_says_more_than_its_summary() -> None:
    for methods in schema()["paths"].values():
        for operation in methods.values():
            assert len(operation["description"]) > 20, operation["operationId"]
            assert operation["description"].endswith("."), operation["operationId"]


def texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (node[name] for name in ("description", "summary") if isinstance(node.get(name), str))
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from texts(child)


def test_every_answer_that_is_no_success_is_a_problem_of_named_types() -> None:
    for methods in schema()["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    [[kind, content]] = answer["content"].items()
                    shapes = [one["$ref"] for one in content["schema"].get("oneOf", [content["schema"]])]
                    assert kind == "application/problem+json"
                    assert all(shape.endswith("Problem") for shape in shapes)


def test_every_201_says_where_the_thing_is() -> None:
    made = [
        (address, operation["responses"]["201"])
        for address, methods in schema()["paths"].items()
        for operation in methods.values()
        if "201" in operation["responses"]
    ]
    assert len(made) >= 13
    assert [address for address, answer in made if "Location" not in answer.get("headers", {})] == []


def test_the_security_schemes_are_those_that_work() -> None:
    schemes = schema()["components"]["securitySchemes"]
    assert schemes["token"]["scheme"] == "bearer"
    assert schemes["cookieAuth"]["name"] == "drydock_session"


class Assets(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "link"):
            self.found.append(values.get("src") or values.get("href") or "inline")


@pytest.mark.django_db
def test_the_docs_page_loads_local_files_only(client: Client) -> None:
    answer = client.get("/api/docs/")
    assert answer.status_code == 200
    policy = answer["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assets = Assets()
    assets.feed(answer.content.decode())
    assert assets.found.count("/api/docs/?script=") == 1
    assert len(assets.found) >= 6
    for address in assets.found:
        if address == "/api/docs/?script=":
            continue
        assert address.startswith("/static/")
        assert finders.find(re.sub("^/static/", "", address)), address
