"""Parsers of reports by kind, with clock correction and removal of characters that Postgres rejects."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from math import isfinite
from typing import Any
from uuid import UUID

from drydock_agent import wire

from fleet.domain.texts import storable
from fleet.domain.times import EARLIEST, in_bounds


def cleaned(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report without characters that Postgres rejects. The body of a document is unchanged: it is stored as
    bytes.
    """
    data = report.get("data")
    rest: dict[str, Any] = storable({**report, "data": None})
    if report.get("kind") == wire.DOCUMENT and isinstance(data, dict):
        return {**rest, "data": {**storable({**data, "body": ""}), "body": data.get("body")}}
    return {**rest, "data": storable(data)}


# Times of machines, corrected by how far their clocks are off.


def utc(at: datetime) -> datetime:
    """Return the time in UTC; a time without a zone is read as UTC. Raises ValueError if it cannot be converted."""
    if at.tzinfo is UTC:
        return at
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is out of range") from None


@dataclass(frozen=True, slots=True)
class Clock:
    """Offset of a machine's clock in seconds, measured at one contact. It is positive if the machine's clock is
    ahead.
    """

    offset: float
    tolerance: float

    @classmethod
    def measured(cls, *, sent_at: datetime, received_at: datetime, tolerance: float) -> Clock:
        return cls((utc(sent_at) - received_at).total_seconds(), tolerance)

    def corrected(self, at: datetime) -> datetime | None:
        """Return a time of the machine's clock as a time of the backend's clock; None if it is out of range."""
        try:
            at = utc(at)
            return at if abs(self.offset) <= self.tolerance else at - timedelta(seconds=self.offset)
        except (ValueError, OverflowError):
            return None

    def judged(self, at: datetime, now: datetime) -> tuple[datetime, bool]:
        """Return the corrected time, and whether it is plausible. A time after `now` or before the year 2000 is not
        plausible; then the returned time is `now`.
        """
        corrected = self.corrected(at)
        if corrected is None or in_bounds(corrected) is None or corrected > now + timedelta(seconds=self.tolerance):
            return now, False
        return min(corrected, now), True

    def not_after(self, at: datetime | None, now: datetime) -> datetime | None:
        """Return the corrected time, at most `now`. Return None without a time, or if it is before the year 2000 or out
        of range.
        """
        corrected = at and self.corrected(at)
        return min(corrected, now) if corrected and corrected >= EARLIEST else None


# Data of reports by kind: each check cuts texts to their maximum length, and raises Unreadable.

HASH = re.compile(r"[0-9a-f]{64}")
_VERSION = r"(?:20\d\d-\d\d-\d\d)?"
_PROBLEMS = "|".join((wire.NO_PROBLEM, wire.NO_ANSWER, wire.EMPTY, wire.UNREADABLE, wire.SPOOL_UNWRITABLE))
_METADATA = re.compile(rf"(?:{_PROBLEMS}|status-[1-5]\d\d),{_VERSION},{_VERSION}", re.ASCII)
ENCODINGS = ("utf-8", "base64")
LONGEST = 2_000
LONGEST_LINE = 16_000
BIGGEST = 2**63
# Longer than any notice that Azure gives.
MOST_RETRY_SECONDS = 3600.0


# Names and addresses of caches.
HOST = re.compile(r"[a-z0-9._:-]{1,255}")
# Names of Kubernetes nodes.
NODE_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


def metadata_state(text: str) -> str:
    """Return the reported state of the metadata service; empty if it has none of the forms of `wire.metadata_text`."""
    return text if _METADATA.fullmatch(text) else ""


class Unreadable(ValueError):
    """Raised if a report cannot be processed. The text is a part of a sentence for the agent's log."""


def _check_document(document: wire.DocumentData) -> None:
    body = document_bytes(document)
    if sha256(body).hexdigest() != document.hash:
        raise Unreadable("hash is not the SHA-256 of the body: the body was damaged on the way")
    if len(body) > wire.MAX_DOCUMENT_BYTES:
        # Store only the beginning, up to the limit. A cut body is no valid document, so it is stored as bytes.
        body_start = body[: wire.MAX_DOCUMENT_BYTES]
        document.body, document.encoding = base64.b64encode(body_start).decode(), "base64"
        document.hash, document.incarnation = sha256(body_start).hexdigest(), None
    _check_range("incarnation", document.incarnation, BIGGEST)
    document.api_version = document.api_version[:50]


def document_bytes(document: wire.DocumentData) -> bytes:
    """Return the body of a document as the bytes that the metadata service sent. Raises Unreadable."""
    _check_one_of("encoding", document.encoding, ENCODINGS)
    return str(document.body).encode() if document.encoding == "utf-8" else _base64("body", document.body)


def _check_reminder(reminder: wire.ReminderData) -> None:
    if not HASH.fullmatch(reminder.hash):
        raise Unreadable("hash must be 64 lowercase hexadecimal digits")
    _check_range("incarnation", reminder.incarnation, BIGGEST)


def _check_receipt(receipt: wire.ReceiptData) -> None:
    receipt.order_id = _uuid("order_id", receipt.order_id)
    _check_one_of("outcome", receipt.outcome, (wire.ANSWERED, wire.REFUSED, wire.FAILED))
    _check_range("azure_status", receipt.azure_status, 2**31)
    _check_range("posts", receipt.posts, 1000)
    if receipt.retry_after is not None:
        receipt.retry_after = min(max(receipt.retry_after, 0.0), MOST_RETRY_SECONDS)
    if receipt.attempted_at is not None:
        # An odd clock is no reason to lose what Azure answered.
        receipt.attempted_at = in_bounds(receipt.attempted_at)
    receipt.event_id = receipt.event_id[:200]
    receipt.azure_body = receipt.azure_body[:LONGEST]
    receipt.reason = receipt.reason[:LONGEST]
    receipt.via = receipt.via[:50]


def _check_instance(instance: wire.InstanceData) -> None:
    instance.resource_name = instance.resource_name[:200]
    instance.availability_set = instance.availability_set[:500]
    if not NODE_NAME.fullmatch(instance.node_name):
        instance.node_name = ""


def _check_hook(hook: wire.HookData) -> None:
    _check_one_of("phase", hook.phase, wire.HOOK_PHASES)
    _check_one_of("step", hook.step, ("begin", "hook", "end", "plan"))
    hook.planned_at = hook.planned_at and in_bounds(hook.planned_at)
    if hook.step == "plan" and (hook.phase != wire.PREPARE or hook.planned_at is None):
        raise Unreadable("a plan needs the phase prepare, and planned_at between the years 2000 and 2100")
    if not hook.event_id.strip():
        raise Unreadable("event_id is empty")
    _check_range("exit_status", hook.exit_status, 2**31)
    hook.event_id, hook.outcome, hook.hook = hook.event_id[:200], hook.outcome[:50], hook.hook[:200]
    hook.output = hook.output[-2 * LONGEST :]


def _host(text: str) -> str:
    host = text.strip().lower().rstrip(".")
    if not HOST.fullmatch(host):
        raise Unreadable("cache must be a host name")
    return host


def _check_redis(heard: wire.RedisData) -> None:
    heard.cache = _host(heard.cache)
    _check_one_of("encoding", heard.encoding, ENCODINGS)
    if heard.encoding == "base64":
        line = _base64("raw", heard.raw)
        if len(line) > LONGEST_LINE:
            heard.raw, heard.cut = base64.b64encode(line[:LONGEST_LINE]).decode(), True
    elif len(heard.raw) > LONGEST_LINE:
        heard.raw, heard.cut = heard.raw[:LONGEST_LINE], True


def _check_coverage(coverage: wire.CoverageData) -> None:
    coverage.cache = _host(coverage.cache)
    _check_one_of("state", coverage.state, ("subscribed", "lost", "stale", "refused", "unsupported"))
    if not 1 <= coverage.divisor <= 1000:
        raise Unreadable("divisor must be a number from 1 to 1000")
    tier = coverage.tier.strip().lower()[:50]
    # A text that is not alphanumeric is not a tier.
    coverage.reason, coverage.tier = coverage.reason[:LONGEST], tier if tier.isalnum() else ""


def _check_redis_hook(hook: wire.RedisHookData) -> None:
    hook.cache = _host(hook.cache)
    _check_one_of("outcome", hook.outcome, ("succeeded", "failed", "timed-out"))
    _check_range("exit_status", hook.exit_status, 2**31)
    hook.notification_type, hook.hook = hook.notification_type[:200], hook.hook[:200]
    hook.output = hook.output[-2 * LONGEST :]


def _check_rehearsal(rehearsal: wire.RehearsalData) -> None:
    rehearsal.rehearsal = _uuid("rehearsal", rehearsal.rehearsal)
    _check_one_of("step", rehearsal.step, ("announced", "started", "gone"))
    rehearsal.event_id, rehearsal.reason = rehearsal.event_id[:200], rehearsal.reason[:50]


# By kind: the type of the data, and its check, which also cuts texts.
READERS: dict[str, tuple[type[Any], Callable[[Any], None]]] = {
    wire.DOCUMENT: (wire.DocumentData, _check_document),
    wire.REMINDER: (wire.ReminderData, _check_reminder),
    wire.RECEIPT: (wire.ReceiptData, _check_receipt),
    wire.INSTANCE: (wire.InstanceData, _check_instance),
    wire.HOOK: (wire.HookData, _check_hook),
    wire.REDIS: (wire.RedisData, _check_redis),
    wire.COVERAGE: (wire.CoverageData, _check_coverage),
    wire.REDIS_HOOK: (wire.RedisHookData, _check_redis_hook),
    wire.REHEARSAL: (wire.RehearsalData, _check_rehearsal),
}


def _base64(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Unreadable(f"{name} is not valid base64") from None


def _uuid(name: str, text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise Unreadable(f"{name} must be a UUID") from None


def _check_one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise Unreadable(f"{name} must be {', '.join(allowed[:-1])} or {allowed[-1]}")


def _check_range(name: str, value: int | None, bound: int) -> None:
    if value is not None and not -bound <= value < bound:
        raise Unreadable(f"{name} is out of range")


def check_nested(data: dict[str, Any], depth: int) -> None:
    """Raise Unreadable if lists and objects are nested more than `depth` levels deep, or if a number cannot be stored:
    NaN, infinite, or larger than 64 bits.
    """
    if all(type(value) is str or value is None or _is_small(value) for value in data.values()):
        # Only texts and small numbers, as in a document: nothing is nested.
        return
    level: list[Any] = [data]
    for _ in range(depth):
        values = [value for outer in level for value in (outer.values() if isinstance(outer, dict) else outer)]
        for value in values:
            if isinstance(value, float) and not isfinite(value):
                raise Unreadable("a number is infinite, or none at all")
            if isinstance(value, int) and not -BIGGEST <= value < BIGGEST:
                raise Unreadable("a number is out of range")
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise Unreadable(f"data is nested deeper than {depth} levels")


def _is_small(value: Any) -> bool:
    return type(value) is int and -BIGGEST <= value < BIGGEST
