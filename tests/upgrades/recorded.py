"""What the release before has written, read for a test of today."""

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "release_0_1"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
HTTP_DATE = re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT")


def columns() -> dict[str, dict[str, str]]:
    """By table and column: its type, with ` null` where it may be empty."""
    found: dict[str, dict[str, str]] = json.loads((FOLDER / "columns.json").read_text())
    return found


def task() -> dict[str, Any]:
    """A message to Celery, as it lies in Redis: the approval 1 is to be relayed."""
    found: dict[str, Any] = json.loads((FOLDER / "task.json").read_text())
    return found


class Calls:
    """The calls of one agent, in order, as if it had made them now. `known` replaces what was secret or new then."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = json.loads((FOLDER / "agent.json").read_text())
        began = datetime.fromisoformat(self.rows[0]["answer"]["server_time"])
        self.shift = datetime.now(UTC) - began
        self.hashes: dict[str, str] = {}
        self.known: dict[str, str] = {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each call with `method`, `path`, `headers`, `body` to send, and the `answer` that it got then."""
        for row in self.rows:
            body = self._body(row["body"]) if row["body"] else ""
            whole = {**row, "path": self._moved(row["path"]), "body": body, "headers": dict(row["headers"])}
            whole["path"], whole["body"] = self._filled(whole["path"]), self._filled(body)
            whole["headers"] = {name: self._filled(value) for name, value in whole["headers"].items()}
            yield whole

    def _filled(self, text: str) -> str:
        for then, today in self.known.items():
            text = text.replace(then, today)
        return text

    def _moved(self, text: str) -> str:
        def later(found: re.Match[str]) -> str:
            return (datetime.fromisoformat(found[0]) + self.shift).isoformat().replace("+00:00", "Z")

        return TIME.sub(later, text)

    def _body(self, text: str) -> str:
        sent = json.loads(self._moved(text))
        for report in sent.get("reports", ()):
            data = report["data"]
            if report["kind"] == "document":
                then = data["hash"]
                data["body"] = HTTP_DATE.sub(self._date, data["body"])
                data["hash"] = self.hashes[then] = hashlib.sha256(data["body"].encode()).hexdigest()
            elif data.get("hash"):
                data["hash"] = self.hashes.get(data["hash"], data["hash"])
        return json.dumps(sent)

    def _date(self, found: re.Match[str]) -> str:
        return format_datetime(
            parsedate_to_datetime(found[0]) + timedelta(seconds=int(self.shift.total_seconds())), True
        )
