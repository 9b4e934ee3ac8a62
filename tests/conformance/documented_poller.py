"""A poller as Microsoft's page describes it, step by step: `documented_poller.py COUNT` handles that many documents.

Written from the steps of "Scheduled Events for Linux VMs in Azure" (2023-01-25). It polls once a second and handles a
document when its incarnation is another one. It notes started events, and approves users' events and freezes announced
as shorter than nine seconds. Every other event waits for an operator.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import requests

SERVICE = "http://169.254.169.254/metadata/scheduledevents"
HEADERS = {"Metadata": "true"}
VERSION = {"api-version": "2020-07-01"}
SHORT_SECONDS = 9


def look() -> dict[str, Any]:
    answer: dict[str, Any] = requests.get(SERVICE, headers=HEADERS, params=VERSION, timeout=30).json()
    return answer


def let_begin(event_id: str) -> int:
    wish = json.dumps({"StartRequests": [{"EventId": event_id}]})
    return requests.post(SERVICE, headers=HEADERS, params=VERSION, data=wish, timeout=30).status_code


def handle(event: dict[str, Any]) -> str:
    """What was done about one event, in a word."""
    if event["EventStatus"] == "Started":
        return "noted"
    short = event["EventType"] == "Freeze" and 0 <= int(event["DurationInSeconds"]) < SHORT_SECONDS
    if event["EventSource"] == "User" or short:
        return f"approved {let_begin(event['EventId'])}"
    return "left"


def main() -> None:
    last: int | None = None
    for _ in range(int(sys.argv[1])):
        while (document := look())["DocumentIncarnation"] == last:
            time.sleep(1)
        last = document["DocumentIncarnation"]
        # All events of a document together, whatever becomes of each.
        done = {event["EventId"]: handle(event) for event in document["Events"]}
        sys.stdout.write(json.dumps({"incarnation": last, "done": done}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
