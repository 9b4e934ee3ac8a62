"""Recorded examples of API calls and their responses, made with a simulated fleet by
tests/api/test_examples_are_real.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PLACE = Path(__file__).with_name("examples.json")
# By operation: the request body (`sent`), if any, and the responses (`answered`), by status.
EXAMPLES: dict[str, Any] = json.loads(PLACE.read_text(encoding="utf-8"))


def show_examples(paths: dict[str, Any]) -> None:
    """Add the examples to the paths of an OpenAPI document."""
    operations = {one["operationId"]: one for methods in paths.values() for one in methods.values()}
    for name, example in EXAMPLES.items():
        if example["sent"] is not None:
            _put(operations[name]["requestBody"], example["sent"])
        for status, answered in example["answered"].items():
            _put(operations[name]["responses"][status], answered)


def _put(part: dict[str, Any], value: Any) -> None:
    for content in part["content"].values():
        content["example"] = value
