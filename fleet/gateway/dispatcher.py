"""Delivery of orders to the agents' long polls, and dispatch of approvals whose undo period ends.

One thread queries Postgres: at once for machines that have just called or were woken, and once a second for all
machines with an open long poll, in one query. Wake-ups (`wake_machines`) make delivery fast; the query makes it
reliable. The thread first queries which machines have any order. Usually there are none, so an idle fleet costs little.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID

from django.db import InterfaceError, OperationalError

from fleet.domain.db_timeouts import is_timeout
from fleet.gateway.threads import Loop
from fleet.gateway.waiters import Waiters
from fleet.operations import blind_spots, clock, reconcile
from fleet.operations.approvals import conditions
from fleet.operations.intake import presence
from fleet.operations.intake.presence import AgentHeartbeat, HeartbeatCheck
from fleet.operations.orders import queue
from fleet.operations.quarantine import call_each
from fleet.operations.sets import coverage
from fleet.projections.events.rows import sets_under_way

# The wire's name for an order that the dispatcher itself found.
DISPATCHED = "look"
PAUSE_SECONDS = 1.0
# How often a gateway may seal in Celery's place, and after how long a silence this is needed.
SEAL_PAUSE_SECONDS = 20.0
SEAL_QUIET_SECONDS = 90.0
# How long after a wake-up a call counts as caused by it.
WAKE_UP_SECONDS = 1.0
# Calls within this time after a query are combined in the next one. This allows at most fifty queries a second, or ten
# while only long polls arrive.
GATHER_SECONDS = 0.02
GATHER_HELD_SECONDS = 0.1

Held = tuple[int, UUID, str]


class Dispatcher:
    """Thread that finds orders for long polls, and records which orders the agents have received."""

    def __init__(self, waiters: Waiters, events: asyncio.AbstractEventLoop) -> None:
        self.waiters = waiters
        self.events = events
        self.loop = Loop("dispatch", self.dispatch, pause=PAUSE_SECONDS, role="dispatcher")
        self._lock = threading.Lock()
        # The state that each agent reported; None where only a wake-up named it.
        self._asked: dict[int, AgentHeartbeat | None] = {}
        self._woken: dict[int, tuple[str, float]] = {}
        self._held: set[Held] = set()
        self._next_full = 0.0
        self._looked = float("-inf")
        # Set when a caller waits for the next query. Long polls do not set it, because they wait anyway.
        self._awaited = threading.Event()

    def ask(self, standing: AgentHeartbeat, *, held: bool) -> None:
        """Query the orders of a machine whose long poll is registered: at once, or together with others a moment later
        if it is kept open (`held`).
        """
        with self._lock:
            self._asked[standing.machine_id] = standing
        self._wake(awaited=not held)

    def wake(self, machine_ids: Iterable[int], via: str) -> None:
        """Query the orders of the machines that a wake-up named. `via` is the delivery path to record."""
        until = time.monotonic() + WAKE_UP_SECONDS
        with self._lock:
            self._woken = {key: value for key, value in self._woken.items() if value[1] > until - WAKE_UP_SECONDS}
            for machine_id in machine_ids:
                self._woken[machine_id] = (via, until)
                if self.waiters.holds_any(machine_id):
                    self._asked.setdefault(machine_id, None)
            wake = bool(self._asked)
        if wake:
            self._wake()

    def ask_all(self) -> None:
        """Query the orders of all machines now instead of within a second."""
        self._next_full = 0.0
        self._wake()

    def note_held(self, held: Iterable[Held]) -> None:
        """Queue the statements of agents that they have received orders: (machine, order, via)."""
        with self._lock:
            self._held.update(held)
        self._wake()

    def _wake(self, *, awaited: bool = True) -> None:
        if awaited:
            self._awaited.set()
        self.loop.wake()

    def dispatch(self) -> None:
        """Record which orders agents have received, query new orders and deliver them. While Postgres is unavailable,
        everything stays queued for the next run.
        """
        self._gather()
        with self._lock:
            asked, self._asked = self._asked, {}
            held, self._held = self._held, set()
        try:
            if held:
                held = self._write_held(held)
            now = time.monotonic()
            whole = now >= self._next_full
            if whole:
                self._next_full = now + PAUSE_SECONDS
            if asked or whole:
                self._look(asked, whole=whole, now=now)
            if held:
                # Their events are locked: they are recorded with the next ones, so that no call waits.
                with self._lock:
                    self._held |= held
        except (OperationalError, InterfaceError):
            with self._lock:
                still_held = {
                    machine_id: one for machine_id, one in asked.items() if self.waiters.holds_any(machine_id)
                }
                self._asked = still_held | self._asked
                self._held |= held
            # A failed query for all machines is repeated with the next one.
            self._next_full = 0.0
            raise
        finally:
            self._looked = time.monotonic()

    def _gather(self) -> None:
        since = time.monotonic() - self._looked
        if since < GATHER_HELD_SECONDS:
            self._awaited.wait(GATHER_HELD_SECONDS - since)
        self._awaited.clear()
        since = time.monotonic() - self._looked
        if since < GATHER_SECONDS:
            self.loop.sleep(GATHER_SECONDS - since)

    def _write_held(self, held: set[Held]) -> set[Held]:
        """Write which orders agents have received, and return those that must be written again later."""
        try:
            return set(queue.note_held(held=sorted(held), now=clock.now()).passed_by)
        except (OperationalError, InterfaceError) as error:
            if not is_timeout(error):
                raise
            return held

    def _look(self, asked: dict[int, AgentHeartbeat | None], *, whole: bool, now: float) -> None:
        """Query the orders of these machines, and with `whole` of all machines with a long poll here. `now` is a time
        of the monotonic clock.
        """
        mine = asked.keys() | self.waiters.machine_ids() if whole else asked.keys()
        # A process with a wrong clock sends nothing: another process asks the machine, or another machine is asked.
        waited_for = queue.waited_for() & mine if mine and clock.is_clock_correct() else set()
        found = queue.waiting_orders(machine_ids=sorted(waited_for)) if waited_for else {}
        said = [one for one in asked.values() if one is not None]
        compared = presence.compare(said) if said else {}
        with self._lock:
            orders = {key: [replace(order, via=self._via(key, now)) for order in found[key]] for key in found}
        if whole:
            self.events.call_soon_threadsafe(self.waiters.look_closely, sets_under_way() if mine else set())
            plans = queue.decided_plans(now=clock.now()) if mine and clock.is_clock_correct() else {}
            self.events.call_soon_threadsafe(self.waiters.deliver_decided, plans)
        checks: dict[int, HeartbeatCheck | None] = {machine_id: compared.get(machine_id) for machine_id in asked}
        self.events.call_soon_threadsafe(self.waiters.deliver, checks, orders)

    def _via(self, machine_id: int, now: float) -> str:
        via, until = self._woken.get(machine_id, (DISPATCHED, now))
        return via if until >= now else DISPATCHED


class Ticker:
    """Fallback that processes due work if Celery has been silent for a while. Decisions therefore depend on neither
    Celery nor Redis.
    """

    def __init__(self, dispatcher: Dispatcher, *, seconds: float) -> None:
        self.dispatcher = dispatcher
        self.seconds = seconds
        self.loop = Loop("ticker", self.tick, pause=PAUSE_SECONDS, role="relay")

    def tick(self) -> None:
        if not clock.may_clock_decide():
            return
        advanced = reconcile.run_if_quiet(reconcile.RUN, reconcile.advance, now=clock.now(), quiet_seconds=self.seconds)
        if advanced is not None and advanced.woken:
            self.dispatcher.wake(advanced.woken, "ticker")


def run_slow_jobs() -> None:
    """Run the slow jobs of annexes, such as sealing, if Celery has been silent for a while."""
    call_each(*(partial(_run_if_quiet, name, job) for name, job in reconcile.SLOW_IF_QUIET.items()))


def run_quick_jobs() -> None:
    """Run the quick jobs of annexes and evaluate blind spots, if Celery has been silent for a while."""
    call_each(*(partial(_run_if_quiet, name, job) for name, job in reconcile.IF_QUIET.items()), _compare)


def _run_if_quiet(name: str, job: Callable[..., object]) -> object:
    return reconcile.run_if_quiet(name, job, now=clock.now(), quiet_seconds=SEAL_QUIET_SECONDS)


def _compare() -> None:
    if _run_if_quiet(blind_spots.RUN, blind_spots.compare):
        now = clock.now()
        reconcile.repair(now=now)
        coverage.renew_all(now=now)


# Approvals made on pages are dispatched when their undo period ends.

# How often approvals about to be dispatched are queried, and how far ahead.
UNDO_PAUSE_SECONDS = 0.5
AHEAD = timedelta(seconds=0.6)


class UndoClock:
    """Loop that dispatches approvals when their undo period ends. It runs in every process; only the first to act
    changes anything.
    """

    def __init__(self, gone: Callable[[], None]) -> None:
        self.gone = gone
        self.loop = Loop("undo", self.step, pause=UNDO_PAUSE_SECONDS, role="relay")

    def step(self) -> None:
        """Wait for the approvals whose undo period is about to end, and dispatch each at that time."""
        if not clock.may_clock_decide():
            return
        for at, event_pks in conditions.due_for_dispatch(until=clock.now() + AHEAD):
            self.loop.sleep(max((at - clock.now()).total_seconds(), 0.0))
            if self.loop.stopped or not clock.may_clock_decide():
                return
            if conditions.advance(now=clock.now(), event_pks=event_pks):
                self.gone()
