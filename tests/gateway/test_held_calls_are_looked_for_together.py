"""Long polls: the gateway checks them in groups, and a caller that waits for its answer is not delayed by them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from fleet.gateway import dispatcher as dispatching
from fleet.gateway.dispatcher import Dispatcher
from fleet.gateway.waiters import LongPollTimes, Waiters
from fleet.operations.intake.presence import AgentHeartbeat
from tests.loops import in_a_loop

HOLDS = LongPollTimes(most=40.0, close=2.0, renewals=250)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Dispatcher], None]], None]:
    # Long enough that only the order of the checks tells the two apart.
    monkeypatch.setattr(dispatching, "GATHER_HELD_SECONDS", 30.0)

    async def story(awaited: Callable[[Dispatcher], None]) -> None:
        it = Dispatcher(Waiters(4, HOLDS), asyncio.get_running_loop())
        # The machines of each look, in place of a database; of this one alone, as others of this process may still run.
        looks: list[set[int]] = []
        monkeypatch.setattr(it, "_look", lambda asked, **_: looks.append(set(asked)))
        it.ask(AgentHeartbeat(1, "spool"), held=True)
        it.loop.start()
        try:
            await until(lambda: {1} in looks)
            for machine_id in range(2, 50):
                it.ask(AgentHeartbeat(machine_id, "spool"), held=True)
            await asyncio.sleep(0.05)
            assert looks == [{1}], "they wait for each other"
            awaited(it)
            await until(lambda: len(looks) > 1)
            assert looks[1] >= set(range(2, 50)), "and go with whoever does not"
        finally:
            it.loop.stop()
            it.ask_all()

    return lambda awaited: in_a_loop(story(awaited))


async def until(there: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not there():
        assert time.monotonic() < ends
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "awaited",
    [
        lambda it: it.ask(AgentHeartbeat(99, "spool"), held=False),
        lambda it: it.wake([7], "celery"),
        lambda it: it.ask_all(),
        lambda it: it.note_held([]),
    ],
    ids=["a call that does not wait", "a wake-up", "an undo that is over", "an order that an agent has"],
)
def test_awaited_call_ends_the_gathering(
    play: Callable[[Callable[[Dispatcher], None]], None], awaited: Callable[[Dispatcher], None]
) -> None:
    play(awaited)
