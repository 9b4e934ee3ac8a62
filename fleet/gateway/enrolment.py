"""Enrolment calls of agents (challenge and enrol), and counters of refused enrolments."""

import json
import math
import threading
import time

import msgspec
from django.conf import settings
from drydock_agent import wire

from fleet.domain.machines.enrolment import enrolled_name
from fleet.domain.reasons import Reason, Refused, as_json
from fleet.domain.secrets import hash_of
from fleet.domain.texts import storable
from fleet.gateway import metrics
from fleet.gateway.http import Problem, Request, Send, answer
from fleet.gateway.limits import Buckets, throttle, throttled
from fleet.gateway.signed_calls import Repeated, SignedCall, SignedCalls
from fleet.gateway.threads import Loop, Threads
from fleet.operations import clock
from fleet.operations.machines import enrolment, entrance
from fleet.operations.machines.enrolment import RefusedCalls
from fleet.wording.problems import PROBLEMS
from fleet.wording.say import say
from fleet.wording.times import API

PAUSE_SECONDS = 2.0
# The most machines and reasons between two writes; further ones are counted by reason alone.
MOST = 500
MAX_ID = 200


class Refusals:
    """Counts of refused enrolments since they were last written to the database."""

    def __init__(self) -> None:
        self.loop = Loop("refusals", self.write, pause=PAUSE_SECONDS)
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], RefusedCalls] = {}

    def note(self, request: wire.EnrolRequest, refused: Refused, address: str) -> None:
        """Count a refused enrolment in memory. No query."""
        metrics.ENROLMENTS_REFUSED.labels(refused.code).inc()
        now = clock.now()
        reason = refused.reason if isinstance(refused.reason, Reason) else Reason("enrolment-refused")
        vm_id = request.machine_id.strip().lower()[:MAX_ID]
        with self._lock:
            key = (reason.code, vm_id)
            if key not in self._waiting and len(self._waiting) >= MOST:
                key = (reason.code, "")
            call = self._waiting.get(key)
            if call is None:
                name = enrolled_name(request.resource_name, request.instance or {}, vm_id) if key[1] else ""
                text = json.dumps(as_json(reason))
                call = RefusedCalls(name, address[:100] if key[1] else "", text, first_at=now, last_at=now)
                self._waiting[key] = call
            call.count += 1
            call.last_at = now

    def write(self) -> None:
        """Write the counts to the database. If it is unavailable, they stay in memory for the next call."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        try:
            enrolment.keep(waiting, now=clock.now())
        except Exception:
            with self._lock:
                self._waiting = {**waiting, **self._waiting}
            raise


# Calls of enrolling agents: challenges and enrolment. Each parses, makes its call, and answers.

ENROL_BYTES = 256 * 1024
CHALLENGE_BYTES = 1024
# Of a call beyond the limit of its address.
EXCESS_BYTES = 32 * 1024
USABLE_SECONDS = 1.0
TOO_MANY = "Too many machines are enrolling at once: try again in a moment."


class JoinTokens:
    """Cache of the join tokens that admit machines now."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self._usable: frozenset[str] = frozenset()
        self._until = float("-inf")

    async def has(self, token_hash: str) -> bool:
        """Return whether a token with this hash is usable. Concurrent callers share one query. Raises Problem 503."""
        if time.monotonic() >= self._until:
            await self.threads.share(self._read)
        return token_hash in self._usable

    def _read(self) -> None:
        self._usable = entrance.usable_hashes(now=clock.now())
        self._until = time.monotonic() + USABLE_SECONDS


class Entrance:
    """Handlers of the enrolment calls in this process."""

    def __init__(self, threads: Threads, signed_calls: SignedCalls) -> None:
        self.threads = threads
        self.signed_calls = signed_calls
        self.challenged = Buckets(settings.ENROLMENTS_PER_MINUTE)
        # By address; and by key or join token, for machines that share an address with many others.
        self.enrolments = Buckets(settings.ENROLMENTS_PER_MINUTE)
        self.proved = Buckets(settings.ENROLMENTS_PER_MINUTE)
        self.join_tokens = JoinTokens(threads)
        self.refusals = Refusals()

    async def challenges(self, request: Request, send: Send) -> None:
        """Return a nonce for an attested document: 200 with Challenge. Raises Problem 413, 429."""
        throttle(self.challenged, request.client, TOO_MANY)
        await request.body(CHALLENGE_BYTES)
        await answer(send, 200, msgspec.json.encode(entrance.challenge(now=clock.now())))

    async def enrol(self, request: Request, send: Send) -> None:
        """Enrol a machine: 200 with EnrolAnswer (a key or credential), or 202 with EnrolPending. Raises Problem 401,
        403, 413, 422, 429, 503.
        """
        signed, wanted = await self._read(request)
        try:
            granted = await self.threads.run(_enrol, wanted, signed, request.client)
        except Refused as refused:
            if refused.code != "intermediate-wanted":
                # That refusal is an intermediate step: the agent fetches the certificate and repeats its request.
                self.refusals.note(wanted, refused, request.client)
            raise _problem(refused) from None
        if isinstance(granted, wire.EnrolPending) and not wanted.ask:
            # 0.1.0 knows no 202, and tries again after an error.
            sentence = "A person has to admit this machine first."
            raise Problem(503, "admission-pending", sentence, retry_after=math.ceil(granted.retry_after))
        await _reply(send, granted)

    async def check(self, request: Request, send: Send) -> None:
        """Answer as `enrol` would, but store nothing: 200 with EnrolCheck, or 202 with EnrolPending. Raises the same
        problems.
        """
        signed, wanted = await self._read(request)
        try:
            asked = {"request": wanted, "address": request.client, "signed_by": _signer(signed)}
            found = await self.threads.run(enrolment.would_enrol, **asked, now=clock.now())
        except Refused as refused:
            if refused.code != "intermediate-wanted":
                metrics.ENROLMENTS_REFUSED.labels(refused.code).inc()
            raise _problem(refused) from None
        reply = found if isinstance(found, wire.EnrolPending) else wire.EnrolCheck(server_time=found.server_time)
        await _reply(send, reply)

    async def _read(self, request: Request) -> tuple[SignedCall | None, wire.EnrolRequest]:
        """Return the verified signature of an enrolment (None without one) and its content. Raises Problem 401, 413,
        422, 429.

        Beyond the limit of an address only calls with a key or a usable join token are accepted: callers that guess
        tokens keep out no machine behind the same address.
        """
        within = not self.enrolments.take(request.client, time.monotonic())
        size = request.header(b"content-length")
        if not within and not (size.isdigit() and int(size) <= EXCESS_BYTES):
            raise throttled(TOO_MANY, 1)
        signed = self._signed(request)
        raw = await request.body(ENROL_BYTES)
        wanted = read_enrolment(raw)
        if not within:
            proof = signed.found_by if signed is not None else hash_of(wanted.join_token)
            if signed is None and not await self.join_tokens.has(proof):
                raise throttled(TOO_MANY, 1)
            throttle(self.proved, proof, TOO_MANY)
        return signed, wanted

    def _signed(self, request: Request) -> SignedCall | None:
        """Return the verified signature of an enrolment; None if it proves nothing, for example with a key that can no
        longer be derived. Raises Problem 401 if the clock differs too much or the call is a repeat.
        """
        try:
            return self.signed_calls.read(request, clock.now())
        except Problem as problem:
            if problem.code == "clock-skewed" or isinstance(problem, Repeated):
                raise
            return None


def read_enrolment(raw: bytes) -> wire.EnrolRequest:
    """Decode the body of an enrolment. Raises Problem 422 if it cannot be read."""
    try:
        return msgspec.convert(storable(msgspec.json.decode(raw)), wire.EnrolRequest)
    except (ValueError, RecursionError) as error:
        raise Problem(422, "validation", f"The request cannot be read: {error}.") from None


def _enrol(wanted: wire.EnrolRequest, signed: SignedCall | None, address: str) -> wire.EnrolAnswer | wire.EnrolPending:
    """Enrol a machine; call it in a thread. A signed request is accepted once in all processes. Raises Problem 401,
    Refused.
    """
    now = clock.now()
    if signed is not None and not entrance.spend(signed.mark, now=now):
        raise Repeated
    return enrolment.enrol(request=wanted, now=now, address=address, signed_by=_signer(signed))


def _signer(signed: SignedCall | None) -> str:
    return signed.found_by if signed is not None else ""


async def _reply(send: Send, reply: wire.EnrolAnswer | wire.EnrolPending | wire.EnrolCheck) -> None:
    await answer(send, 202 if isinstance(reply, wire.EnrolPending) else 200, msgspec.json.encode(reply))


def _problem(refused: Refused) -> Problem:
    url = refused.details.get("url")
    errors = [{"field": "attested.intermediates", "message": str(url)}] if url else ()
    return Problem(PROBLEMS[refused.code].status, refused.code, say(refused.reason, API), errors=errors)
