"""OpenAPI examples: a played fleet really answered them, and each matches its schema.

`WRITE_EXAMPLES=1` records them again.
"""

import json
import os
from typing import Any

import jsonschema
import pytest

from fleet.api.documentation import EXAMPLES, PLACE, schema
from tests import factories
from tests.api.conftest import Caller

WRITE = "WRITE_EXAMPLES"


def played(fleet: factories.Fleet, operator: Caller, viewer: Caller) -> dict[str, Any]:
    """What was sent and what was answered, by operation and status."""
    event = factories.announced(fleet)
    address = f"events/{event.event_id}/"
    wanted = {"comment": "Drained, go ahead.", "expected_version": event.version, "when": "now"}
    claim = {"comment": "I am on it.", "take_over": False}
    calls = {
        "list_events": (viewer.get("events/?needs_decision=true"), None),
        "get_event": (viewer.get(address), None),
        "claim_event": (operator.post(f"{address}claims/", claim), claim),
        "approve_event": (operator.post(f"{address}approvals/", wanted), wanted),
    }
    found = {
        name: {"sent": sent, "answered": {str(answer.status_code): answer.json()}}
        for name, (answer, sent) in calls.items()
    }
    again = operator.post(f"{address}approvals/", wanted)
    found["approve_event"]["answered"][str(again.status_code)] = again.json()
    found["get_approval"] = {
        "sent": None,
        "answered": {"200": viewer.get(f"approvals/{calls['approve_event'][0].json()['id']}/").json()},
    }
    found["list_machines"] = {"sent": None, "answered": {"200": viewer.get("machines/?page_size=1").json()}}
    return found


def test_what_is_shown_is_what_is_answered(fleet: factories.Fleet, operator: Caller, viewer: Caller) -> None:
    now = played(fleet, operator, viewer)
    if os.environ.get(WRITE):
        text = json.dumps(now, indent=1, sort_keys=True).replace("http://testserver", "https://drydock.example.com")
        PLACE.write_text(text + "\n")
        pytest.skip(f"{PLACE} is written: run `manage.py print_docs`")
    assert outline(EXAMPLES) == outline(now)


def outline(node: Any) -> Any:
    """The names of all fields, whatever they hold; of a list the first row."""
    if isinstance(node, dict):
        return {name: outline(each) for name, each in node.items()}
    return [outline(each) for each in node[:1]] if isinstance(node, list) else None


def test_each_example_is_as_its_shape_says() -> None:
    document = schema()
    count = 0
    for methods in document["paths"].values():
        for operation in methods.values():
            contents = [operation.get("requestBody", {}), *operation["responses"].values()]
            for content in (each for one in contents for each in one.get("content", {}).values()):
                if "example" in content:
                    count += 1
                    whole = {**content["schema"], "components": document["components"]}
                    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
                    jsonschema.Draft202012Validator(whole, format_checker=checker).validate(content["example"])
    told = EXAMPLES.values()
    assert count == sum(len(one["answered"]) + (one["sent"] is not None) for one in told)
