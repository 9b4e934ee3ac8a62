"""Duration of long polls: the backend chooses it, so that a storm, loop or shutdown never overloads it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fleet.gateway.waiters import COMING_A_SECOND, JITTER, TOLD_SECONDS, LongPollTimes, Waiter, Waiters
from fleet.operations.intake.presence import HeartbeatCheck
from tests.loops import in_a_loop

HOLDS = LongPollTimes(most=40.0, close=2.0, renewals=250)


def play(story: Callable[[Waiters], Awaitable[None]], **more: Any) -> None:
    async def run() -> None:
        await story(Waiters(4, HOLDS, **more))

    in_a_loop(run())


def held(waiters: Waiters, machine_id: int, *, spool: str | None = "spool") -> Waiter:
    waiter = Waiter(machine_id, frozenset(), carries=spool is not None, once=False)
    waiters.register(waiter)
    waiter.hold(HOLDS.most)
    return waiter


def left(waiter: Waiter) -> float:
    assert waiter.until is not None
    return waiter.until.when() - asyncio.get_running_loop().time()


def test_calls_are_short_where_something_is_under_way_and_long_elsewhere() -> None:
    async def story(waiters: Waiters) -> None:
        close, far, old = held(waiters, 1), held(waiters, 2), held(waiters, 3, spool=None)
        waiters.look_closely({7})
        waiters.deliver({1: HeartbeatCheck(7), 2: HeartbeatCheck(8), 3: HeartbeatCheck(7)}, {})
        assert left(close) <= HOLDS.close < left(far)
        # An agent of 0.1.0 sends its heartbeat in a separate call.
        assert left(old) > HOLDS.close
        # Something begins where a call is held already.
        waiters.look_closely({7, 8})
        assert left(far) <= HOLDS.close

    play(story)


def test_a_storm_asks_for_no_more_calls_than_can_be_served() -> None:
    async def story(waiters: Waiters) -> None:
        made = [held(waiters, machine_id) for machine_id in range(5_000)]
        waiters.look_closely(set(range(5_000)))
        waiters.deliver({waiter.machine_id: HeartbeatCheck(waiter.machine_id) for waiter in made}, {})
        assert left(made[-1]) >= 5_000 / HOLDS.renewals * (1 - JITTER) - 1
        assert all(left(waiter) <= HOLDS.most for waiter in made)
        # Who was asked to start an event is waited for all the same.
        asked = Waiter(7, frozenset({"order"}), carries=True, once=False)
        waiters.register(asked)
        waiters.deliver({7: HeartbeatCheck(7)}, {})
        assert left(asked) <= HOLDS.close
        waiters.release(asked)
        for waiter in made:
            waiters.release(waiter)
        # Afterwards it is as before.
        last = held(waiters, 1)
        waiters.deliver({1: HeartbeatCheck(1)}, {})
        assert left(last) <= HOLDS.close

    play(story)


def test_what_is_wanted_of_an_agent_ends_its_call_once_in_a_while() -> None:
    time = [1000.0]

    async def story(waiters: Waiters) -> None:
        ended = []
        for _ in range(5):
            waiter = held(waiters, 1)
            waiters.deliver({1: HeartbeatCheck(7, report=True)}, {})
            ended.append(waiter.answer.done())
            assert waiter.report
            waiters.release(waiter)
            time[0] += TOLD_SECONDS / 2 - 1
        assert ended == [True, False, False, True, False]

    play(story, steady=lambda: time[0])


def test_at_shutdown_every_agent_gets_a_renewal_time() -> None:
    async def story(waiters: Waiters) -> None:
        count = 4 * COMING_A_SECOND
        made = [held(waiters, machine_id) for machine_id in range(count)]
        waiters.look_closely({1})
        waiters.deliver({0: HeartbeatCheck(1)}, {})
        waiters.end_all()
        times = sorted(waiter.renew_in for waiter in made)
        assert all(waiter.answer.done() for waiter in made)
        assert made[0].renew_in <= 1.0, "where something is under way nobody waits for the others"
        # Spread evenly: of each quarter of the time about a quarter.
        for quarter in (1, 2, 3):
            assert abs(sum(one < quarter for one in times) - quarter * COMING_A_SECOND) < COMING_A_SECOND / 4

    play(story)
