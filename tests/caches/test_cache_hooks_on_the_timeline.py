"""Cache hooks on the timeline: each result of a machine's hooks is recorded."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from django.db import transaction
from drydock_agent import wire

from fleet.models import Cache, Entry
from tests.caches.walking import HOST, Listeners, clock, line, the_cache
from tests.holding import blocked
from tests.words import text


def ended(hook: str = "10-circuit-breaker", outcome: str = "succeeded", **more: object) -> wire.RedisHookData:
    given = {"notification_type": "NodeMaintenanceStart", "exit_status": 0, "seconds": 0.21, **more}
    return wire.RedisHookData(cache=HOST, hook=hook, outcome=outcome, **given)  # type: ignore[arg-type]


def entries() -> list[Entry]:
    return list(Entry.objects.filter(kind__startswith="hook").order_by("id"))


def test_one_that_succeeded_is_an_entry_of_the_cache_and_of_the_machine(listeners: Listeners) -> None:
    listeners.cover("vm1", "subscribed")
    listeners.report("vm1", ended(output="broke\x00n\n"))
    (entry,) = entries()
    assert entry.kind == "hook_succeeded"
    assert text(entry) == "Machine vm1: redis hook 10-circuit-breaker for NodeMaintenanceStart succeeded after 0.2 s."
    assert (entry.cache, entry.machine, entry.at) == (the_cache(), listeners.agents["vm1"].machine, listeners.now)
    assert (entry.actor, entry.via) == ("vm1", "agent")
    assert entry.data == {
        "cache": HOST, "hook": "10-circuit-breaker", "phase": "redis", "notification_type": "NodeMaintenanceStart",
        "outcome": "succeeded", "exit_status": 0, "seconds": 0.21, "output": "broke\N{REPLACEMENT CHARACTER}n\n",
    }  # fmt: skip


def test_those_that_did_not_succeed_say_how(listeners: Listeners) -> None:
    refusal = "10-a is not run: it can be written by everybody."
    listeners.report(
        "vm1",
        ended(outcome="failed", exit_status=3),
        ended(outcome="timed-out", exit_status=None, seconds=30.0, output="still at it"),
        ended("10-a", "failed", exit_status=None, seconds=None, output=refusal),
        ended("", "failed", exit_status=None, seconds=None, output="Nothing in redis.d is run.", notification_type=""),
    )
    assert {entry.kind for entry in entries()} == {"hook_failed"}
    assert [text(entry) for entry in entries()] == [
        "Machine vm1: redis hook 10-circuit-breaker for NodeMaintenanceStart failed with status 3 after 0.2 s.",
        "Machine vm1: redis hook 10-circuit-breaker for NodeMaintenanceStart ran out of time after 30.0 s.",
        f"Machine vm1: redis hook 10-a for NodeMaintenanceStart failed. “{refusal}”",
        "Machine vm1: redis hooks for a line without a type failed. “Nothing in redis.d is run.”",
    ]


def test_a_hook_for_a_cache_that_is_not_known_is_still_an_entry(listeners: Listeners) -> None:
    listeners.report("vm1", ended())
    (entry,) = entries()
    assert entry.cache is None and entry.data["cache"] == HOST
    assert not Cache.objects.exists()


def test_a_hook_told_together_with_the_first_line_belongs_to_the_new_cache(listeners: Listeners) -> None:
    agent, raw = listeners.agents["vm1"], line("NodeMaintenanceStart")
    heard = agent.report(wire.RedisData(cache=HOST, raw=raw), at=listeners.now)
    hook = agent.report(ended(), at=listeners.now + timedelta(seconds=1))
    listeners.record(agent.delivery(heard, hook))
    kinds = Entry.objects.filter(cache=the_cache()).order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["maintenance_started", "hook_succeeded"]


def test_a_repeated_report_is_no_second_entry_and_a_late_one_has_its_own_time(listeners: Listeners) -> None:
    agent = listeners.agents["vm1"]
    then = listeners.now - timedelta(hours=3)
    delivery = agent.delivery(agent.report(ended(), at=then))
    listeners.record(delivery)
    listeners.record(delivery)
    (entry,) = entries()
    assert entry.at == then


@pytest.mark.django_db(transaction=True)
def test_hooks_of_several_caches_wait_for_these_in_the_order_of_all_others() -> None:
    listeners = Listeners(now=clock("16:00:00"))
    listeners.enrol("vm1")
    first, last = "a.redis.cache.windows.net", "b.redis.cache.windows.net"
    for host in (first, last):
        listeners.cover("vm1", "subscribed", host=host)

    with blocked() as begin, transaction.atomic():
        Cache.objects.select_for_update().get(host=first)
        begin(partial(listeners.report, "vm1", replace(ended(), cache=last), replace(ended(), cache=first)))
        # A transaction that waits for the first cache must not already lock the last: both would wait for ever.
        Cache.objects.select_for_update(nowait=True).get(host=last)
    assert [entry.cache.host for entry in entries() if entry.cache] == [last, first]
