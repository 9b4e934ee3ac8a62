"""Cache listener: it reports each line of a real server, and the times in which it listened."""

from __future__ import annotations

import base64
import threading
import time

import pytest
import redis
from drydock_agent import wire
from drydock_agent.redis.listener import overlap
from drydock_agent.spool.store import Spool

from tests.agent.redis.conftest import HOST, QUICK, ListeningFactory, cache_at
from tests.agent.redis.servers import CHANNEL, CacheServer, FaultyPath
from tests.processes import wait_for

LINE = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress|52.158.249.185|SSLPort|15000|NonSSLPort|13000"


@pytest.mark.real_time
def test_a_line_is_kept_as_it_came_with_the_caches_name(server: CacheServer, listening: ListeningFactory) -> None:
    one = listening(server.port)
    one.until("subscribed")
    assert server.say(LINE) == 1
    assert one.heard(1) == [LINE]
    (data,) = one.reports(wire.REDIS)
    del data["at"]
    assert data == {"cache": HOST, "raw": LINE, "encoding": "utf-8", "cut": False}


@pytest.mark.real_time
def test_subscribed_is_said_with_tier_and_divisor(server: CacheServer, listening: ListeningFactory) -> None:
    one = listening(cache_at(server.port, "&divisor=3"))
    one.until("subscribed")
    (data,) = one.reports(wire.COVERAGE)
    del data["at"]
    assert data == {"cache": HOST, "state": "subscribed", "reason": "", "tier": "premium", "divisor": 3}


@pytest.mark.real_time
def test_only_the_literal_channel_is_heard(server: CacheServer, listening: ListeningFactory) -> None:
    one = listening(server.port)
    one.until("subscribed")
    with server.client() as client:
        assert client.publish("azureredisevents", "another") == 0
        assert client.publish(CHANNEL + "2", "another") == 0
    server.say(LINE)
    assert one.heard(1) == [LINE]


@pytest.mark.real_time
def test_odd_lines_do_no_harm_and_are_kept(server: CacheServer, listening: ListeningFactory) -> None:
    one = listening(server.port)
    one.until("subscribed")
    no_text = b"NotificationType|\xff\xfe|" + b"\x80" * 20_000
    odd: list[str | bytes] = [
        "",
        "|||",
        no_text,
        "x" * 16_001,
        "ä" * 16_000,
        "NotificationType",
        "line\r\nbreaks\n",
        LINE,
    ]
    for line in odd:
        server.say(line)
    one.heard(len(odd))
    found = one.reports(wire.REDIS)
    assert [data["raw"] for data in found[:2]] == ["", "|||"]
    assert (found[2]["encoding"], found[2]["cut"]) == ("base64", True)
    assert no_text.startswith(base64.b64decode(found[2]["raw"])) and len(found[2]["raw"]) == 16_000
    assert (found[3]["raw"], found[3]["cut"]) == ("x" * 16_000, True)
    assert (found[4]["raw"], found[4]["cut"]) == ("ä" * 16_000, False)
    assert [data["raw"] for data in found[5:]] == odd[5:]


@pytest.mark.real_time
def test_repeats_and_any_order_are_kept_as_they_came(server: CacheServer, listening: ListeningFactory) -> None:
    one = listening(server.port)
    one.until("subscribed")
    sent = [LINE.replace("15000", str(port)) for port in (15001, 15000, 15000, 15003, 15001, 15001)]
    for line in sent:
        server.say(line)
    assert one.heard(len(sent)) == sent


@pytest.mark.real_time
def test_without_a_server_it_retries_and_reports_the_loss_once(
    server: CacheServer, listening: ListeningFactory
) -> None:
    server.stop()
    one = listening(server.port)
    one.until("lost")
    time.sleep(0.5)
    server.start()
    one.until("subscribed", seconds=30)
    assert one.states() == ["lost", "subscribed"]
    assert "refused" in one.reports(wire.COVERAGE)[0]["reason"]


@pytest.mark.real_time
def test_a_stop_is_said_at_once_and_takes_no_time(server: CacheServer, listening: ListeningFactory) -> None:
    one = listening(server.port, timing=QUICK)
    one.until("subscribed")
    begun = time.monotonic()
    one.stop()
    assert time.monotonic() - begun < 3
    assert one.states() == ["subscribed", "lost"]
    assert one.reports(wire.COVERAGE)[-1]["reason"] == "the agent stopped"


@pytest.mark.real_time
def test_an_agent_that_was_killed_says_afterwards_how_long_it_had_listened(
    server: CacheServer, listening: ListeningFactory, spool: Spool
) -> None:
    first = listening(server.port)
    first.until("subscribed")
    key = f"redis {HOST}"
    remembered = spool.get(key)
    alive = wait_for(lambda: ((now := spool.get(key)) != remembered and now) or None, seconds=20, what="a sign of life")
    first.stop()
    # A killed agent leaves its last sign of life and no record of its end.
    spool.set(key, alive)
    second = listening(server.port)
    second.until("subscribed")
    assert second.states() == ["subscribed", "lost", "lost", "subscribed"]
    gap = second.reports(wire.COVERAGE)[2]
    assert gap["reason"] == "the agent ended unexpectedly"
    assert gap["at"].isoformat()[:23] in alive


@pytest.mark.real_time
def test_backend_that_lost_coverage_gets_it_again(server: CacheServer, listening: ListeningFactory) -> None:
    one = listening(server.port)
    one.until("subscribed")
    one.part.resend()
    wait_for(lambda: one.states() == ["subscribed", "subscribed"], seconds=20, what="said again")


@pytest.mark.real_time
def test_a_host_that_publishes_nothing_is_reported_and_left_alone(
    server: CacheServer, listening: ListeningFactory
) -> None:
    for suffix in ("westeurope.redis.azure.net", "westeurope.redisenterprise.cache.azure.net"):
        cache = cache_at(server.port)
        object.__setattr__(cache, "host", f"shop.{suffix}")
        one = listening(cache)
        one.until("unsupported")
    with server.client() as client:
        assert len(client.client_list()) == 1


@pytest.mark.real_time
def test_renewing_neither_loses_nor_doubles_a_line(server: CacheServer, listening: ListeningFactory) -> None:
    every = 0.25
    timing = type(QUICK)(**{name: getattr(QUICK, name) for name in QUICK.__slots__} | {"renew": (every, every)})
    one = listening(server.port, timing=timing)
    one.until("subscribed")
    ids: set[str] = set()
    sent: list[str] = []
    with server.client() as client:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            sent.append(f"line {len(sent)}")
            client.publish(CHANNEL, sent[-1])
            ids |= {each["id"] for each in client.client_list(_type="pubsub")}
            time.sleep(0.002)
    assert one.heard(len(sent)) == sent
    assert len(ids) > 5, "it was renewed all the time"
    assert one.states() == ["subscribed"]


@pytest.mark.real_time
def test_lines_in_slices_and_with_delays_are_heard_whole(
    path: FaultyPath, server: CacheServer, listening: ListeningFactory
) -> None:
    path.slices, path.delay = True, 0.02
    one = listening(path.port)
    one.until("subscribed")
    sent = [f"{LINE}|{number}" for number in range(20)]
    for line in sent:
        server.say(line)
    assert one.heard(20) == sent
    assert one.states() == ["subscribed"]


@pytest.mark.parametrize(
    ("before", "after", "common"),
    [
        ([], [], 0),
        ([], [b"a"], 0),
        ([b"a"], [], 0),
        ([b"a", b"b"], [b"b", b"c"], 1),
        ([b"a", b"b"], [b"a", b"b"], 2),
        ([b"b"], [b"a", b"b"], 0),
        ([b"a", b"a"], [b"a", b"c"], 1),
    ],
)
def test_lines_heard_on_both_connections_are_matched_by_order(
    before: list[bytes], after: list[bytes], common: int
) -> None:
    assert overlap(before, after) == common


@pytest.mark.real_time
def test_many_listeners_of_one_cache_do_not_disturb_each_other(
    server: CacheServer, listening: ListeningFactory
) -> None:
    first = listening(server.port)
    first.until("subscribed")
    with redis.Redis(port=server.port) as client, client.pubsub() as other:
        other.subscribe(CHANNEL)
        wait_for(lambda: server.listeners() == 2, seconds=20, what="two listeners")
        assert server.say(LINE) == 2
    assert first.heard(1) == [LINE]
    assert threading.active_count() > 1
