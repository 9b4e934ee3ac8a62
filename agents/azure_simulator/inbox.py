"""Receiver of webhooks, to try Drydock without a real receiver. It stores the latest messages in memory."""

from __future__ import annotations

import json
from collections import deque
from datetime import datetime
from typing import Any

from azure_simulator.clock import rfc3339
from azure_simulator.documents import encoded
from azure_simulator.http import Request, Response

PATH = "/inbox/"
MOST = 100


class Inbox:
    """Stores each `POST` without a check of the signature. `GET` returns the stored messages, newest first."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=MOST)

    def answer(self, request: Request, now: datetime) -> Response:
        if request.method == "GET":
            return Response(200, encoded(list(self._kept)))
        if request.method != "POST":
            return Response(405, b'{"error":"GET or POST"}')
        try:
            message = json.loads(request.body)
        except ValueError:
            return Response(400, b'{"error":"not JSON"}')
        self._kept.appendleft({"at": rfc3339(now), "id": request.headers.get("webhook-id", ""), "message": message})
        return Response(204)
