"""Rounds of races on real Postgres: calls that start together, and what has to be true after each round."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier

from django.db import connection
from django.utils import timezone

from fleet.domain.reasons import Refused
from fleet.models import Approval, Order, ScheduledEvent
from tests.factories import Fleet, listing, seconds
from tests.words import sentence

# One machine lists all of a batch, of two kinds: no more than are taken up at once.
BATCH = 12
LIVE = ("PROPOSED", "WAITING", "GRANTED", "RELAYING", "ACCEPTED")


class ThreadGroup:
    """Threads that keep their connection to the database from one round to the next, as gateways do."""

    def __init__(self, pool: ThreadPoolExecutor, size: int) -> None:
        self.pool = pool
        self.size = size

    def at_once(self, *calls: Callable[[], object]) -> list[object]:
        """What each returned, or the Refused that it raised. Whatever else it raises ends the test: a deadlock, too."""
        barrier = Barrier(len(calls))

        def run(call: Callable[[], object]) -> object:
            barrier.wait(30)
            try:
                return call()
            except Refused as error:
                return error

        running: list[Future[object]] = [self.pool.submit(run, call) for call in calls]
        return [one.result(60) for one in running]


@contextmanager
def thread_group(size: int) -> Iterator[ThreadGroup]:
    """A group of this many threads; at the end they give their connections back."""
    with ThreadPoolExecutor(size) as pool:
        try:
            yield ThreadGroup(pool, size)
        finally:
            barrier = Barrier(size)

            def close() -> None:
                # So that each thread closes its own.
                barrier.wait(30)
                connection.close()

            for one in [pool.submit(close) for _ in range(size)]:
                one.result(60)


def a_fleet(sets: int = 1) -> Fleet:
    """Two live machines in each set; names are `s0a`, `s0b`, `s1a` and so on."""
    fleet = Fleet(now=timezone.now())
    for number in range(sets):
        for letter in "ab":
            fleet.enrol(f"s{number}{letter}", availability_set=f"set{number}")
            fleet.say(f"s{number}{letter}")
    return fleet


def event_ids(count: int, kind: int = 0) -> list[str]:
    return [f"{kind:08}-0000-4000-8000-{number:012}" for number in range(count)]


def announce(fleet: Fleet, name: str, ids: Sequence[str], *, hits: Sequence[str] = ()) -> None:
    """One machine lists all these events at once, which keeps a round cheap."""
    due = fleet.now + seconds(3000)
    fleet.say(name, *[listing(event_id, resources=hits or [name], not_before=due) for event_id in ids])


def rounds(fleet: Fleet, count: int, kinds: int = 1) -> Iterator[tuple[str, ...]]:
    """So many rounds, each with fresh events of one set (as many as kinds). Only a few are open at a time."""
    ids = list(zip(*[event_ids(count, kind) for kind in range(1, kinds + 1)], strict=True))
    for start in range(0, count, BATCH):
        batch = ids[start : start + BATCH]
        # On a busy machine the rounds last longer than a machine stays live unheard.
        fleet.now = timezone.now()
        fleet.heard()
        announce(fleet, "s0a", [event_id for each in batch for event_id in each])
        for each in batch:
            yield each
            # Close these decisions, so that they do not affect later rounds.
            Approval.objects.filter(event__event_id__in=each, state__in=LIVE).update(state="LAPSED")
            ScheduledEvent.objects.filter(event_id__in=each).update(status="ENDED")


def check(event_id: str, *, approvals: int = 1, orders: int | None = None) -> None:
    """So many approvals came into being, at most one of them lives, each with at most one open order."""
    found = Approval.objects.filter(event__event_id=event_id)
    assert found.count() == approvals
    assert found.filter(state__in=LIVE).count() <= 1
    sent = Order.objects.filter(approval__in=found)
    assert sent.filter(state__in=("OFFERED", "DELIVERED")).count() <= 1
    if orders is not None:
        assert sent.count() == orders


def told(results: list[object], *, wins: int = 1) -> list[Refused]:
    """The losers; so many have won."""
    losers = [one for one in results if isinstance(one, Refused)]
    assert len(results) - len(losers) == wins, [sentence(loser) for loser in losers]
    return losers
