"""Calls for orders that are held open. Everything here runs in the event loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from drydock_agent.wire import Order


class Waiter:
    """One held call: what ends it, and the orders that its agent has already."""

    __slots__ = ("answer", "held", "machine_id", "once")

    def __init__(self, machine_id: int, held: frozenset[str], *, once: bool) -> None:
        self.machine_id = machine_id
        self.held = held
        # The agent does not want to wait: it ends with the first answer of the dispatcher.
        self.once = once
        self.answer: asyncio.Future[list[Order]] = asyncio.get_running_loop().create_future()

    def end(self, orders: list[Order]) -> None:
        if not self.answer.done():
            self.answer.set_result(orders)


class Waiters:
    """The held calls of this process, by machine."""

    def __init__(self, per_machine: int) -> None:
        self.per_machine = per_machine
        self.count = 0
        self._by_machine: dict[int, list[Waiter]] = {}

    def machine_ids(self) -> set[int]:
        """The machines held here. May be called from any thread: copying the keys is one step."""
        return set(self._by_machine)

    def holds(self, machine_id: int) -> bool:
        return machine_id in self._by_machine

    def register(self, waiter: Waiter) -> None:
        """Hold a call; the oldest of too many of one machine ends empty."""
        waiters = self._by_machine.setdefault(waiter.machine_id, [])
        if len(waiters) >= self.per_machine:
            waiters[0].end([])
        waiters.append(waiter)
        self.count += 1

    def release(self, waiter: Waiter) -> None:
        waiters = self._by_machine[waiter.machine_id]
        waiters.remove(waiter)
        if not waiters:
            del self._by_machine[waiter.machine_id]
        self.count -= 1

    def deliver(self, asked: Iterable[int], orders: Mapping[int, list[Order]]) -> None:
        """End the calls of the machines that were asked for, where there is something for them or they do not wait."""
        for machine_id in asked:
            for waiter in self._by_machine.get(machine_id, ()):
                news = [order for order in orders.get(machine_id, ()) if order.id not in waiter.held]
                if news or waiter.once:
                    waiter.end(news)

    def end_of(self, machine_ids: Iterable[int]) -> None:
        """End the calls of these machines empty."""
        for machine_id in machine_ids:
            for waiter in self._by_machine.get(machine_id, ()):
                waiter.end([])

    def end_all(self) -> None:
        for waiters in self._by_machine.values():
            for waiter in waiters:
                waiter.end([])
