"""A backend for the agent's tests: a real HTTP server that speaks the wire format and misbehaves on request."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import parse_qs, urlsplit

from drydock_agent import wire

from tests.processes import wait_for
from tests.receivers import Handler, Server, in_a_thread

JOIN_TOKEN = "join-me"


def text_of(at: datetime) -> str:
    return at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


class FleetDouble:
    """Keeps what was committed, per spool, and acknowledges as the wire says.

    `statuses` are answered first, one a call (`("/reports", 503)`); `lose_answers` commits and then cuts the
    connection; `refuse` maps a report's kind to the reason for which it is refused; `clock_ahead` moves the server's
    clock.
    """

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.lock = threading.Condition()
        self.credentials: dict[str, str] = {}
        self.enrolments: list[dict[str, Any]] = []
        # A person has not admitted it yet.
        self.admission_pending = False
        self.batches: list[dict[str, Any]] = []
        self.looks: list[dict[str, Any]] = []
        # Per spool: seq -> report, as committed.
        self.committed: dict[str, dict[int, dict[str, Any]]] = {}
        self.acknowledged: dict[str, int] = {}
        self.statuses: list[tuple[str, int]] = []
        self.retry_after = ""
        self.lose_answers = 0
        self.refuse: dict[str, str] = {}
        self.too_large = 0
        # It answers as 0.1.0 did.
        self.release_before = False
        # What each long poll returns in addition to orders.
        self.wants: dict[str, Any] = {}
        self.clock_ahead = timedelta()
        self.delivered: set[str] = set()
        self.waiting: list[dict[str, Any]] = []
        # Sent along when a machine enrols, and with each answer to reports.
        self.signing_keys: list[dict[str, Any]] = []
        self.key_words: list[dict[str, Any]] = []
        # Moves when all held calls are to end without an order.
        self.rings = 0
        double = self

        class Here(Handler):
            def take(self) -> None:
                double._post(self) if self.command == "POST" else double._get(self)

        self.server = Server(("127.0.0.1", port), Here)
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._serving = in_a_thread(self.server)

    def __enter__(self) -> FleetDouble:
        self._serving.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.ring()
        self._serving.__exit__(None, None, None)

    def ring(self) -> None:
        """End all held calls without an order."""
        with self.lock:
            self.rings += 1
            self.lock.notify_all()

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + self.clock_ahead

    def order(
        self, machine_id: str, event_id: str, *, order_id: str = "order-1", seconds: float = 60
    ) -> dict[str, Any]:
        """Offer an order; it is repeated on every look until the agent says that it holds it."""
        issued, expires = text_of(self.now()), text_of(self.now() + timedelta(seconds=seconds))
        order: dict[str, Any] = {"id": order_id, "machine_id": machine_id, "event_id": event_id, "via": "celery"}
        order |= {"issued_at": issued, "expires_at": expires}
        with self.lock:
            self.waiting.append(order)
            self.lock.notify_all()
        return order

    def revoke(self) -> None:
        with self.lock:
            self.credentials.clear()

    def reports(self, kind: str = "") -> list[dict[str, Any]]:
        """Everything committed, all spools, in order."""
        with self.lock:
            reports = [report for spool in self.committed.values() for _, report in sorted(spool.items())]
        return [report for report in reports if kind in ("", report["kind"])]

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(report["data"]["body"], strict=False) for report in self.reports(wire.DOCUMENT)]

    def receipts(self) -> list[dict[str, Any]]:
        return [report["data"] for report in self.reports(wire.RECEIPT)]

    def _status(self, path: str) -> int:
        with self.lock:
            for index, (part, status) in enumerate(self.statuses):
                if part in path:
                    del self.statuses[index]
                    return status
        return 0

    def _post(self, handler: Handler) -> None:
        body, path = handler.body(), handler.path
        # Nonces are unknown to it, as to 0.1.0.
        if status := self._status(path) or 404 * (path == wire.CHALLENGES_PATH):
            return self._problem(handler, status)
        content = json.loads(body)
        if path in (wire.ENROL_PATH, wire.ENROL_CHECK_PATH):
            return self._admit(handler, content, enrols=path == wire.ENROL_PATH)
        if self._machine(handler) is None:
            return self._problem(handler, 401)
        return self._take(handler, content)

    def _admit(self, handler: Handler, content: dict[str, Any], *, enrols: bool) -> None:
        if content["join_token"] != JOIN_TOKEN:
            return self._problem(handler, 403)
        answer: dict[str, Any] = {"server_time": text_of(self.now())}
        with self.lock:
            pending = self.admission_pending
            if enrols:
                self.enrolments.append(content)
                if not pending:
                    answer |= {"credential": f"credential-{len(self.enrolments)}", "machine_id": content["machine_id"]}
                    self.credentials[answer["credential"]] = content["machine_id"]
        if pending:
            answer |= {"admission": "pending", "retry_after": 30.0}
        elif enrols:
            answer["signing_keys"] = self.signing_keys
        else:
            answer["admission"] = "granted"
        return self._answer(handler, 202 if pending else 200, answer)

    def _take(self, handler: Handler, content: dict[str, Any]) -> None:
        assert len(content["reports"]) <= wire.MAX_REPORTS
        if self.too_large and len(content["reports"]) > self.too_large:
            return self._problem(handler, 413)
        refused = []
        with self.lock:
            self.batches.append(content)
            spool = self.committed.setdefault(content["spool"], {})
            highest = before = self.acknowledged.setdefault(content["spool"], 0)
            if not self.release_before:
                highest = max(highest, content.get("acknowledged") or 0)
            for report in content["reports"]:
                if report["kind"] in self.refuse:
                    refused.append({"seq": report["seq"], "reason": self.refuse[report["kind"]]})
                else:
                    spool.setdefault(report["seq"], report)
                highest = max(highest, report["seq"])
            self.acknowledged[content["spool"]] = highest
            orders = self._orders(content.get("held", []))
            lose = self.lose_answers > 0
            self.lose_answers -= lose
            self.lock.notify_all()
        if lose:
            handler.close_connection = True
            return handler.connection.close()
        answer: dict[str, Any] = {"acknowledged": highest, "refused": refused, "orders": orders}
        answer |= {"server_time": text_of(self.now()), "key_words": self.key_words, "a_field_of_tomorrow": 1}
        if not self.release_before:
            answer |= {"acknowledged_before": before, "wanted": self._wanted(content)}
        return self._answer(handler, 200, answer)

    def _wanted(self, content: dict[str, Any]) -> list[str]:
        known = {report["data"]["hash"] for report in self.reports(wire.DOCUMENT)}
        reminded = {report["data"].get("hash") for report in content["reports"] if report["kind"] == wire.REMINDER}
        return sorted(reminded - known - {None})

    def _get(self, handler: Handler) -> None:
        parts = urlsplit(handler.path)
        if status := self._status(parts.path) or (0 if self._machine(handler) else 401):
            return self._problem(handler, status)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        held = query["held"].split(",") if "held" in query else []
        deadline = time.monotonic() + float(query["wait"])
        with self.lock:
            self.looks.append(query)
            self.lock.notify_all()
            rings = self.rings
            while not (orders := self._orders(held)) and self.rings == rings and time.monotonic() < deadline:
                self.lock.wait(deadline - time.monotonic())
        news = {} if self.release_before else {"takes_polls": True, **self.wants, "a_field_of_tomorrow": 1}
        return self._answer(handler, 200, {"server_time": text_of(self.now()), "orders": orders, **news})

    def _orders(self, held: list[str]) -> list[dict[str, Any]]:
        self.delivered.update(entry.split(":")[0] for entry in held)
        return [order for order in self.waiting if order["id"] not in self.delivered]

    def _machine(self, handler: Handler) -> str | None:
        return self.credentials.get(handler.headers.get("Authorization", "").removeprefix("Bearer "))

    def _problem(self, handler: Handler, status: int) -> None:
        problem = {"type": "about:blank", "title": "told to", "status": status, "detail": "told to"}
        self._answer(handler, status, problem)

    def _answer(self, handler: Handler, status: int, content: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/json"}
        if status != 200 and self.retry_after:
            headers["Retry-After"] = self.retry_after
        handler.answer(status, json.dumps(content).encode(), headers)


def eventually(look: Callable[[], object], *, seconds: float = 30.0) -> Any:
    """The first true value of `look`; fails after `seconds`."""
    return wait_for(look, seconds=seconds, what="what the test waits for")
