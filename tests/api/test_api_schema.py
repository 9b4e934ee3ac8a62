"""The API's description of itself is valid, whole and true."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import jsonschema
import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from drf_spectacular.validation import validate_schema

from fleet.api.documentation import schema
from fleet.api.reference import fields_tables, needs, plain_route
from fleet.api.routes import CALLS
from fleet.wording.problems import PROBLEMS
from tests import factories
from tests.api.conftest import Caller
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
    """Whoever changes a call or a field on purpose runs `manage.py print_docs` and commits the difference."""
    committed = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    assert without_words(schema()) == without_words(committed)


def test_it_is_made_without_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    schema.cache_clear()
    schema()
    assert capfd.readouterr().err == ""


def test_every_call_is_in_it_with_a_name_and_a_summary() -> None:
    described = {
        (method, address): operation
        for address, methods in schema()["paths"].items()
        for method, operation in methods.items()
    }
    assert set(described) == {(m, plain_route(route)) for m, route in needs()} | {("get", "/api/v1/stream")}
    names = [operation["operationId"] for operation in described.values()]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for operation in described.values())


def test_everything_that_writes_names_its_scope() -> None:
    for route in CALLS:
        view = route.callback.view_class  # type: ignore[attr-defined]
        writing = [getattr(view, name) for name in ("post", "put", "patch", "delete") if hasattr(view, name)]
        assert all(method.needs for method in writing), view


def test_every_shape_of_an_answer_is_documented() -> None:
    pages = {name for name in schema()["components"]["schemas"] if name.endswith("Page")}
    assert set(schema()["components"]["schemas"]) - pages == set(
        re.findall("^### (\\w+)$", fields_tables(), re.MULTILINE)
    )


def test_the_security_schemes_are_those_that_work() -> None:
    schemes = schema()["components"]["securitySchemes"]
    assert schemes["token"]["scheme"] == "bearer"
    assert schemes["cookieAuth"]["name"] == "drydock_session"


def shaped(response: Any, address: str, method: str = "get") -> None:
    """The answer holds what the schema says: every field, of its type, and no other."""
    operation = schema()["paths"][f"/api/v1/{address}"][method]
    said = operation["responses"][str(response.status_code)]["content"][response["Content-Type"]]["schema"]
    components = {
        name: {**shape, "additionalProperties": name == "Problem"}
        for name, shape in schema()["components"]["schemas"].items()
    }
    whole = {**said, "components": {"schemas": components}}
    jsonschema.Draft202012Validator(whole, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).validate(
        response.json()
    )


def test_answers_are_what_the_schema_says(fleet: factories.Fleet, operator: Caller, admin: Caller) -> None:
    event = factories.announced(fleet)
    base = f"events/{event.event_id}/"
    made = operator.post(f"{base}approvals/", {"comment": "x"})
    shaped(made, "events/{event_id}/approvals/", "post")
    shaped(operator.post(f"{base}approvals/", {"comment": "x"}), "events/{event_id}/approvals/", "post")
    shaped(operator.get("events/"), "events/")
    shaped(operator.get(base), "events/{event_id}/")
    shaped(operator.get(f"{base}timeline/"), "events/{event_id}/timeline/")
    shaped(operator.get(f"{base}documents/"), "events/{event_id}/documents/")
    shaped(operator.get(f"approvals/{made.json()['id']}/"), "approvals/{approval_id}/")
    shaped(operator.get("sets/"), "sets/")
    shaped(operator.get(f"sets/{event.availability_set_id}/"), "sets/{set_id}/")
    shaped(operator.get("machines/"), "machines/")
    machine = fleet.agents["vm6"].machine.pk
    shaped(operator.get(f"machines/{machine}/"), "machines/{machine_id}/")
    shaped(admin.post(f"machines/{machine}/revoke/"), "machines/{machine_id}/revoke/", "post")
    shaped(admin.post("join-tokens/", {"comment": "x"}), "join-tokens/", "post")
    shaped(operator.get("events/nobody/"), "events/{event_id}/")


def test_ended_events_are_what_the_schema_says_too(fleet: factories.Fleet, operator: Caller) -> None:
    event = factories.freeze_completed(fleet)
    shaped(operator.get("events/"), "events/")
    shaped(operator.get(f"events/{event.event_id}/"), "events/{event_id}/")
    shaped(operator.get(f"events/{event.event_id}/documents/"), "events/{event_id}/documents/")


def test_problems_that_calls_answer_are_in_the_schema() -> None:
    statuses = {
        int(status)
        for methods in schema()["paths"].values()
        for operation in methods.values()
        for status in operation["responses"]
        if int(status) >= 400
    }
    assert statuses <= {known.status for known in PROBLEMS.values()}
    assert {401, 403, 404, 409, 422, 429} <= statuses


class Assets(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "link"):
            self.found.append(values.get("src") or values.get("href") or "inline")


def test_the_docs_page_loads_local_files_only(client: Client) -> None:
    answer = client.get("/api/docs/")
    assert answer.status_code == 200
    policy = answer["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assets = Assets()
    assets.feed(answer.content.decode())
    assert len(assets.found) >= 8
    for address in assets.found:
        if address == "/manifest.webmanifest":
            continue
        assert address.startswith("/static/")
        assert finders.find(re.sub("^/static/", "", address)), address
