"""Long polls: what the gateway keeps of a call, how calls are checked together, and how long they are held open."""

import asyncio
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest

from fleet.gateway import dispatcher as dispatching
from fleet.gateway.dispatcher import Dispatcher
from fleet.gateway.http import Message, Request, Scope
from fleet.gateway.waiters import COMING_A_SECOND, DECIDED_SECONDS, JITTER, TOLD_SECONDS, LongPollTimes, Waiter, Waiters
from fleet.operations.intake.presence import AgentHeartbeat, HeartbeatCheck
from tests.loops import in_a_loop


def request_of(query: str, messages: list[asyncio.Future[Message]] | None = None) -> Request:
    scope: Scope = {"type": "http", "query_string": query.encode("latin-1"), "headers": [(b"accept", b"*/*")]}
    given = iter(messages or ())
    receive: Any = lambda: next(given)  # noqa: E731 - as servers give it: a future, and no coroutine
    return Request(scope, receive)


QUERIES = ("", "wait=50&spool=a-b&keys=", "wait", "=x&&a=1&a=2", "a=b=c&d==&", "a+b=c+d&e=%41%zz", "\xfc=\xdf;x=1")


@pytest.mark.parametrize("query", [*QUERIES, "sent_at=2026-01-01T00:00:00%2B01:00"])
def test_a_query_is_read_as_the_standard_library_reads_it(query: str) -> None:
    assert request_of(query).query == dict(parse_qsl(query, keep_blank_values=True))


def test_nothing_of_a_held_call_is_kept() -> None:
    request = request_of("wait=50")
    assert request.header(b"accept") == b"*/*"
    request.forget()
    assert request.scope == {}
    assert request._headers is None


@in_a_loop
async def test_a_client_that_went_away_is_heard_once_and_one_that_was_answered_not_at_all() -> None:
    heard: list[str] = []
    events = asyncio.get_running_loop()
    left, cut, answered = events.create_future(), events.create_future(), events.create_future()
    request = request_of("", [left, cut, answered])
    request.when_gone(lambda: heard.append("left"))
    request.when_gone(lambda: heard.append("cut"))
    request.when_gone(lambda: heard.append("answered")).cancel()
    left.set_result({"type": "http.disconnect"})
    cut.set_exception(ConnectionResetError())
    await asyncio.sleep(0)
    assert heard == ["left", "cut"]


def asked(*headers: tuple[bytes, bytes], peer: str = "127.0.0.1") -> Request:
    return Request({"type": "http", "client": (peer, 5), "headers": list(headers)}, None)  # type: ignore[arg-type]


def test_who_enrols_behind_a_trusted_proxy_is_known_by_their_own_address(settings: Any) -> None:
    settings.TRUSTED_PROXIES = ["127.0.0.1", "10.0.0.0/24"]
    said = (b"x-forwarded-for", b"203.0.113.9, 198.51.100.4"), (b"x-forwarded-for", b"10.0.0.2")
    assert asked(*said).client == "198.51.100.4"
    # A stranger's word about itself counts for nothing.
    assert asked(*said, peer="192.0.2.1").client == "192.0.2.1"
    settings.TRUSTED_PROXIES = []
    assert asked(*said).client == "127.0.0.1"


HOLDS = LongPollTimes(most=40.0, close=2.0, renewals=250)


async def until(there: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not there():
        assert time.monotonic() < ends
        await asyncio.sleep(0.005)


AWAITED: dict[str, Callable[[Dispatcher], None]] = {
    "a call that does not wait": lambda it: it.ask(AgentHeartbeat(99, "spool"), held=False),
    "a wake-up": lambda it: it.wake([7], "celery"),
    "an undo that is over": lambda it: it.ask_all(),
    "an order that an agent has": lambda it: it.note_held([]),
}


@pytest.mark.parametrize("awaited", AWAITED.values(), ids=list(AWAITED))
@in_a_loop
async def test_awaited_call_ends_the_gathering(
    monkeypatch: pytest.MonkeyPatch, awaited: Callable[[Dispatcher], None]
) -> None:
    # Long enough that only the order of the checks tells the two apart.
    monkeypatch.setattr(dispatching, "GATHER_HELD_SECONDS", 30.0)
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
        assert looks[1] >= set(range(2, 50)), "and join calls that do not wait"
    finally:
        it.loop.stop()
        it.ask_all()


def registered(waiters: Waiters, machine_id: int, *, spool: str | None = "spool") -> Waiter:
    waiter = Waiter(machine_id, frozenset(), carries=spool is not None, once=False)
    waiters.register(waiter)
    waiter.hold(HOLDS.most)
    return waiter


def left(waiter: Waiter) -> float:
    return waiter.until.when() - asyncio.get_running_loop().time()


@in_a_loop
async def test_calls_are_short_where_something_is_under_way_and_long_elsewhere() -> None:
    waiters = Waiters(4, HOLDS)
    close, far, old = registered(waiters, 1), registered(waiters, 2), registered(waiters, 3, spool=None)
    waiters.look_closely({7})
    waiters.deliver({1: HeartbeatCheck(7), 2: HeartbeatCheck(8), 3: HeartbeatCheck(7)}, {})
    assert left(close) <= HOLDS.close < left(far)
    # An agent of 0.1.0 sends its heartbeat in a separate call.
    assert left(old) > HOLDS.close
    # Something begins where a call is registered already.
    waiters.look_closely({7, 8})
    assert left(far) <= HOLDS.close


@in_a_loop
async def test_a_storm_asks_for_no_more_calls_than_can_be_served() -> None:
    waiters = Waiters(4, HOLDS)
    made = [registered(waiters, machine_id) for machine_id in range(5_000)]
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
    last = registered(waiters, 1)
    waiters.deliver({1: HeartbeatCheck(1)}, {})
    assert left(last) <= HOLDS.close


@in_a_loop
async def test_what_is_wanted_of_an_agent_ends_its_call_once_in_a_while() -> None:
    time = [1000.0]
    waiters = Waiters(4, HOLDS, steady=lambda: time[0])
    ended = []
    for _ in range(5):
        waiter = registered(waiters, 1)
        waiters.deliver({1: HeartbeatCheck(7, report=True)}, {})
        ended.append(waiter.answer.done())
        assert waiter.report
        waiters.release(waiter)
        time[0] += TOLD_SECONDS / 2 - 1
    assert ended == [True, False, False, True, False]


@in_a_loop
async def test_decided_start_ends_the_calls_of_planning_machines_and_is_repeated_once_in_a_while() -> None:
    time = [1000.0]
    waiters = Waiters(4, HOLDS, steady=lambda: time[0])
    others = registered(waiters, 2)
    ended = []
    for plans in (["E-1"], ["E-1"], ["E-1", "E-2"], ["E-1", "E-2"]):
        calls = [registered(waiters, 1), registered(waiters, 1)]
        waiters.deliver_decided({1: plans, 3: ["E-3"]})
        ended.append([call.prepare if call.answer.done() else None for call in calls])
        for call in calls:
            waiters.release(call)
        time[0] += DECIDED_SECONDS / 2 - 1
    assert ended == [[["E-1"]] * 2, [None] * 2, [["E-2"]] * 2, [["E-1"]] * 2]
    assert not others.answer.done()
    # A machine without a call here is notified by the process that has it, or at its next call.
    last = registered(waiters, 3)
    waiters.deliver_decided({3: ["E-3"]})
    assert last.prepare == ["E-3"]


@in_a_loop
async def test_at_shutdown_every_agent_gets_a_renewal_time() -> None:
    waiters = Waiters(4, HOLDS)
    count = 4 * COMING_A_SECOND
    made = [registered(waiters, machine_id) for machine_id in range(count)]
    waiters.look_closely({1})
    waiters.deliver({0: HeartbeatCheck(1)}, {})
    waiters.end_all()
    times = sorted(waiter.renew_in for waiter in made)
    assert all(waiter.answer.done() for waiter in made)
    assert made[0].renew_in <= 1.0, "during an operation no call waits for the others"
    # Spread evenly: of each quarter of the time about a quarter.
    for quarter in (1, 2, 3):
        assert abs(sum(one < quarter for one in times) - quarter * COMING_A_SECOND) < COMING_A_SECOND / 4
