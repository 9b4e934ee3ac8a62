"""The simulator's inbox: it keeps received messages, newest first, and drops the oldest."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from azure_simulator.http import Request
from azure_simulator.inbox import MOST, PATH, Inbox

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def call(inbox: Inbox, method: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = inbox.answer(Request(method, PATH, named, body, b""), NOW)
    return answer.status, answer.body


def test_received_messages_are_listed_newest_first() -> None:
    inbox = Inbox()
    assert call(inbox, "GET") == (200, b"[]")
    for number in range(MOST + 2):
        assert call(inbox, "POST", json.dumps({"type": f"t{number}"}).encode(), webhook_id=str(number))[0] == 204
    kept = json.loads(call(inbox, "GET")[1])
    assert len(kept) == MOST
    assert (kept[0]["id"], kept[0]["message"]) == (str(MOST + 1), {"type": f"t{MOST + 1}"})


def test_what_is_no_json_is_refused() -> None:
    inbox = Inbox()
    assert call(inbox, "POST", b"<html>")[0] == 400
    assert call(inbox, "DELETE")[0] == 405
    assert call(inbox, "GET") == (200, b"[]")
