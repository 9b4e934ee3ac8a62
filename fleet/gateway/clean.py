"""Texts from outside, without what Postgres cannot keep."""

from typing import Any

from drydock_agent import wire


def clean(value: Any) -> Any:
    """The value with what Postgres cannot keep in a text (NUL, halves of surrogate pairs) replaced."""
    if isinstance(value, str):
        text = value.replace("\x00", "\N{REPLACEMENT CHARACTER}")
        return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return value


def cleaned(report: dict[str, Any]) -> dict[str, Any]:
    """The report with clean texts. A document's body stays as it is: it is kept as bytes."""
    data = report.get("data")
    rest: dict[str, Any] = clean({**report, "data": None})
    if report.get("kind") == wire.DOCUMENT and isinstance(data, dict):
        return {**rest, "data": {**clean({**data, "body": ""}), "body": data.get("body")}}
    return {**rest, "data": clean(data)}
