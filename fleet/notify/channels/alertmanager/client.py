"""Calls of Alertmanager's API, version 2."""

import base64
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from fleet.notify.channels.base import ChannelInUse, Outcome
from fleet.notify.sender.jobs import Answer, HttpJob
from fleet.notify.sender.pool import send

LIMIT_SECONDS = 10.0
# Well within the lease of whoever mirrors; what is left waits for the next round.
ROUND_SECONDS = 25.0
MOST_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Called:
    """An answer, and what was in it where that can be read."""

    answer: Answer
    content: Any = None

    @property
    def ok(self) -> bool:
        return self.answer.ok

    @property
    def status(self) -> int | None:
        return self.answer.status

    @property
    def outcome(self) -> Outcome:
        """As whoever sends hears of it: it is tried again whatever it was."""
        answer = self.answer
        return Outcome(
            ok=answer.ok,
            again=not answer.ok,
            status=answer.status,
            error=str(answer.error),
            answer=answer.answer,
            wait_seconds=answer.retry_after_seconds,
        )


class Alertmanager:
    """One of them, for one round."""

    def __init__(self, channel: ChannelInUse, *, now: datetime) -> None:
        self.base = str(channel.values["url"]).rstrip("/")
        self.now = now
        self.until = time.monotonic() + ROUND_SECONDS
        self.headers = {"Accept": "application/json"}
        user, password = str(channel.values.get("user") or ""), str(channel.values.get("password") or "")
        if user or password:
            self.headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

    @property
    def late(self) -> bool:
        """Whether the rest is for the next round."""
        return time.monotonic() >= self.until

    def call(self, method: str, path: str, body: Any = None, query: Sequence[tuple[str, str]] = ()) -> Called:
        """One call; it never raises. `path` is below `/api/v2`, each part of it quoted."""
        parts = "/".join(quote(part, safe="") for part in path.split("/"))
        url = f"{self.base}/api/v2{parts}" + (f"?{urlencode(query)}" if query else "")
        headers = self.headers if body is None else {**self.headers, "Content-Type": "application/json"}
        payload = b"" if body is None else json.dumps(body).encode()
        job = HttpJob(method, url, headers, payload, limit_seconds=LIMIT_SECONDS, most_bytes=MOST_BYTES)
        answer = send(job, now=self.now)
        try:
            content = None if answer.cut or not answer.body else json.loads(answer.body)
        except ValueError:
            content = None
        return Called(answer, content)
