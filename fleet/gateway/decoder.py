"""Decoding of a batch of reports from bytes to the arguments of operations. Each report is decoded separately, so that
an invalid one does not affect the others.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings
from drydock_agent import wire

from fleet.domain.texts import parse_json, storable
from fleet.domain.times import clamped
from fleet.gateway.http import Problem
from fleet.gateway.readers import BIGGEST, LONGEST, READERS, Clock, Unreadable, check_nested, cleaned
from fleet.operations.intake.keep import Data, ParsedReport

_request = msgspec.json.Decoder(wire.ReportsRequest)


@dataclass(slots=True)
class Batch:
    """A decoded request with reports. `refused` holds the number and the reason of each report that cannot be accepted;
    `size` is in bytes.
    """

    request: wire.ReportsRequest
    size: int
    reports: list[ParsedReport] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)


def read_batch(raw: bytes, *, received_at: datetime) -> Batch:
    """Decode a request with reports. Raises Problem 422 if its envelope cannot be read, and 413 if it has too many
    reports.
    """
    request, dirty = _read_envelope(raw)
    if len(request.reports) > wire.MAX_REPORTS:
        raise Problem(413, "too-large", f"A batch may hold up to {wire.MAX_REPORTS} reports: send fewer at once.")
    try:
        clock = Clock.measured(
            sent_at=request.sent_at, received_at=received_at, tolerance=settings.CLOCK_TOLERANCE_SECONDS
        )
    except ValueError as error:
        raise Problem(422, "validation", f"sent_at: {error}.") from None
    batch = Batch(request, len(raw))
    last = 0
    for raw_report in request.reports:
        seq = _number(raw_report, last)
        last = seq
        try:
            report = cleaned(raw_report) if dirty else raw_report
            batch.reports.append(_read_report(report, seq, request.protocol, clock, received_at))
        except ValueError as error:
            batch.refused.append((seq, _sentence(error)))
    return batch


def _read_envelope(raw: bytes) -> tuple[wire.ReportsRequest, bool]:
    """Return the decoded request, and whether its reports may contain text that Postgres cannot store."""
    dirty = b"\\u0000" in raw
    try:
        request = _request.decode(raw)
    except (ValueError, RecursionError):
        request, dirty = _read_leniently(raw), True
    if not 0 < len(request.spool) <= 100 or storable(request.spool) != request.spool:
        raise Problem(422, "validation", "spool must be text of 1 to 100 characters.")
    request.agent_version = storable(request.agent_version[:100])
    if request.acknowledged is not None and not 0 <= request.acknowledged < BIGGEST:
        request.acknowledged = None
    return request, dirty


def _read_leniently(raw: bytes) -> wire.ReportsRequest:
    """Decode a request with the standard library, which accepts lone surrogates. Otherwise one report with a lone
    surrogate would block all later reports of its spool.
    """
    try:
        return msgspec.convert(parse_json(raw), wire.ReportsRequest)
    except msgspec.ValidationError as error:
        raise Problem(422, "validation", f"The request cannot be read: {error}.") from None
    except ValueError:
        raise Problem(422, "validation", "The request is not valid JSON: send application/json in UTF-8.") from None


def _number(report: Any, last: int) -> int:
    """Return the number of a report. A report without one cannot be refused on its own, so the whole request is
    (Problem 422).
    """
    seq = report.get("seq") if isinstance(report, dict) else None
    if type(seq) is not int or not 0 < seq < BIGGEST:
        raise Problem(422, "validation", "Every report needs a number: seq, an integer from 1.")
    if seq <= last:
        raise Problem(422, "validation", f"Reports must be in ascending order of seq: {seq} comes after {last}.")
    return seq


def _read_report(raw: dict[str, Any], seq: int, protocol: int, clock: Clock, now: datetime) -> ParsedReport:
    kind, data = raw.get("kind"), raw.get("data")
    if not isinstance(kind, str) or not 0 < len(kind) <= 50:
        raise Unreadable("kind must be text of 1 to 50 characters")
    if not isinstance(data, dict):
        raise Unreadable("data must be an object")
    check_nested(data, wire.MAX_DEPTH)
    sent = msgspec.convert(raw.get("at"), datetime)
    at, right = clock.judged(sent, now)
    understood, flag = _understood(kind, data, protocol)
    return ParsedReport(
        seq=seq, kind=kind, at=at, machine_at=clamped(sent), data=understood, flag=flag, wrong_clock=not right
    )


def _understood(kind: str, data: dict[str, Any], protocol: int) -> tuple[Data, str]:
    """Return the report's data, and a description of the part that could not be read (empty if everything could)."""
    if kind not in READERS:
        return data, f"unknown kind {kind!r}"
    form, check = READERS[kind]
    try:
        understood: Data = msgspec.convert(data, form)
        check(understood)
        return understood, ""
    except ValueError as error:
        # Another protocol may mean something else by this kind: keep it as it is.
        if protocol == wire.PROTOCOL:
            raise
        return data, f"protocol {protocol}: {_sentence(error)}"


def _sentence(error: ValueError) -> str:
    return str(error)[:LONGEST] or "it cannot be read"
