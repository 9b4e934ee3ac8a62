"""The client of Azure's Instance Metadata Service.

Facts: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (page of 2023-01-25). The first call
may take two minutes, a 200 may come with an empty body, and a cloud that lags refuses an api-version it does not know.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from . import wire
from .connections import Answer, Connections, NoAnswer

# Newest first; a 400 about the version steps to the next.
EVENTS_VERSIONS = ("2020-07-01", "2019-08-01", "2019-04-01", "2019-01-01", "2017-11-01", "2017-08-01")
INSTANCE_VERSIONS = ("2020-09-01", "2019-08-01", "2017-12-01")

CONNECT_SECONDS = 2.0
READ_SECONDS = 10.0
FIRST_READ_SECONDS = 130.0

# The largest answer that is read: one byte more than the largest that may be forwarded would not be taken anyway.
LIMIT = wire.MAX_DOCUMENT_BYTES


class NotNow(Exception):
    """The metadata service gave no good answer this time; the sentence says why. `status` is None without an answer."""

    def __init__(self, sentence: str, *, status: int | None = None) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(slots=True, frozen=True)
class Started:
    """What the service answered to a StartRequests: the status and the text as received."""

    status: int
    body: str


class Imds:
    """One connection to the metadata service, for one thread. Never through a proxy, whatever the environment says."""

    def __init__(self, url: str, *, user_agent: str) -> None:
        self._url = url
        self._connections = Connections(
            headers={
                "Metadata": "true",
                "User-Agent": user_agent,
                "Accept": "application/json",
                "Connection": "keep-alive",
            }
        )
        self._step = {"scheduledevents": 0, "instance": 0}

    @property
    def events_version(self) -> str:
        """The api-version in use for scheduled events."""
        return EVENTS_VERSIONS[self._step["scheduledevents"]]

    def scheduled_events(self, *, patient: bool = False) -> bytes:
        """The document as received, never empty. `patient` waits as long as a first call may take. Raises `NotNow`."""
        answer = self._get("scheduledevents", EVENTS_VERSIONS, FIRST_READ_SECONDS if patient else READ_SECONDS)
        if not answer.body.strip():
            raise NotNow("the metadata service answered 200 with an empty body", status=200)
        return answer.body

    def instance(self) -> dict[str, Any]:
        """`compute` of the instance metadata; all values are text, absent ones empty. Raises `NotNow`."""
        answer = self._get("instance", INSTANCE_VERSIONS, READ_SECONDS)
        try:
            content = json.loads(answer.body.decode("utf-8-sig"), strict=False)
        except (ValueError, RecursionError):
            content = None
        compute = content.get("compute") if isinstance(content, dict) else None
        if not isinstance(compute, dict):
            raise NotNow("the instance metadata cannot be read", status=200)
        return compute

    def start(self, event_id: str) -> Started:
        """POST StartRequests for one event, spelled as its document spells it. Raises `NoAnswer`."""
        body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
        url = f"{self._url}/metadata/scheduledevents?api-version={self.events_version}"
        answer = self._connections.send(
            "POST",
            url,
            timeout=(CONNECT_SECONDS, READ_SECONDS),
            limit=LIMIT,
            headers={"Content-Type": "application/json"},
            body=body,
        )
        return Started(answer.status, answer.body.decode("utf-8", "replace"))

    def interrupt(self) -> None:
        """End the call in progress, from another thread."""
        self._connections.interrupt()

    def close(self) -> None:
        """Let go of the connection."""
        self._connections.close()

    def _get(self, what: str, versions: tuple[str, ...], read_seconds: float) -> Answer:
        while True:
            url = f"{self._url}/metadata/{what}?api-version={versions[self._step[what]]}"
            try:
                answer = self._connections.send("GET", url, timeout=(CONNECT_SECONDS, read_seconds), limit=LIMIT)
            except NoAnswer as error:
                raise NotNow(f"the metadata service does not answer: {error}") from error
            if answer.status == 200:
                return answer
            if answer.status == 400 and b"api-version" in answer.body and self._step[what] + 1 < len(versions):
                self._step[what] += 1
                continue
            # When every version was refused the next call begins with the newest again.
            self._step[what] = 0 if answer.status == 400 else self._step[what]
            raise NotNow(f"the metadata service answered {answer.status}", status=answer.status)
