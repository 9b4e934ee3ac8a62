"""The metadata service of every machine: identifies the calling machine, applies faults, and responds to requests for
scheduled events.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
import zlib
from collections import deque
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any

from azure_simulator import documents, faults, instance
from azure_simulator.answers import ATTESTED, INSTANCE, VERSIONS, Answers
from azure_simulator.attestation import Authority
from azure_simulator.azure import Azure
from azure_simulator.clock import Clock, rfc1123
from azure_simulator.documents import Version, encoded
from azure_simulator.fleet import Machine, MachineSet
from azure_simulator.http import Answer, Hangup, Request, Reset, Response
from azure_simulator.log import Entry, Log
from azure_simulator.refusals import BAD_VERSION, BAD_VERSION_TEXT, error, parameters, refused

SCHEDULED_EVENTS = "/metadata/scheduledevents"

_GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_INCARNATION_JUMP = 3


class Metadata:
    """Responds to requests as Azure would respond to the calling machine."""

    def __init__(
        self,
        azure: Azure,
        waiting_faults: faults.Faults,
        log: Log,
        clock: Clock,
        authority: Authority,
        *,
        most_a_second: int = 0,
    ) -> None:
        self._azure = azure
        self._answers = Answers(authority)
        # 0 is no limit. Machine -> times of its newest requests, at most as many as a second may have.
        self._most = most_a_second
        self._newest: dict[str, deque[datetime]] = {}
        self._faults = waiting_faults
        self._log = log
        self._clock = clock
        # (set, version) -> (changes, JSON of `Events`): all machines of a set receive the same, so it is written once.
        self._written: dict[tuple[str, str], tuple[int, bytes]] = {}

    def answer(self, vm: str, path: str, request: Request) -> Answer:
        """Return the response to a request of the machine `vm`. `path` is the path of the metadata service, without the
        simulator's prefix.
        """
        now = self._clock.now()
        entry = self._log.add(vm, now, request)
        answer = self._answer(vm, path.rstrip("/").lower(), request, now)
        if isinstance(answer, Response):
            return self._finished(answer, entry)
        return self._finished_later(answer, entry)

    def _answer(self, vm: str, path: str, request: Request, now: datetime) -> Answer:
        found = self._azure.machines.get(vm)
        if found is None:
            return error(404, f"the fleet has no machine {vm!r}")
        self._azure.settle(now)
        if not self._azure.exists(found[1], now):
            # The machine does not exist, so there is no answer.
            return Hangup()
        pause = self._azure.pause_left(found[1], now)
        if pause:
            # The request of an interrupted machine is answered when the machine continues.
            return self._after(pause, vm, path, request, now + timedelta(seconds=pause))
        if self._most and self._too_many(vm, now):
            return Response(429, encoded({"error": _LATER[429]}), headers=(("Retry-After", "1"),))
        if path == SCHEDULED_EVENTS:
            return self._scheduled_events(*found, request, now)
        refusal = refused(request, enforce_header=True)
        if refusal is not None:
            return refusal
        if request.method != "GET":
            return error(405, "Method not allowed")
        if path == INSTANCE or path.startswith(INSTANCE + "/"):
            for fault in self._faults.take(found[1].id, faults.INSTANCE, request.method, now):
                answer = self._faulty_instance(fault, *found, path, dict(parameters(request)), now)
                if answer is not None:
                    return answer
        newest = self._faults.newest_version(found[1].id, now)
        if path == VERSIONS and newest:
            return Response(200, encoded({"apiVersions": [name for name in instance.VERSIONS if name <= newest]}))
        forged = ""
        if path == ATTESTED:
            for fault in self._faults.take(found[1].id, faults.ATTESTED, request.method, now):
                forged = fault.name.removeprefix("attested-")
                if forged.isdecimal():
                    return error(int(forged), _LATER[int(forged)])
        return self._answers.answer(*found, path, dict(parameters(request)), now, forged)

    def _faulty_instance(
        self,
        fault: faults.Fault,
        in_set: MachineSet,
        machine: Machine,
        path: str,
        said: dict[str, str],
        now: datetime,
    ) -> Answer | None:
        """Return the response for `/metadata/instance` under this fault, or None if the fault does not apply to this
        request.
        """
        kind = fault.name.removeprefix("instance-")
        if kind.isdecimal():
            return error(int(kind), _LATER[int(kind)])
        if kind == "hang":
            return _hang(fault.delay_seconds)
        if kind == "empty":
            return Response(200)
        if kind == "garbage":
            return Response(200, b"<html><body>The service is unavailable</body></html>", "text/html")
        if path != INSTANCE or (kind == "wants-extended" and said.get("extended", "").lower() == "true"):
            return None
        answer = self._answers.answer(in_set, machine, path, said, now)
        if not isinstance(answer, Response) or answer.status != 200:
            return answer
        return Response(200, encoded(faults.spoilt_instance(fault.name, json.loads(answer.body))))

    def _too_many(self, vm: str, now: datetime) -> bool:
        newest = self._newest.setdefault(vm, deque(maxlen=self._most))
        if len(newest) == self._most and (now - newest[0]).total_seconds() < 1:
            return True
        newest.append(now)
        return False

    def _scheduled_events(self, in_set: MachineSet, machine: Machine, request: Request, now: datetime) -> Answer:
        for fault in self._faults.take(machine.id, faults.TRANSPORT, request.method, now):
            return self._faulty(fault, in_set, machine, request, now)
        if self._azure.slow_to_begin and request.method == "GET" and _judged(request)[1] is None:
            wait = self._azure.called(in_set, machine, now)
            if wait:
                return self._slow(wait, in_set, machine, request)
        return self._sound(in_set, machine, request, now)

    async def _after(self, seconds: float, vm: str, path: str, request: Request, due: datetime) -> Response:
        await asyncio.sleep(seconds)
        answer = self._answer(vm, path, request, max(due, self._clock.now()))
        return answer if isinstance(answer, Response) else await answer

    def _sound(self, in_set: MachineSet, machine: Machine, request: Request, now: datetime) -> Response:
        name, refusal = _judged(request)
        if refusal is not None:
            return refusal
        for fault in self._faults.take(machine.id, faults.VERSION, request.method, now):
            if name > fault.newest:
                return _unknown_version(fault)
        version = documents.VERSIONS[name]
        if request.method == "GET":
            return self._document(in_set, machine, name, version, request, now)
        if request.method == "POST":
            return self._start_requests(in_set, machine, request, now)
        return error(405, "Method not allowed")

    def _document(
        self, in_set: MachineSet, machine: Machine, name: str, version: Version, request: Request, now: datetime
    ) -> Response:
        for fault in self._faults.take(machine.id, faults.INCARNATION, "GET", now):
            if fault.name == "incarnation-reset":
                self._azure.forget_machine(machine)
            else:
                self._azure.jump_incarnation(machine, _INCARNATION_JUMP)
        incarnation = self._azure.incarnation(in_set, machine, now)
        spoiling = self._faults.take(machine.id, faults.DOCUMENT, "GET", now)
        if spoiling:
            body = self._spoilt(spoiling, in_set, version, incarnation)
        else:
            body = b'{"DocumentIncarnation":%d,"Events":%b}' % (incarnation, self._events_json(in_set, name, version))
        # The incarnation alone would do for Azure; after a reset it would call two different documents the same.
        etag = f'"{incarnation}-{zlib.crc32(body):08x}"'
        if _names(request.headers.get("if-none-match", ""), etag):
            return Response(304, headers=(("ETag", etag),))
        return Response(200, body, headers=(("ETag", etag),))

    def _events_json(self, in_set: MachineSet, name: str, version: Version) -> bytes:
        changes = self._azure.changes(in_set)
        written = self._written.get((in_set.key, name))
        if written is None or written[0] != changes:
            text = encoded(documents.rendered_events(self._azure.open_events(in_set), version))
            written = self._written[in_set.key, name] = (changes, text)
        return written[1]

    def _spoilt(self, spoiling: list[faults.Fault], in_set: MachineSet, version: Version, incarnation: int) -> bytes:
        events = documents.rendered_events(self._azure.open_events(in_set), version)
        for fault in spoiling:
            faults.DOCUMENT_FAULTS[fault.name](events)
        body = documents.document(incarnation, events)
        return faults.with_raw_newlines(body) if any(f.name == "raw-newline" for f in spoiling) else body

    def _start_requests(self, in_set: MachineSet, machine: Machine, request: Request, now: datetime) -> Response:
        ids = _requested_ids(request.body)
        if ids is None:
            return error(400, "Bad request. The payload is malformed")
        listed = {event.event_id: event for event in self._azure.open_events(in_set)}
        events = [listed.get(event_id.upper()) for event_id in ids]
        known = [event for event in events if event is not None]
        if len(known) < len(events):
            # Microsoft promises 200 "if it is passed a valid event ID" and states nothing about others. An id that this
            # machine does not receive, or no longer, is not valid here. The request is then refused as a whole.
            return error(400, "Bad request. An EventId is not known")
        for event in known:
            delays = self._faults.take(machine.id, faults.APPROVAL, "POST", now)
            delay = max((fault.delay_seconds for fault in delays), default=0.0)
            self._azure.approve(event, vm=machine.id, now=now, delay_seconds=delay)
        return Response(200)

    def _faulty(
        self, fault: faults.Fault, in_set: MachineSet, machine: Machine, request: Request, now: datetime
    ) -> Answer:
        if fault.name == "slow":
            return self._slow(fault.delay_seconds, in_set, machine, request)
        if fault.name == "late-answer":
            # The effect of the request has happened by now, and the caller does not know it yet.
            return _late(fault.delay_seconds, self._sound(in_set, machine, request, now))
        if fault.name == "hang":
            return _hang(fault.delay_seconds)
        if fault.name == "reset":
            return Reset()
        if fault.name == "empty":
            return Response(200)
        if fault.name == "garbage":
            return Response(200, b"<html><body>The service is unavailable</body></html>", "text/html")
        if fault.name == "cut-short":
            whole = self._sound(in_set, machine, request, now)
            return Response(whole.status, whole.body[: len(whole.body) // 2], length=len(whole.body) or 1)
        status = int(fault.name.removeprefix("status-"))
        retry = (("Retry-After", "1"),) if status in (429, 503) else ()
        return Response(status, encoded({"error": _LATER[status]}), headers=retry)

    async def _slow(self, seconds: float, in_set: MachineSet, machine: Machine, request: Request) -> Response:
        await asyncio.sleep(seconds)
        return self._sound(in_set, machine, request, self._clock.now())

    async def _finished_later(self, answer: Coroutine[Any, Any, Response], entry: Entry) -> Response:
        return self._finished(await answer, entry)

    def _finished(self, answer: Response, entry: Entry) -> Response:
        entry.status = answer.status
        answer.headers = (
            *answer.headers,
            ("Server", "IMDS/150.870.65.1354"),
            ("x-ms-request-id", str(uuid.uuid4())),
            ("Date", rfc1123(self._clock.now())),
        )
        return answer


def _unknown_version(fault: faults.Fault) -> Response:
    """Return the rejection of an api-version: status 400 as documented, or 404 as some clouds do, possibly without a
    reason.
    """
    if fault.status == 404 and not fault.names:
        return error(404, _LATER[404])
    named = [version for version in reversed(documents.VERSIONS) if version <= fault.newest]
    body = {"error": BAD_VERSION_TEXT, "newest-versions": named if fault.names else []}
    return Response(fault.status, encoded(body))


_LATER = {
    403: "Forbidden",
    404: "Not found",
    408: "Request timeout",
    410: "Gone. The service is moving; try again",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
}


async def _late(seconds: float, answer: Response) -> Response:
    await asyncio.sleep(seconds)
    return answer


async def _hang(seconds: float) -> Response:
    await asyncio.sleep(seconds)
    return Hangup()


def _judged(request: Request) -> tuple[str, Response | None]:
    """Return the api-version of a request for scheduled events, and a response if the request must be rejected."""
    name = dict(parameters(request)).get("api-version", "")
    version = documents.VERSIONS.get(name)
    refusal = refused(request, enforce_header=version is None or version.header_enforced)
    if refusal is None and version is None:
        refusal = Response(400, BAD_VERSION)
    return name, refusal


def _requested_ids(body: bytes) -> list[str] | None:
    """Return the event ids in a `StartRequests` body, or None if it is invalid."""
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        return None
    requests = payload.get("StartRequests") if isinstance(payload, dict) else None
    if not isinstance(requests, list) or not requests:
        return None
    ids = [item.get("EventId") if isinstance(item, dict) else None for item in requests]
    texts = [value for value in ids if isinstance(value, str) and _GUID.fullmatch(value)]
    return texts if len(texts) == len(ids) else None


def _names(if_none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or tags == ["*"]
