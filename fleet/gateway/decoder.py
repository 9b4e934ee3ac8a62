"""A batch of reports, from bytes to what operations take. Each report is read by itself: a bad one stands alone."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
from drydock_agent import wire

from fleet.gateway.clocks import Clock, utc
from fleet.gateway.http import Problem
from fleet.gateway.limits import Limits
from fleet.operations.intake.keep import ParsedReport

HASH = re.compile(r"[0-9a-f]{64}")
LONGEST = 2_000
LONGEST_LINE = 16_000
BIGGEST = 2**63

_request = msgspec.json.Decoder(wire.ReportsRequest)


class Unreadable(ValueError):
    """Why one report cannot be taken, in words for the agent's log."""


@dataclass(slots=True)
class Batch:
    """One request for reports, read. `refused` holds (number, reason) of what cannot be taken; `size` is in bytes."""

    request: wire.ReportsRequest
    clock: Clock
    size: int
    reports: list[ParsedReport] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)


def read_batch(raw: bytes, *, received_at: datetime, limits: Limits) -> Batch:
    """Raises Problem 422 when the envelope cannot be read and 413 when it holds too many reports."""
    request, dirty = _read_envelope(raw)
    if len(request.reports) > limits.reports:
        raise Problem(413, "too-large", f"A batch may have up to {limits.reports} reports: send fewer at once.")
    try:
        clock = Clock.measured(sent_at=request.sent_at, received_at=received_at, tolerance=limits.clock_tolerance)
    except ValueError as error:
        raise Problem(422, "validation", f"sent_at: {error}.") from None
    batch = Batch(request, clock, len(raw))
    last = 0
    for raw_report in request.reports:
        seq = _number(raw_report, last)
        last = seq
        try:
            report = _cleaned(raw_report) if dirty else raw_report
            batch.reports.append(_read_report(report, seq, request.protocol, clock, limits))
        except ValueError as error:
            batch.refused.append((seq, _sentence(error)))
    return batch


def _read_envelope(raw: bytes) -> tuple[wire.ReportsRequest, bool]:
    """The request, and whether its reports may hold text that Postgres cannot keep."""
    dirty = b"\\u0000" in raw
    try:
        request = _request.decode(raw)
    except (ValueError, RecursionError):
        request, dirty = _read_leniently(raw), True
    if not 0 < len(request.spool) <= 100 or clean(request.spool) != request.spool:
        raise Problem(422, "validation", "spool has to be a plain text of 1 to 100 characters.")
    request.agent_version = clean(request.agent_version[:100])
    return request, dirty


def _read_leniently(raw: bytes) -> wire.ReportsRequest:
    """The same through the standard library, which reads halves of surrogate pairs: else one would block a spool."""
    try:
        return msgspec.convert(json.loads(raw), wire.ReportsRequest)
    except RecursionError:
        raise Problem(422, "validation", "The request is nested too deeply to be read.") from None
    except msgspec.ValidationError as error:
        raise Problem(422, "validation", f"The request cannot be read: {error}.") from None
    except ValueError:
        raise Problem(422, "validation", "The request is no JSON: send it as application/json in UTF-8.") from None


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


def _cleaned(report: dict[str, Any]) -> dict[str, Any]:
    """The report with clean texts. A document's body stays as it is: it is kept as bytes."""
    data = report.get("data")
    cleaned: dict[str, Any] = clean({**report, "data": None})
    if report.get("kind") == wire.DOCUMENT and isinstance(data, dict):
        return {**cleaned, "data": {**clean({**data, "body": ""}), "body": data.get("body")}}
    return {**cleaned, "data": clean(data)}


def _number(report: Any, last: int) -> int:
    """The report's number. Without one it cannot even be refused, so the request is."""
    seq = report.get("seq") if isinstance(report, dict) else None
    if type(seq) is not int or not 0 < seq < BIGGEST:
        raise Problem(422, "validation", "Every report needs its number: seq, a whole number from 1.")
    if seq <= last:
        raise Problem(422, "validation", f"Reports have to stand in the order of their numbers: {seq} after {last}.")
    return seq


def _read_report(raw: dict[str, Any], seq: int, protocol: int, clock: Clock, limits: Limits) -> ParsedReport:
    kind, data = raw.get("kind"), raw.get("data")
    if not isinstance(kind, str) or not 0 < len(kind) <= 50:
        raise Unreadable("kind has to be a text of 1 to 50 characters")
    if not isinstance(data, dict):
        raise Unreadable("data has to be an object")
    machine_at = utc(msgspec.convert(raw.get("at"), datetime))
    at = clock.corrected(machine_at)
    reader = READERS.get(kind)
    if reader is None:
        return _stored_raw(seq, kind, at, machine_at, data, limits, f"unknown kind {kind!r}")
    try:
        parsed = reader(data, limits)
    except ValueError as error:
        # Another protocol may mean something else by this kind: keep it as it is.
        if protocol == wire.PROTOCOL:
            raise
        return _stored_raw(seq, kind, at, machine_at, data, limits, f"protocol {protocol}: {_sentence(error)}")
    return ParsedReport(seq=seq, kind=kind, at=at, machine_at=machine_at, data=parsed)


def _stored_raw(
    seq: int, kind: str, at: datetime, machine_at: datetime, data: dict[str, Any], limits: Limits, flag: str
) -> ParsedReport:
    _check_depth(data, limits.depth)
    return ParsedReport(seq=seq, kind=kind, at=at, machine_at=machine_at, data=data, flag=flag)


def _read_document(data: Any, limits: Limits) -> wire.DocumentData:
    document = msgspec.convert(data, wire.DocumentData)
    body = document_bytes(document)
    if len(body) > limits.document_bytes:
        raise Unreadable(f"a document may have up to {limits.document_bytes} bytes, this one has {len(body)}")
    if sha256(body).hexdigest() != document.hash:
        raise Unreadable("hash is not the SHA-256 of the body: it was damaged on its way")
    _check_range("incarnation", document.incarnation, BIGGEST)
    document.api_version = document.api_version[:50]
    return document


def document_bytes(document: wire.DocumentData) -> bytes:
    """The bytes as the metadata service sent them. Raises Unreadable."""
    if document.encoding == "utf-8":
        return str(document.body).encode()
    if document.encoding != "base64":
        raise Unreadable("encoding has to be utf-8 or base64")
    try:
        return base64.b64decode(document.body, validate=True)
    except binascii.Error:
        raise Unreadable("body is no base64") from None


def _read_reminder(data: Any, limits: Limits) -> wire.ReminderData:
    reminder = msgspec.convert(data, wire.ReminderData)
    if not HASH.fullmatch(reminder.hash):
        raise Unreadable("hash has to be 64 digits of lower case hex")
    _check_range("incarnation", reminder.incarnation, BIGGEST)
    return reminder


def _read_receipt(data: Any, limits: Limits) -> wire.ReceiptData:
    receipt = msgspec.convert(data, wire.ReceiptData)
    try:
        receipt.order_id = str(UUID(receipt.order_id))
    except ValueError:
        raise Unreadable("order_id has to be a UUID") from None
    if receipt.outcome not in (wire.ANSWERED, wire.REFUSED, wire.FAILED):
        raise Unreadable("outcome has to be answered, refused or failed")
    _check_range("azure_status", receipt.azure_status, 2**31)
    if receipt.attempted_at is not None:
        receipt.attempted_at = utc(receipt.attempted_at)
    receipt.event_id = receipt.event_id[:200]
    receipt.azure_body = receipt.azure_body[:LONGEST]
    receipt.reason = receipt.reason[:LONGEST]
    receipt.via = receipt.via[:50]
    return receipt


def _read_instance(data: Any, limits: Limits) -> wire.InstanceData:
    _check_depth(data, limits.depth)
    instance = msgspec.convert(data, wire.InstanceData)
    instance.resource_name = instance.resource_name[:200]
    instance.availability_set = instance.availability_set[:500]
    return instance


def _read_hook(data: Any, limits: Limits) -> wire.HookData:
    hook = msgspec.convert(data, wire.HookData)
    if hook.phase not in ("prepare", "recover"):
        raise Unreadable("phase has to be prepare or recover")
    if hook.step not in ("begin", "hook", "end"):
        raise Unreadable("step has to be begin, hook or end")
    if not hook.event_id.strip():
        raise Unreadable("event_id is empty")
    _check_range("exit_status", hook.exit_status, 2**31)
    hook.event_id, hook.outcome, hook.hook = hook.event_id[:200], hook.outcome[:50], hook.hook[:200]
    hook.output = hook.output[-2 * LONGEST :]
    return hook


def _host(text: str) -> str:
    host = text.strip().lower().rstrip(".")
    if not 0 < len(host) <= 255 or any(letter.isspace() for letter in host):
        raise Unreadable("cache has to be a host name")
    return host


def _read_redis(data: Any, limits: Limits) -> wire.RedisData:
    heard = msgspec.convert(data, wire.RedisData)
    heard.cache = _host(heard.cache)
    if heard.encoding not in ("utf-8", "base64"):
        raise Unreadable("encoding has to be utf-8 or base64")
    if heard.encoding == "base64":
        try:
            line = base64.b64decode(heard.raw, validate=True)
        except ValueError:
            raise Unreadable("raw is no base64") from None
        if len(line) > LONGEST_LINE:
            heard.raw, heard.cut = base64.b64encode(line[:LONGEST_LINE]).decode(), True
    elif len(heard.raw) > LONGEST_LINE:
        heard.raw, heard.cut = heard.raw[:LONGEST_LINE], True
    return heard


def _read_coverage(data: Any, limits: Limits) -> wire.CoverageData:
    coverage = msgspec.convert(data, wire.CoverageData)
    coverage.cache = _host(coverage.cache)
    if coverage.state not in ("subscribed", "lost", "stale", "refused", "unsupported"):
        raise Unreadable("state has to be subscribed, lost, stale, refused or unsupported")
    if not 1 <= coverage.divisor <= 1000:
        raise Unreadable("divisor has to be a number from 1 to 1000")
    coverage.reason, coverage.tier = coverage.reason[:LONGEST], coverage.tier.strip().lower()[:50]
    return coverage


def _read_redis_hook(data: Any, limits: Limits) -> wire.RedisHookData:
    hook = msgspec.convert(data, wire.RedisHookData)
    hook.cache = _host(hook.cache)
    if hook.outcome not in ("succeeded", "failed", "timed-out"):
        raise Unreadable("outcome has to be succeeded, failed or timed-out")
    _check_range("exit_status", hook.exit_status, 2**31)
    hook.notification_type, hook.hook = hook.notification_type[:200], hook.hook[:200]
    hook.output = hook.output[-2 * LONGEST :]
    return hook


def _read_rehearsal(data: Any, limits: Limits) -> wire.RehearsalData:
    rehearsal = msgspec.convert(data, wire.RehearsalData)
    try:
        rehearsal.rehearsal = str(UUID(rehearsal.rehearsal))
    except ValueError:
        raise Unreadable("rehearsal has to be a UUID") from None
    if rehearsal.step not in ("announced", "started", "gone"):
        raise Unreadable("step has to be announced, started or gone")
    rehearsal.event_id, rehearsal.reason = rehearsal.event_id[:200], rehearsal.reason[:50]
    return rehearsal


READERS: dict[str, Callable[[Any, Limits], Any]] = {
    wire.DOCUMENT: _read_document,
    wire.REMINDER: _read_reminder,
    wire.RECEIPT: _read_receipt,
    wire.INSTANCE: _read_instance,
    wire.HOOK: _read_hook,
    wire.REDIS: _read_redis,
    wire.COVERAGE: _read_coverage,
    wire.REDIS_HOOK: _read_redis_hook,
    wire.REHEARSAL: _read_rehearsal,
}


def _check_range(name: str, value: int | None, bound: int) -> None:
    if value is not None and not -bound <= value < bound:
        raise Unreadable(f"{name} is out of range")


def _check_depth(value: Any, depth: int) -> None:
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise Unreadable(f"data is nested deeper than {depth} levels")


def _sentence(error: ValueError) -> str:
    return str(error)[:LONGEST] or "it cannot be read"
