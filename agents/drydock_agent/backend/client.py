"""HTTP client of the backend: encodes requests and decodes responses."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode

from drydock_agent import wire
from drydock_agent.backend.machine_key import Key, Secret, authorization
from drydock_agent.clock import Clock, ServerClock, from_text, to_text
from drydock_agent.connections import Answer, Connections, NoAnswer
from drydock_agent.settings.load import ConfigError
from drydock_agent.small_http_client import requests
from drydock_agent.spool.store import StoredReport
from drydock_agent.version import user_agent

CONNECT_SECONDS = 5.0
READ_SECONDS = 15.0
ADMISSION_SECONDS = 30.0
MAX_ADMISSION_SECONDS = 3600.0
_LIMIT = 8 * 1024 * 1024
# Longest pause that a backend may request: shorter than the time until a machine counts as silent.
MAX_RENEWAL_SECONDS = 120.0
NONCE_PATTERN = re.compile(r"[A-Za-z0-9]{1,32}")
KEY_PATTERN = re.compile(r"[0-9a-f]{64}")
ID_PATTERN = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class RefusedByBackend(Exception):
    """The backend responded with an error status. `retry_after` is in seconds, None if the response did not state it.
    `wanted` is the URL of an intermediate certificate that the backend needs, or empty.
    """

    def __init__(self, status: int, sentence: str, retry_after: float | None, *, wanted: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after
        self.wanted = wanted


@dataclass(slots=True, frozen=True)
class Acknowledgement:
    """Response of the backend to a batch of reports. `unreadable` counts orders without an id, which cannot be refused
    either.

    `before` is the number up to which the backend had reports before this call (None from 0.1.0). `wanted` are hashes
    of documents that the backend needs.
    """

    acknowledged: int
    refused: dict[int, str]
    orders: list[wire.Order]
    unreadable: int
    key_words: tuple[wire.KeyNotice, ...] = ()
    before: int | None = None
    wanted: tuple[str, ...] = ()
    # The backend can give this machine a better credential.
    renew: bool = False


@dataclass(slots=True, frozen=True)
class AgentStatus:
    """Status of this agent, sent with each long poll instead of a heartbeat.

    `last_poll_at` and `document` are set only if all reports are delivered. `keys` are the ids of the trusted signing
    keys, None if signatures are not checked. `metadata` is the result of `wire.metadata_text`.
    """

    spool: str
    acknowledged: int
    last_poll_at: datetime | None = None
    document: str | None = None
    keys: list[str] | None = None
    metadata: str = ""


@dataclass(slots=True, frozen=True)
class LongPollAnswer:
    """Response to a long poll, with the fields of `wire.OrdersAnswer`. `unreadable` counts orders without an id."""

    orders: list[wire.Order]
    unreadable: int
    takes_polls: bool = False
    report: bool = False
    remind: bool = False
    renew_in: float = 0.0
    # None from a backend that does not report decisions.
    prepare: tuple[str, ...] | None = None


class AdmissionPending(RefusedByBackend):
    """The backend waits until an administrator admits this machine. Repeat the request later."""


@dataclass(slots=True, frozen=True)
class EnrolmentGrant:
    """Result of an enrolment: the secret of this machine, and the keys that sign orders."""

    secret: Secret
    signing_keys: tuple[wire.PublicKey, ...]


class BackendClient:
    """HTTP connection to the backend, for use by one thread.

    Each call raises `NoAnswer` or `RefusedByBackend` on failure, and updates the server clock (`ServerClock`).
    """

    def __init__(self, url: str, *, tls: ssl.SSLContext, clock: Clock, server_clock: ServerClock) -> None:
        self._url = url
        self._clock = clock
        self._server_clock = server_clock
        self._connections = Connections(
            headers={"User-Agent": user_agent(), "Accept": "application/json", "Connection": "keep-alive"},
            proxies=proxies_for(url),
            tls=tls,
        )

    def nonce(self) -> str:
        """Request a nonce for an attested document. Return an empty string if the backend does not support attestation
        (0.1.0).
        """
        try:
            content = self._call("POST", wire.CHALLENGES_PATH, "", body=b"{}")
        except RefusedByBackend as error:
            if error.status in (404, 405):
                return ""
            raise
        nonce = content.get("nonce")
        return nonce if isinstance(nonce, str) and NONCE_PATTERN.fullmatch(nonce) else ""

    def enrol(self, request: wire.EnrolRequest, key: Key | None = None) -> EnrolmentGrant:
        """Enrol this machine. Return its new key or credential, and the keys that sign orders. `key` is the machine's
        present key, if any, with which the request is signed. Raises AdmissionPending if an administrator must admit
        the machine first.
        """
        content = self._call("POST", wire.ENROL_PATH, key or "", body=json.dumps(asdict(request)).encode())
        if content.get("admission") == "pending":
            wait = max(_seconds(content.get("retry_after"), MAX_ADMISSION_SECONDS) or ADMISSION_SECONDS, 1.0)
            raise AdmissionPending(202, "an administrator has to admit this machine in Drydock first", wait)
        secret = _secret(content, request.machine_id)
        keys = [
            wire.PublicKey(id=str(item.get("id") or ""), public_key=str(item.get("public_key") or ""))
            for item in _dict_items(content.get("signing_keys"))
        ]
        return EnrolmentGrant(secret, tuple(key for key in keys if key.id and key.public_key))

    def check_enrolment(self, request: wire.EnrolRequest, key: Key | None = None) -> None:
        """Check whether `enrol` with this request would succeed now. Raises what `enrol` would raise. The backend
        stores nothing.
        """
        content = self._call("POST", wire.ENROL_CHECK_PATH, key or "", body=json.dumps(asdict(request)).encode())
        if content.get("admission") != "granted":
            raise AdmissionPending(202, "an administrator has to admit this machine in Drydock first", None)

    def report(self, secret: Secret, request: wire.ReportsRequest, reports: Iterable[StoredReport]) -> Acknowledgement:
        """Send a batch of reports. `reports` are sent instead of `request.reports`."""
        envelope = {name: _to_json_value(value) for name, value in asdict(request).items() if name != "reports"}
        # The stored data is already JSON and is inserted unchanged.
        lines = ",".join(
            f'{{"seq":{report.seq},"kind":{json.dumps(report.kind)},"at":"{report.at}","data":{report.data}}}'
            for report in reports
        )
        body = f'{json.dumps(envelope)[:-1]},"reports":[{lines}]}}'.encode()
        content = self._call("POST", wire.REPORTS_PATH, secret, body=body)
        acknowledged = _number(content.get("acknowledged"))
        if acknowledged is None:
            raise NoAnswer("the answer to a batch holds no acknowledgement")
        refused = {}
        for item in _dict_items(content.get("refused")):
            if (seq := _number(item.get("seq"))) is not None:
                refused[seq] = str(item.get("reason", ""))
        orders, unreadable = read_orders(content.get("orders"))
        words = tuple(
            wire.KeyNotice(
                id=str(item.get("id") or ""),
                public_key=str(item.get("public_key") or ""),
                retired=item.get("retired") is True,
                by=str(item.get("by") or ""),
                signature=str(item.get("signature") or ""),
            )
            for item in _dict_items(content.get("key_words"))
        )
        wanted = content.get("wanted")
        return Acknowledgement(
            acknowledged,
            refused,
            orders,
            unreadable,
            words,
            before=_number(content.get("acknowledged_before")),
            wanted=tuple(str(each) for each in wanted) if isinstance(wanted, list) else (),
            renew=content.get("renew") is True,
        )

    def orders(
        self, secret: Secret, *, wait: int, held: list[str], status_report: AgentStatus | None = None
    ) -> LongPollAnswer:
        """Make a long poll for orders. It returns when an order arrives, or without one after at most `wait` seconds.
        `held` are the orders that this agent already has, as `<order id>:<via>`.
        """
        query = {"wait": str(wait), "sent_at": to_text(self._clock.now())}
        if held:
            query["held"] = ",".join(held)
        if status_report is not None:
            query |= {"spool": status_report.spool, "acknowledged": str(status_report.acknowledged)}
            if status_report.last_poll_at is not None:
                query["last_poll_at"] = to_text(status_report.last_poll_at)
            if status_report.document:
                query["document"] = status_report.document
            if status_report.keys is not None:
                query["keys"] = ",".join(status_report.keys)
            if status_report.metadata:
                query["metadata"] = status_report.metadata
        path = f"{wire.ORDERS_PATH}?{urlencode(query, safe=':,')}"
        content = self._call("GET", path, secret, wait=wait)
        orders, unreadable = read_orders(content.get("orders"))
        prepare = content.get("prepare")
        return LongPollAnswer(
            orders,
            unreadable,
            takes_polls=content.get("takes_polls") is True,
            report=content.get("report") is True,
            remind=content.get("remind") is True,
            renew_in=_seconds(content.get("renew_in"), MAX_RENEWAL_SECONDS),
            prepare=tuple(str(event_id) for event_id in prepare) if isinstance(prepare, list) else None,
        )

    def interrupt(self) -> None:
        """Abort the current call and refuse further ones. May be called from any thread."""
        self._connections.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connections.close()

    def _call(
        self, method: str, path: str, secret: Secret, *, body: bytes | None = None, wait: int = 0, again: bool = False
    ) -> dict[str, Any]:
        headers = {}
        if secret:
            headers["Authorization"] = authorization(secret, method, path, body, self._server_clock.now())
        if body is not None:
            headers["Content-Type"] = "application/json"
        sent = self._clock.monotonic()
        answer = self._connections.send(
            method,
            self._url + path,
            timeout=(CONNECT_SECONDS, READ_SECONDS + wait),
            limit=_LIMIT,
            headers=headers,
            body=body,
        )
        received = self._clock.monotonic()
        content = _content(answer)
        if answer.status not in (200, 201, 202):
            detail = content.get("detail") or content.get("title") or "no reason given"
            server_time = _server_time(content)
            if answer.status == 401 and server_time is not None and not again:
                # The clocks differ: sign again with the backend's time.
                self._server_clock.contact(server_time, received)
                return self._call(method, path, secret, body=body, wait=wait, again=True)
            sentence = f"the backend answered {answer.status}: {detail}"
            seconds = _retry_after(answer, self._clock.now())
            raise RefusedByBackend(answer.status, sentence, seconds, wanted=_wanted(content))
        server_time = _server_time(content)
        if server_time is None:
            # Another server answers at this address: an answer of the backend has a server_time.
            raise NoAnswer("the answer is not the backend's: it holds no server_time")
        # A long poll is answered long after it was sent: only the time of the response counts then.
        self._server_clock.contact(server_time, received if wait else (sent + received) / 2)
        return content


def _number(value: object) -> int | None:
    """Return a number from a response, or None if it is none that the spool can store."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _seconds(value: object, most: float) -> float:
    """Return a number of seconds from a response; 0 if it is none, or not between 0 and `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 < value <= most else 0.0


def _server_time(content: dict[str, Any]) -> datetime | None:
    """Return the backend's time, or None if it is none, or lies outside the years 2000 to 2099."""
    found = from_text(content.get("server_time"))
    return found if found is not None and 2000 <= found.year < 2100 else None


def tls_context(ca_file: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the certificate authorities in the file `ca_file`; if this is empty, those of
    the package `requests`. Raises `ConfigError`.
    """
    try:
        return ssl.create_default_context(cafile=ca_file or requests.adapters.DEFAULT_CA_BUNDLE_PATH)
    except (ssl.SSLError, OSError):
        raise ConfigError(f"DRYDOCK_CA_FILE names {ca_file}, which holds no certificates.") from None


def _secret(content: dict[str, Any], machine_id: str) -> Secret:
    """Return the key, or else the credential, from the response to an enrolment. Raises `NoAnswer` if there is
    neither.
    """
    key, generation = content.get("key"), content.get("generation")
    if key and isinstance(key, str) and KEY_PATTERN.fullmatch(key) and isinstance(generation, int):
        return Key(str(content.get("machine_id") or machine_id), generation, key)
    credential = content.get("credential")
    # It is sent in a header, which may contain only printable ASCII.
    if not isinstance(credential, str) or not (credential and credential.isascii() and credential.isprintable()):
        raise NoAnswer("the answer to enrolling holds no credential")
    return credential


def _wanted(content: dict[str, Any]) -> str:
    """Return the URL of the intermediate certificate that the backend needs, or an empty string."""
    if content.get("type") != "intermediate-wanted":
        return ""
    return next((str(item.get("message") or "") for item in _dict_items(content.get("errors"))), "")


def proxies_for(url: str) -> dict[str, str]:
    """Return the proxies for `url` from the environment variables, in the form of `requests`. `NO_PROXY` is
    respected.
    """
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return {}
    return dict(requests.utils.get_environ_proxies(url))


def read_orders(value: object) -> tuple[list[wire.Order], int]:
    """Parse the orders of a response. Return them, and the number of orders without an id. A missing event or machine
    becomes an empty string.
    """
    orders, unreadable = [], 0
    for item in _dict_items(value):
        order_id = item.get("id")
        if not isinstance(order_id, str) or not order_id:
            unreadable += 1
            continue
        expires = item.get("expires_at")
        expires_at = from_text(expires)
        legible = expires is None or expires_at is not None
        orders.append(
            wire.Order(
                id=order_id,
                machine_id=str(item.get("machine_id") or ""),
                # An expiry that cannot be read makes the order unreadable: it must not run for ever.
                event_id=str(item.get("event_id") or "") if legible else "",
                issued_at=from_text(item.get("issued_at")) or datetime.fromtimestamp(0, timezone.utc),
                expires_at=expires_at,
                via=str(item.get("via") or ""),
                signatures=[
                    wire.Signature(key=str(one.get("key") or ""), value=str(one.get("value") or ""))
                    for one in _dict_items(item.get("signatures"))
                ],
                drill=_drill(item.get("drill")),
                request_id=_valid_id(item.get("request_id")),
                trace_id=_valid_id(item.get("trace_id")),
            )
        )
    return orders, unreadable


def _valid_id(value: object) -> str:
    # Not signed, and written to the log.
    return value if isinstance(value, str) and ID_PATTERN.fullmatch(value) else ""


def _drill(value: object) -> dict[str, Any] | None:
    # Any value marks a drill: an order of a drill must not reach Azure.
    return value if isinstance(value, dict) or value is None else {}


def order_to_text(order: wire.Order) -> str:
    """Encode an order as the text that the spool stores."""
    return json.dumps({name: _to_json_value(value) for name, value in asdict(order).items()})


def _to_json_value(value: Any) -> Any:
    return to_text(value) if isinstance(value, datetime) else value


def _dict_items(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _content(answer: Answer) -> dict[str, Any]:
    try:
        content = json.loads(answer.body)
    except (ValueError, RecursionError):
        content = None
    return content if isinstance(content, dict) else {}


def _retry_after(answer: Answer, now: datetime) -> float | None:
    text = answer.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(min(int(text[:9]), 3600))
    try:
        return min(max((parsedate_to_datetime(text) - now).total_seconds(), 0.0), 3600.0)
    except (TypeError, ValueError):
        return None
