"""The agent's long poll: what it sends, how the agent acts on the answer, and what may cut it on the way."""

from collections.abc import Callable
from typing import Any

import pytest
from drydock_agent import wire
from drydock_agent.backend.client import AgentStatus, LongPollAnswer, RefusedByBackend
from drydock_agent.backend.listener import FULL_WAIT_RETRY_SECONDS, HEARTBEAT_REPLACED_SECONDS, OrderListener
from drydock_agent.backoff import BACKEND_SECONDS, QUIET_SECONDS
from drydock_agent.connections import NoAnswer

from tests.agent.agents import Agents, Parts, SteppedClock, context_of
from tests.agent.backend.conftest import Delivery
from tests.agent.fleet_double import eventually

Answer = LongPollAnswer | Exception


class Backend:
    """Double of the client: answers as the test configures it, after that many seconds."""

    def __init__(self, clock: SteppedClock) -> None:
        self.clock = clock
        self.answer: Callable[[int], Answer] = lambda wait: LongPollAnswer([], 0, takes_polls=True)
        self.lasts: Callable[[int], float] = float
        self.asked: list[tuple[int, AgentStatus | None]] = []

    def orders(
        self, secret: str, *, wait: int, held: list[str], status_report: AgentStatus | None = None
    ) -> LongPollAnswer:
        self.asked.append((wait, status_report))
        self.clock.advance(self.lasts(wait))
        answer = self.answer(wait)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Stage:
    """A listener stepped by hand, and a record of what it was asked to do."""

    def __init__(self, parts: Parts, clock: SteppedClock) -> None:
        self.clock = clock
        self.backend = Backend(clock)
        self.done: list[str] = []
        self.hurries = True
        self.status_report: AgentStatus | None = AgentStatus("spool", 3, clock.now(), "f" * 64)
        credential: Any = type("Credential", (), {"secret": "secret", "refused": lambda *_: None})()
        self.listener = OrderListener(
            context_of(parts.spool, clock),
            client=self.backend,  # type: ignore[arg-type]
            enrolment=credential,
            orders=parts.orders,
            status_report=lambda: self.status_report,
            poll_reported=lambda: self.done.append("carried"),
            report=lambda: self.done.append("report"),
            remind=lambda: self.done.append("remind"),
            is_urgent=lambda: self.hurries,
        )


@pytest.fixture
def stage(parts: Parts, clock: SteppedClock) -> Stage:
    return Stage(parts, clock)


def test_long_poll_carries_the_agent_status_and_replaces_the_heartbeat(stage: Stage) -> None:
    assert not stage.listener.replaces_heartbeat
    assert stage.listener.step() == 0.0
    assert stage.backend.asked == [(wire.MAX_WAIT_SECONDS, stage.status_report)]
    assert stage.listener.replaces_heartbeat and stage.done == ["carried"]
    stage.backend.answer = lambda wait: LongPollAnswer([], 0, takes_polls=True, report=True, remind=True)
    stage.listener.step()
    assert stage.done == ["carried", "report", "remind"]
    stage.clock.advance(HEARTBEAT_REPLACED_SECONDS)
    assert not stage.listener.replaces_heartbeat, "a call that is not answered tells nothing"


def test_a_backend_of_the_release_before_gets_heartbeats_and_what_waits_in_the_spool_is_no_poll(stage: Stage) -> None:
    stage.backend.answer = lambda wait: LongPollAnswer([], 0)
    stage.listener.step()
    assert not stage.listener.replaces_heartbeat and stage.done == []
    stage.backend.answer = lambda wait: LongPollAnswer([], 0, takes_polls=True)
    stage.status_report = AgentStatus("spool", 3)
    stage.listener.step()
    assert stage.listener.replaces_heartbeat and stage.done == []


def test_a_backend_that_ends_is_asked_again_when_it_says(stage: Stage) -> None:
    stage.backend.answer = lambda wait: LongPollAnswer([], 0, takes_polls=True, renew_in=8.5)
    assert stage.listener.step() == 8.5
    assert stage.listener.step() == 8.5, "being woken does not hurry it"
    assert len(stage.backend.asked) == 1


def test_a_proxy_that_cuts_at_thirty_seconds_is_asked_for_shorter_waits(stage: Stage) -> None:
    stage.backend.lasts = lambda wait: min(wait, 30.0)
    stage.backend.answer = lambda wait: (
        NoAnswer("connection reset") if wait > 30 else LongPollAnswer([], 0, takes_polls=True)
    )
    for _ in range(3):
        stage.clock.advance(stage.listener.step())
    assert [wait for wait, _ in stage.backend.asked] == [50, 50, 24]
    assert stage.listener.replaces_heartbeat
    # It may be gone one day.
    stage.clock.advance(FULL_WAIT_RETRY_SECONDS)
    stage.listener.step()
    assert stage.backend.asked[-1][0] == 50


def test_proxy_timeout_shortens_calls_and_a_stopping_backend_does_not(stage: Stage) -> None:
    stage.backend.lasts = lambda wait: 31.0
    stage.backend.answer = lambda wait: RefusedByBackend(504, "gateway time-out", None)
    for _ in range(3):
        stage.clock.advance(stage.listener.step())
    assert stage.backend.asked[-1][0] == 24
    stage.backend.lasts = lambda wait: 0.1
    for _ in range(5):
        stage.clock.advance(stage.listener.step())
    assert stage.backend.asked[-1][0] == 24


def test_a_fleet_that_comes_back_spreads_where_nothing_is_listed(stage: Stage) -> None:
    stage.backend.lasts = lambda wait: 0.0
    stage.backend.answer = lambda wait: NoAnswer("connection refused")
    waits: dict[bool, list[float]] = {True: [], False: []}
    for hurries, found in waits.items():
        stage.hurries = hurries
        for _ in range(40):
            found.append(stage.listener.step())
            stage.clock.advance(found[-1])
    assert max(waits[True]) <= BACKEND_SECONDS < max(waits[False]) <= QUIET_SECONDS


def test_an_unchanged_poll_that_the_backend_heard_of_writes_nothing(parts: Parts) -> None:
    for second in range(2000):
        parts.poller.step()
        if second % 40 == 0:
            parts.poller.defer_reminder()
        parts.clock.advance(1)
    assert parts.waiting(wire.REMINDER) == []
    # While the backend is unavailable, the agent stores what it sees as usual.
    parts.polls(700)
    assert len(parts.waiting(wire.REMINDER)) == 2


def test_a_backend_without_the_document_is_reminded_within_measure(parts: Parts) -> None:
    parts.poller.step()
    for _ in range(600):
        parts.poller.defer_reminder()
        parts.poller.remind()
        parts.clock.advance(1)
        parts.poller.step()
    assert len(parts.waiting(wire.REMINDER)) == 2


def test_a_poll_counts_once_what_it_found_is_written_down(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts.poller.step()
    spooled = parts.poller.spooled_poll
    assert spooled[0] == parts.clock.now()
    parts.announce()
    parts.clock.advance(1)
    with monkeypatch.context() as patched:
        patched.setattr(parts.poller._outbox, "write", lambda: False)
        parts.polls(1)
        assert parts.poller.spooled_poll == spooled
    parts.poller.step()
    assert parts.poller.spooled_poll[0] == parts.clock.now() and parts.poller.spooled_poll[1] != spooled[1]


def test_held_calls_take_the_place_of_heartbeats(delivery: Delivery, monkeypatch: pytest.MonkeyPatch) -> None:
    carried = True
    monkeypatch.setattr(delivery.uploader, "_heartbeat_replaced", lambda: carried)
    delivery.until_idle()
    before, closed = len(delivery.fleet.batches), []
    monkeypatch.setattr(delivery.uploader._client, "close", lambda: closed.append(True))
    for _ in range(60):
        delivery.clock.advance(1)
        delivery.step()
    assert len(delivery.fleet.batches) == before and closed, "one connection is enough"
    # What is new goes out as ever, and so does what the backend wants.
    delivery.fill(1)
    delivery.until_idle()
    delivery.uploader.report()
    delivery.clock.advance(15)
    delivery.until_idle()
    assert [len(batch["reports"]) for batch in delivery.fleet.batches[before:]] == [1, 0]
    carried = False
    delivery.clock.advance(30)
    delivery.until_idle()
    assert len(delivery.fleet.batches) == before + 3


@pytest.mark.real_time
@pytest.mark.flow
def test_a_whole_agent_says_it_all_with_the_call_that_it_holds(agents: Agents) -> None:
    agents.fleet.wants = {"report": True}
    agents.at_work()
    batches = len(agents.fleet.batches)

    def whole() -> list[dict[str, Any]]:
        # Whenever its long poll ends, the agent opens another one; while a report waits, that names no document.
        agents.fleet.ring()
        return [look for look in agents.fleet.looks if "document" in look]

    look = eventually(whole)[-1]
    (spool,) = agents.fleet.committed
    newest = agents.fleet.reports(wire.DOCUMENT)[-1]["data"]["hash"]
    assert (look["spool"], look["document"]) == (spool, newest)
    assert int(look["acknowledged"]) <= agents.fleet.acknowledged[spool]
    eventually(lambda: [batch for batch in agents.fleet.batches[batches:] if not batch["reports"]])
