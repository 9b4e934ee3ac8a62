"""Long polls of agents for orders, and the Redis wake-ups that answer them.

The backend decides how long a call stays open: long in a quiet fleet, to save calls, and shorter in sets with open
events, because each call also reports the agent's last poll.
"""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import redis
import structlog
from drydock_agent.wire import Order

from fleet.domain.texts import parse_json
from fleet.gateway.threads import Loop
from fleet.operations.intake.presence import HeartbeatCheck
from fleet.operations.wake_up import CHANNEL, redis_client

# This part of a hold is jitter, so that a fleet that called at once spreads out.
JITTER = 0.1
# Seconds before an agent is requested again to report or to send a reminder.
TOLD_SECONDS = 60.0
MOST_TOLD = 10_000
# Seconds before a machine is reminded that the start of an event is decided for which it plans to prepare later.
DECIDED_SECONDS = 10.0
# When this process ends, its agents are asked to return at this many a second; those needed soon return within one
# second.
COMING_A_SECOND = 1_000


@dataclass(frozen=True, slots=True)
class LongPollTimes:
    """Durations of long polls in seconds: `most` usually, `close` in sets with open events. The latter are extended so
    that at most `renewals` of these calls return each second.
    """

    most: float
    close: float
    renewals: int

    def long(self) -> float:
        return self.most * random.uniform(1 - JITTER, 1)  # noqa: S311 - no secret

    def short(self, count: int) -> float:
        """Return the duration in seconds of a call in a set with open events, if `count` calls are such calls."""
        return min(max(self.close, count / self.renewals), self.most) * random.uniform(1 - JITTER, 1)  # noqa: S311


@dataclass(eq=False, slots=True)
class Waiter:
    """One open long poll: its timer, its result, and the orders that its agent already has (`held`).

    `carries`: the call replaces the agent's other heartbeats, so the backend chooses its duration. `once`: the agent
    does not want to wait, so the call ends with the first result of the dispatcher.
    """

    machine_id: int
    held: frozenset[str]
    _: KW_ONLY
    carries: bool
    once: bool
    answer: asyncio.Future[list[Order]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    # The timer that ends the call if there are no orders.
    until: asyncio.TimerHandle | None = None
    # If known: the machine's set, whether the set has open events, and what the agent is requested to send.
    set_id: int | None = None
    close: bool = False
    report: bool = False
    remind: bool = False
    renew_in: float = 0.0
    # EventIds for which the machine must prepare now.
    prepare: list[str] = field(default_factory=list)

    def end(self, orders: list[Order]) -> None:
        if not self.answer.done():
            self.answer.set_result(orders)

    def hold(self, seconds: float) -> None:
        """Answer this call without orders after `seconds`, unless an earlier end is already set."""
        loop = asyncio.get_running_loop()
        if self.until is not None:
            if self.until.when() <= loop.time() + seconds:
                return
            self.until.cancel()
        self.until = loop.call_later(seconds, self.end, [])


@dataclass(eq=False)
class Waiters:
    """The open long polls of this process, by machine."""

    per_machine: int
    holds: LongPollTimes
    steady: Callable[[], float] = time.monotonic
    count: int = 0
    _close: int = 0
    _under_way: Collection[int] = ()
    _told: dict[Hashable, float] = field(default_factory=dict)
    _by_machine: dict[int, list[Waiter]] = field(default_factory=dict)

    def machine_ids(self) -> set[int]:
        """Return the machines (row ids) with a long poll in this process. May be called from any thread: copying is
        atomic.
        """
        return set(self._by_machine)

    def holds_any(self, machine_id: int) -> bool:
        return machine_id in self._by_machine

    def register(self, waiter: Waiter) -> None:
        """Register a long poll. If the machine has too many, the oldest is answered without orders."""
        waiters = self._by_machine.setdefault(waiter.machine_id, [])
        if len(waiters) >= self.per_machine:
            waiters[0].end([])
        waiters.append(waiter)
        self.count += 1

    def release(self, waiter: Waiter) -> None:
        if waiter.until is not None:
            waiter.until.cancel()
        waiters = self._by_machine[waiter.machine_id]
        waiters.remove(waiter)
        if not waiters:
            del self._by_machine[waiter.machine_id]
        self.count -= 1
        self._close -= waiter.close

    def deliver(self, asked: Mapping[int, HeartbeatCheck | None], orders: Mapping[int, list[Order]]) -> None:
        """Answer the calls of the queried machines that have orders or do not wait, and set the duration of the
        others.
        """
        for machine_id in asked.keys() | orders.keys():
            compared = asked.get(machine_id)
            for waiter in self._by_machine.get(machine_id, ()):
                if compared is not None:
                    self._place(waiter, compared)
                news = [order for order in orders.get(machine_id, ()) if order.id not in waiter.held]
                if news or (waiter.once and machine_id in asked):
                    waiter.end(news)

    def deliver_decided(self, plans: Mapping[int, list[str]]) -> None:
        """Answer the calls of machines that plan to prepare later for events whose start is decided."""
        for machine_id, event_ids in plans.items():
            waiters = self._by_machine.get(machine_id, ())
            news = [one for one in event_ids if waiters and self._may_tell((machine_id, one), DECIDED_SECONDS)]
            for waiter in waiters:
                if news:
                    waiter.prepare = news
                    waiter.end([])

    def look_closely(self, set_ids: Collection[int]) -> None:
        """Shorten the long polls of machines in these sets (row ids), because they have open events."""
        news = [set_id for set_id in set_ids if set_id not in self._under_way]
        self._under_way = set_ids
        if not news:
            return
        new = frozenset(news)
        for waiters in self._by_machine.values():
            for waiter in waiters:
                if waiter.set_id in new:
                    self._hold_shortly(waiter)

    def end_of(self, machine_ids: Iterable[int]) -> None:
        """Answer the calls of these machines (row ids) without orders."""
        for machine_id in machine_ids:
            for waiter in self._by_machine.get(machine_id, ()):
                waiter.end([])

    def end_all(self) -> None:
        """End every held call with an answer that has no orders. Each gets a different time to call again, so that the
        agents do not return at the same time.
        """
        spread = self.count / COMING_A_SECOND
        for waiters in self._by_machine.values():
            for waiter in waiters:
                waiter.renew_in = random.uniform(0, min(spread, 1.0) if waiter.close else spread)  # noqa: S311
                waiter.end([])

    def _place(self, waiter: Waiter, compared: HeartbeatCheck) -> None:
        waiter.set_id, waiter.remind = compared.set_id, compared.remind
        waiter.report |= compared.report
        if not waiter.carries:
            return
        if compared.set_id in self._under_way:
            self._hold_shortly(waiter)
        if (compared.report or compared.remind) and self._may_tell(waiter.machine_id):
            waiter.end([])

    def _hold_shortly(self, waiter: Waiter) -> None:
        if waiter.carries:
            self._close += not waiter.close
            waiter.close = True
            # A machine with an order is awaited, in a storm as well.
            waiter.hold(self.holds.close if waiter.held else self.holds.short(self._close))

    def _may_tell(self, what: Hashable, seconds: float = TOLD_SECONDS) -> bool:
        now = self.steady()
        if self._told.get(what, float("-inf")) > now - seconds:
            return False
        if len(self._told) >= MOST_TOLD:
            self._told = {key: at for key, at in self._told.items() if at > now - TOLD_SECONDS}
        if len(self._told) < MOST_TOLD:
            self._told[what] = now
        return True


# Listens to the wake-ups on Redis. They carry ids only; without them everything still happens, a second later.

log = structlog.get_logger(__name__)

PING_SECONDS = 3
# Pings that may wait for their answer.
PINGS = 2


class WakeUps:
    """Subscription to Redis wake-ups in its own thread; it reconnects automatically. `on_wake_up` gets each message
    there.
    """

    def __init__(self, on_wake_up: Callable[[dict[str, Any]], None]) -> None:
        self.on_wake_up = on_wake_up
        self.heard = False
        self.loop = Loop("wake-ups", self.listen, pause=0.0)

    def listen(self) -> None:
        """Subscribe and listen until stopped. Raises redis-py's errors, after which the loop subscribes again."""
        client = redis_client(2, socket_timeout=2 * PING_SECONDS, health_check_interval=PING_SECONDS)
        try:
            with client.pubsub() as subscription:  # type: ignore[no-untyped-call]
                subscription.subscribe(CHANNEL)
                while not self.loop.stopped:
                    message = subscription.get_message(timeout=1.0)
                    if message is None:
                        self._check(subscription)
                    elif message["type"] == "subscribe":
                        self.heard = True
                    elif message["type"] == "message":
                        self.receive(message["data"])
        finally:
            self.heard = False
            client.close()

    @staticmethod
    def _check(subscription: redis.client.PubSub) -> None:
        """Send pings, and raise an error if they stay unanswered: this detects a network that silently drops
        packets.
        """
        subscription.check_health()
        if subscription.health_check_response_counter > PINGS:
            raise redis.ConnectionError("Redis no longer answers pings.")

    def receive(self, data: bytes) -> None:
        """Pass one wake-up on; log a message that cannot be read."""
        try:
            message = parse_json(data)
        except ValueError:
            message = None
        if isinstance(message, dict):
            self.on_wake_up(message)
        else:
            log.warning("wake_up.unreadable", data=data[:100])
