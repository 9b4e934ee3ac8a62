"""Calls of enrolled agents: reports and the long poll for orders."""

import asyncio
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import msgspec
import structlog
from django.conf import settings
from drydock_agent import wire

from fleet.domain.reasons import Reason
from fleet.domain.secrets import hash_of
from fleet.domain.texts import storable
from fleet.domain.trace import trace_as_kept
from fleet.gateway import limits, metrics
from fleet.gateway.committer import Committer
from fleet.gateway.credentials import Credentials
from fleet.gateway.decoder import read_batch
from fleet.gateway.dispatcher import Dispatcher
from fleet.gateway.enrolment import Entrance
from fleet.gateway.http import Problem, Request, Send, answer
from fleet.gateway.limits import Buckets, throttle
from fleet.gateway.presence import Contacts
from fleet.gateway.readers import Clock, metadata_state, utc
from fleet.gateway.signed_calls import Keys, SignedCall, SignedCalls, read_ids
from fleet.gateway.threads import Loop, Threads
from fleet.gateway.waiters import LongPollTimes, Waiter, Waiters
from fleet.operations import clock
from fleet.operations.intake.keep import Delivery
from fleet.operations.intake.presence import AgentHeartbeat, Contact
from fleet.operations.machines.keys import are_bearer_credentials_accepted
from fleet.projections import machines
from fleet.projections.machines import MachineIdentity
from fleet.wording.say import say
from fleet.wording.times import API

PAUSE_SECONDS = 1.0
# The longest travel time of a call; a later one was buffered, or its agent's clock differs.
ON_ITS_WAY = timedelta(seconds=1)
CLOCKS_DIFFER_SECONDS = 60.0
# The most orders that one call may name as received, signing keys that it may say the agent trusts, and characters of
# the name of a spool in a long poll; and the limit of its numbers.
MOST = 100
BIGGEST = 2**63
HASH = re.compile("[0-9a-f]{64}")
NOTHING: frozenset[str] = frozenset()

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller of a request; `signed` is None if it authenticated with a credential instead of a
    signature.
    """

    machine: MachineIdentity
    signed: SignedCall | None

    @property
    def renew(self) -> bool:
        """Return whether the machine should enrol again because it can get a better key."""
        return self.signed is None or not self.signed.today

    def as_of(self, now: datetime) -> tuple[datetime, bool]:
        """Return the time to which this call refers, and whether the call arrived late. A signed call refers to its
        signing time, even if it was sent again later.
        """
        if self.signed is None or (signed_at := self.signed.signed_at) >= now:
            return now, False
        return signed_at, now - signed_at > ON_ITS_WAY


class Agents:
    """Handlers of the agents' calls in this process, with the queues, caches and threads that they share."""

    def __init__(self, *, threads: Threads, events: asyncio.AbstractEventLoop) -> None:
        self.threads = threads
        self.credentials = Credentials(settings.CREDENTIAL_CACHE_SECONDS, threads)
        self.contacts = Contacts()
        self.committer = Committer(events)
        most = min(limits.HOLD_SECONDS, settings.MACHINE_LIVE_SECONDS * limits.HOLD_SHARE)
        holds = LongPollTimes(most=most, close=limits.CLOSE_HOLD_SECONDS, renewals=limits.CLOSE_RENEWALS)
        self.waiters = Waiters(limits.HELD_PER_MACHINE, holds)
        self.dispatcher = Dispatcher(self.waiters, events)
        self.calls = Buckets(settings.AGENT_CALLS_PER_MINUTE)
        self.signed_calls = SignedCalls()
        self.entrance = Entrance(threads, self.signed_calls)
        self.keys = Keys(threads)
        self.events = events
        self.revocations = Loop("revocations", self._look_for_revoked, pause=PAUSE_SECONDS)
        # The time up to which revocations were read.
        self._revoked_before = clock.now()
        self.stopping = False

    async def reports(self, request: Request, send: Send) -> None:
        """Handle `POST /agent/v1/reports`. Answer 200 with ReportsAnswer after the reports are committed. Raises
        Problem 401, 413, 422, 429, 503.
        """
        caller = await self._authenticate(request)
        machine = caller.machine
        raw = await request.body(wire.MAX_REQUEST_BYTES)
        arrived = clock.now()
        batch = read_batch(raw, received_at=arrived)
        wanted = batch.request
        now, late = caller.as_of(arrived)
        its_clock = Clock.measured(sent_at=wanted.sent_at, received_at=now, tolerance=settings.CLOCK_TOLERANCE_SECONDS)
        self._note(machine, its_clock, None, wanted.held, now, late=late)
        delivery = Delivery(
            machine_id=machine.machine_id,
            spool=wanted.spool,
            agent_version=wanted.agent_version,
            reports=batch.reports,
            refused=batch.refused,
            acknowledged=wanted.acknowledged,
        )
        written = await self.committer.commit(delivery, batch.size, machine.set_id)
        # Unwritten reports are sent again, and are refused then.
        refused = [one for one in batch.refused if one[0] <= written.acknowledged] + written.refused
        metrics.REPORTS.inc(len(batch.reports) - len(written.refused))
        metrics.REFUSED.inc(len(refused))
        has = {order_id.partition(":")[0] for order_id in wanted.held}
        orders = [order for order in written.orders if order.id not in has]
        _count(orders)
        key_words: list[wire.KeyNotice] = []
        try:
            if wanted.signing_keys is not None:
                trusted = wanted.signing_keys[:MOST]
                await self.keys.look(now, trusted)
                key_words = self.keys.news_for(trusted)
        finally:
            # Only now: a poll counts when everything that was written down before it is here.
            check = self.keys.check(wanted.signing_keys) or ""
            state = metadata_state(wanted.metadata)
            self._note(machine, its_clock, wanted.last_poll_at, [], now, check, state, late=late)
        said = wire.ReportsAnswer(
            acknowledged=written.acknowledged,
            server_time=clock.now(),
            refused=[wire.Refusal(seq=seq, reason=reason) for seq, reason in sorted(refused)],
            orders=orders,
            key_words=key_words,
            acknowledged_before=written.before,
            wanted=written.wanted,
            renew=caller.renew,
        )
        await answer(send, 200, msgspec.json.encode(said))

    async def orders(self, request: Request, send: Send) -> None:
        """Handle `GET /agent/v1/orders` as a long poll. Answer 200 with OrdersAnswer, which may be empty. Raises
        Problem 401, 422, 429, 503.
        """
        # The call's data is released during the long poll, because there are tens of thousands of them.
        waiter = await self._waiter_of(request)
        try:
            # The call of a disconnected client ends: its next call queries for itself.
            gone = request.when_gone(partial(waiter.end, []))
            orders = await waiter.answer
        finally:
            self.waiters.release(waiter)
        if gone.done() and not gone.cancelled():
            return
        gone.cancel()
        _count(orders)
        said = wire.OrdersAnswer(
            server_time=clock.now(),
            orders=orders,
            takes_polls=True,
            report=waiter.report,
            remind=waiter.remind,
            renew_in=waiter.renew_in,
            prepare=waiter.prepare,
        )
        await answer(send, 200, msgspec.json.encode(said))

    async def _waiter_of(self, request: Request) -> Waiter:
        """Register the long poll of a request and query the orders of its machine. Record the state that the agent
        reports, then release the request's data to save memory.
        """
        caller = await self._authenticate(request)
        machine = caller.machine
        await request.body(0)
        query = request.query
        now, late = caller.as_of(clock.now())
        wait = _seconds(query.get("wait", "0"), wire.MAX_WAIT_SECONDS)
        held = [part for part in query.get("held", "").split(",") if part]
        sent_at = _moment("sent_at", query.get("sent_at", "")) or now
        its_clock = Clock.measured(sent_at=sent_at, received_at=now, tolerance=settings.CLOCK_TOLERANCE_SECONDS)
        standing = _standing(machine.machine_id, query)
        waiter = Waiter(
            machine.machine_id,
            frozenset(item.partition(":")[0] for item in held) if held else NOTHING,
            carries=standing.spool is not None,
            once=wait == 0,
        )
        check = ""
        if waiter.carries:
            with suppress(Problem):
                # Without the database, the last known keys count.
                await self.keys.look(now, read_ids(query.get("keys", "")))
            judged, waiter.report = self.keys.judged(query.get("keys"))
            check = judged or ""
        polled_at = _moment("last_poll_at", query.get("last_poll_at", ""))
        state = metadata_state(query.get("metadata", ""))
        self._note(machine, its_clock, polled_at, held, now, check, state, late=late)
        request.forget()
        longest = min(wait, self.waiters.holds.long()) if waiter.carries else wait
        if caller.signed is None and settings.LEGACY_CREDENTIALS_UNTIL is not None:
            # Held no longer than its credential counts.
            longest = min(longest, max((settings.LEGACY_CREDENTIALS_UNTIL - now).total_seconds(), 0.0))
        waiter.hold(longest if wait else limits.COMMIT_WAIT_SECONDS)
        self.waiters.register(waiter)
        # Registered already; then ask, then wait: an order written in between is found by asking.
        if self.stopping:
            waiter.end([])
        else:
            self.dispatcher.ask(standing, held=not waiter.once)
        return waiter

    def cut_off(self, machine_ids: set[int]) -> None:
        """End the access of machines (row ids) whose credential is no longer valid: drop their cached credentials and
        end their long polls. May be called from any thread.
        """
        self.credentials.forget(machine_ids)
        self.events.call_soon_threadsafe(self.waiters.end_of, machine_ids)

    def _look_for_revoked(self) -> None:
        """Cut off revoked machines, and the former credentials of machines that enrolled again. Wake-ups do this at
        once; this query also works without Redis. It reads some seconds further back, because clocks of processes
        differ and commits take time.
        """
        began = clock.now()
        changed = machines.credentials_since(self._revoked_before - timedelta(seconds=CLOCKS_DIFFER_SECONDS))
        # A machine may have an open long poll although it was revoked while its credential was queried.
        held = {machine_id for machine_id, key in changed.items() if not key and self.waiters.holds_any(machine_id)}
        ended = self.credentials.outdated(changed) | held
        if ended:
            self.cut_off(ended)
        self._revoked_before = began

    def stop(self) -> None:
        """Answer all long polls now, and answer later ones at once."""
        self.stopping = True
        self.waiters.end_all()

    async def _authenticate(self, request: Request) -> Caller:
        now = clock.now()
        signed = self.signed_calls.read(request, now)
        if signed is not None:
            found = await self.credentials.found(signed.found_by)
        elif are_bearer_credentials_accepted(now):
            found = await self.credentials.found(hash_of(request.bearer)) if request.bearer else None
        else:
            raise Problem(401, "not-authenticated", say(Reason("bearer-over"), API))
        if found is None:
            raise Problem(401, "not-authenticated", "This credential is unknown or has ended: enrol again.")
        request.call.machine = found.machine_id
        throttle(self.calls, found.machine_id, "This machine calls too often: wait before the next call.")
        return Caller(found, signed)

    def _note(
        self,
        machine: MachineIdentity,
        its_clock: Clock,
        last_poll_at: datetime | None,
        held: list[str],
        now: datetime,
        check: str = "",
        metadata: str = "",
        *,
        late: bool,
    ) -> None:
        """Record the facts of a contact: presence, clock offset, last good poll, and the orders that the agent has. A
        late call is not used to measure the clock.
        """
        polled_at, offset = its_clock.not_after(last_poll_at, now), None if late else its_clock.offset
        self.contacts.note(Contact(machine.machine_id, now, polled_at, offset, check, metadata))
        noted = []
        for item in held[:MOST]:
            order_id, _, via = item.partition(":")
            try:
                noted.append((machine.machine_id, UUID(order_id), storable(via)[:50]))
            except ValueError:
                raise Problem(422, "validation", "held must list orders as <order id>:<via>.") from None
        if noted:
            self.dispatcher.note_held(noted)


def _standing(machine_id: int, query: dict[str, str]) -> AgentHeartbeat:
    """Return the agent's heartbeat from a query string. Values that are missing (as in release 0.1.0) or impossible are
    empty.
    """
    spool, acknowledged, document = query.get("spool", ""), query.get("acknowledged", ""), query.get("document", "")
    if not 0 < len(spool) <= MOST or storable(spool) != spool:
        return AgentHeartbeat(machine_id)
    number = int(acknowledged) if acknowledged.isascii() and acknowledged.isdigit() and len(acknowledged) < 20 else 0
    return AgentHeartbeat(
        machine_id, spool, number if number < BIGGEST else 0, document if HASH.fullmatch(document) else None
    )


def _count(orders: list[wire.Order]) -> None:
    for order in orders:
        metrics.DELIVERED.labels(order.via).inc()
        # Log the request ids of the decision; the call that delivers the order has other ones.
        trace = trace_as_kept(order.request_id, order.trace_id)
        log.info("order.handed_out", order=order.id, path=order.via, **(trace.words if trace else {}))


def _seconds(text: str, most: float) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise Problem(422, "validation", "wait must be a number of seconds.")
    return min(seconds, most)


def _moment(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        # A plus sign that was not escaped arrives as a space.
        return utc(msgspec.convert(text.replace(" ", "+"), datetime))
    except ValueError:
        raise Problem(422, "validation", f"{name} must be a time in RFC 3339 form.") from None
