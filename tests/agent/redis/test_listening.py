"""Cache listener: it reports each line of a real server and when it listened, and survives every fault."""

from __future__ import annotations

import base64
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
import redis
from drydock_agent import wire
from drydock_agent.redis import subscription
from drydock_agent.redis.listener import Timing, overlap
from drydock_agent.settings.caches import read_caches
from drydock_agent.spool.store import Spool

from tests.agent.redis.conftest import HOST, QUICK, Listening, ListeningFactory, cache_at
from tests.agent.redis.servers import CHANNEL, CacheServer, FaultyPath
from tests.processes import wait_for

pytestmark = [pytest.mark.fault, pytest.mark.real_time]

LINE = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress|52.158.249.185|SSLPort|15000|NonSSLPort|13000"


def test_a_line_is_kept_as_it_came_with_the_caches_name(server: CacheServer, listener: Listening) -> None:
    assert server.say(LINE) == 1
    assert listener.heard(1) == [LINE]
    (data,) = listener.reports(wire.REDIS)
    del data["at"]
    assert data == {"cache": HOST, "raw": LINE, "encoding": "utf-8", "cut": False}


def test_subscribed_is_said_with_tier_and_divisor(server: CacheServer, listening: ListeningFactory) -> None:
    listener = listening(cache_at(server.port, "&divisor=3"), until="subscribed")
    (data,) = listener.reports(wire.COVERAGE)
    del data["at"]
    assert data == {"cache": HOST, "state": "subscribed", "reason": "", "tier": "premium", "divisor": 3}


def test_only_the_literal_channel_is_heard(server: CacheServer, listener: Listening) -> None:
    with server.client() as client:
        assert client.publish("azureredisevents", "another") == 0
        assert client.publish(CHANNEL + "2", "another") == 0
    server.say(LINE)
    assert listener.heard(1) == [LINE]


def test_odd_lines_do_no_harm_and_are_kept(server: CacheServer, listener: Listening) -> None:
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
    listener.heard(len(odd))
    found = listener.reports(wire.REDIS)
    assert [data["raw"] for data in found[:2]] == ["", "|||"]
    assert (found[2]["encoding"], found[2]["cut"]) == ("base64", True)
    assert no_text.startswith(base64.b64decode(found[2]["raw"])) and len(found[2]["raw"]) == 16_000
    assert (found[3]["raw"], found[3]["cut"]) == ("x" * 16_000, True)
    assert (found[4]["raw"], found[4]["cut"]) == ("ä" * 16_000, False)
    assert [data["raw"] for data in found[5:]] == odd[5:]


def test_repeats_and_any_order_are_kept_as_they_came(server: CacheServer, listener: Listening) -> None:
    sent = [LINE.replace("15000", str(port)) for port in (15001, 15000, 15000, 15003, 15001, 15001)]
    for line in sent:
        server.say(line)
    assert listener.heard(len(sent)) == sent


def test_without_a_server_it_retries_and_reports_the_loss_once(
    server: CacheServer, listening: ListeningFactory
) -> None:
    server.stop()
    listener = listening(server.port, until="lost")
    time.sleep(0.5)
    server.start()
    listener.until("subscribed", seconds=30)
    assert listener.states() == ["lost", "subscribed"]
    assert "refused" in listener.reports(wire.COVERAGE)[0]["reason"]


def test_a_stop_is_said_at_once_and_takes_no_time(server: CacheServer, listening: ListeningFactory) -> None:
    listener = listening(server.port, timing=QUICK, until="subscribed")
    begun = time.monotonic()
    listener.stop()
    assert time.monotonic() - begun < 3
    assert listener.states() == ["subscribed", "lost"]
    assert listener.reports(wire.COVERAGE)[-1]["reason"] == "the agent stopped"


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


def test_backend_that_lost_coverage_gets_it_again(listener: Listening) -> None:
    listener.part.resend()
    wait_for(lambda: listener.states() == ["subscribed", "subscribed"], seconds=20, what="said again")


def test_a_host_that_publishes_nothing_is_reported_and_left_alone(
    server: CacheServer, listening: ListeningFactory
) -> None:
    for suffix in ("westeurope.redis.azure.net", "westeurope.redisenterprise.cache.azure.net"):
        cache = cache_at(server.port)
        object.__setattr__(cache, "host", f"shop.{suffix}")
        listening(cache, until="unsupported")
    with server.client() as client:
        assert len(client.client_list()) == 1


# As Azure Managed Redis states itself: Redis 7.
MANAGED = {"extended-redis-compatibility": "yes"}


@pytest.mark.real_time
def test_a_cache_that_was_migrated_under_its_name_is_recognised_until_it_is_rolled_back(
    server: CacheServer, listening: ListeningFactory
) -> None:
    one = listening(server.port)
    one.until("subscribed")
    server.stop()
    server.options |= MANAGED
    server.start()
    one.until("unsupported")
    assert "Azure Managed Redis" in one.reports(wire.COVERAGE)[-1]["reason"]
    server.stop()
    del server.options["extended-redis-compatibility"]
    server.start()
    one.until("subscribed")


@pytest.mark.real_time
def test_a_migration_without_a_cut_is_recognised_at_the_next_renewal(
    server: CacheServer, listening: ListeningFactory
) -> None:
    one = listening(server.port, timing=replace(QUICK, renew=(0.3, 0.3)))
    one.until("subscribed")
    with server.client() as client:
        client.config_set("extended-redis-compatibility", "yes")
    one.until("unsupported")
    with server.client() as client:
        client.config_set("extended-redis-compatibility", "no")
    one.until("subscribed")


@pytest.mark.real_time
def test_a_line_shows_that_the_cache_publishes_whatever_its_server_states(
    server: CacheServer, listening: ListeningFactory
) -> None:
    with server.client() as client:
        client.config_set("extended-redis-compatibility", "yes")
    one = listening(server.port)
    one.until("unsupported")
    server.say(LINE)
    assert one.heard(1) == [LINE]
    one.until("subscribed")


@pytest.mark.parametrize(
    ("name", "server", "is_replaced"),
    [
        ("shop.westeurope.redis.azure.net", {}, True),
        ("shop.redisenterprise.cache.azure.net", {}, True),
        (HOST, {}, False),
        ("", {"server": b"redis", "version": b"6.0.14", "modules": []}, False),
        ("", {"server": b"redis", "version": b"7.4.1", "modules": []}, True),
        ("", {"server": b"redis", "version": b"6.2.6", "modules": [[b"name", b"search"]]}, True),
        ("", {"server": b"valkey", "version": b"9.0.0", "modules": []}, False),
        ("", {"server": b"redis", "version": 7, "modules": b""}, False),
        ("", {"server": 7, "version": b"x"}, False),
    ],
)
def test_a_name_or_a_server_shows_the_replacement(
    monkeypatch: pytest.MonkeyPatch, name: str, server: dict[str, object], is_replaced: bool
) -> None:
    (cache,) = read_caches(f"rediss://{HOST}")
    monkeypatch.setattr(subscription, "canonical_name", lambda host: name)
    assert bool(subscription._replacement(cache, server)) is is_replaced


@pytest.mark.real_time
def test_renewing_neither_loses_nor_doubles_a_line(server: CacheServer, listening: ListeningFactory) -> None:
    every = 0.25
    timing = type(QUICK)(**{name: getattr(QUICK, name) for name in QUICK.__slots__} | {"renew": (every, every)})
    listener = listening(server.port, timing=timing, until="subscribed")
    ids: set[str] = set()
    sent: list[str] = []
    with server.client() as client:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            sent.append(f"line {len(sent)}")
            client.publish(CHANNEL, sent[-1])
            ids |= {each["id"] for each in client.client_list(_type="pubsub")}
            time.sleep(0.002)
    assert listener.heard(len(sent)) == sent
    assert len(ids) > 5, "it was renewed all the time"
    assert listener.states() == ["subscribed"]


def test_lines_in_slices_and_with_delays_are_heard_whole(
    path: FaultyPath, server: CacheServer, listening: ListeningFactory
) -> None:
    path.slices, path.delay = True, 0.02
    listener = listening(path.port, until="subscribed")
    sent = [f"{LINE}|{number}" for number in range(20)]
    for line in sent:
        server.say(line)
    assert listener.heard(20) == sent
    assert listener.states() == ["subscribed"]


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


def test_a_client_that_the_server_kills_is_a_gap_with_its_times(server: CacheServer, listener: Listening) -> None:
    before = datetime.now(timezone.utc)
    assert server.kill_subscribers() == 1
    wait_for(lambda: listener.states() == ["subscribed", "lost", "subscribed"], seconds=10, what="heard again")
    lost, again = listener.reports(wire.COVERAGE)[1:]
    assert before <= lost["at"] <= again["at"] <= datetime.now(timezone.utc)
    assert (lost["at"] - before).total_seconds() < 4


def test_a_server_that_stops_and_starts_is_heard_again(server: CacheServer, listener: Listening) -> None:
    server.stop()
    listener.until("lost")
    server.start()
    listener.until("subscribed", seconds=30)
    server.say(LINE)
    assert listener.heard(1) == [LINE]
    assert listener.states() == ["subscribed", "lost", "subscribed"]


def test_a_server_that_cuts_each_connection_at_once_is_asked_less_and_less(
    server: CacheServer, listening: ListeningFactory
) -> None:
    listener = listening(server.port, timing=replace(QUICK, steady=30.0), until="subscribed")
    end = time.monotonic() + 6
    while time.monotonic() < end:
        server.kill_subscribers()
        time.sleep(0.02)
    # Waits of up to one second each time would make about twelve.
    assert 2 <= listener.states().count("subscribed") <= 7


def test_during_a_maintenance_it_comes_back_within_two_seconds(
    server: CacheServer, listening: ListeningFactory
) -> None:
    listener = listening(server.port, timing=replace(QUICK, hurry=(1.0, 2.0)), until="subscribed")
    server.say(LINE)
    listener.heard(1)
    # Four failures in a row would otherwise be followed by waits of up to sixteen seconds.
    server.stop()
    listener.until("lost")
    time.sleep(4.0)
    server.start()
    up = datetime.now(timezone.utc)
    assert (listener.until("subscribed") - up).total_seconds() < 5


@pytest.mark.parametrize("given", ["", ":wrong@"])
def test_a_wrong_password_is_a_refusal_tried_again_slowly(
    tmp_path: Path, listening: ListeningFactory, given: str
) -> None:
    server = CacheServer(tmp_path, requirepass="right")
    try:
        listener = listening(cache_at(server.port, user=given), until="refused")
        with server.client() as client:
            client.config_set("requirepass", given.strip(":@"))
        server.options["requirepass"] = given.strip(":@")
        listener.until("subscribed")
        assert listener.states() == ["refused", "subscribed"]
    finally:
        server.stop()


def test_a_new_key_in_the_file_needs_no_restart(tmp_path: Path, listening: ListeningFactory) -> None:
    key = tmp_path / "key"
    key.write_text("old\n")
    server = CacheServer(tmp_path, requirepass="new")
    try:
        listener = listening(cache_at(server.port, f"&password_file={key}"), until="refused")
        key.write_text("new\n")
        listener.until("subscribed")
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("rights", "state"),
    [
        ("resetchannels &AzureRedisEvents -@all +subscribe +unsubscribe +ping", "subscribed"),
        ("resetchannels &AzureRedisEvents -@all +subscribe +ping", "subscribed"),
        ("resetchannels &another -@all +subscribe +unsubscribe +ping", "refused"),
        ("resetchannels &AzureRedisEvents -@all +ping", "refused"),
        ("resetchannels &AzureRedisEvents -@all +subscribe", "refused"),
    ],
)
def test_the_least_rights_are_enough_and_a_missing_one_is_a_refusal(
    server: CacheServer, listening: ListeningFactory, rights: str, state: str
) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "agent", "on", ">secret", "resetkeys", *rights.split())
    listener = listening(cache_at(server.port, user="agent:secret@"), timing=replace(QUICK, renew=(0.3, 0.3)))
    listener.until(state)
    time.sleep(1.0)
    assert listener.states() == [state], "also over pings and renewals"
    if state == "subscribed":
        server.say(LINE)
        assert listener.heard(1) == [LINE]
    if "+unsubscribe" in rights and state == "subscribed":
        with server.client() as client:
            assert client.acl_log() == [], "the agent sends nothing that needs another right"


def test_a_right_that_is_taken_away_is_noticed(server: CacheServer, listening: ListeningFactory) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "agent", "on", ">secret", "allchannels", "+@all")
        listener = listening(cache_at(server.port, user="agent:secret@"), until="subscribed")
        client.execute_command("ACL", "SETUSER", "agent", "resetchannels")
    listener.until("refused")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "agent", "allchannels")
    listener.until("subscribed")


def test_a_path_that_swallows_bytes_is_found_and_left(
    path: FaultyPath, server: CacheServer, listening: ListeningFactory
) -> None:
    listener = listening(path.port, until="subscribed")
    path.swallows = True
    begun = datetime.now(timezone.utc)
    found = listener.until("stale")
    assert (found - begun).total_seconds() < 6 * (QUICK.ping + QUICK.pong)
    # Connecting leads nowhere either, and is no news.
    time.sleep(1.0)
    assert listener.states() == ["subscribed", "stale"]
    path.swallows = False
    listener.until("subscribed", seconds=40)
    server.say(LINE)
    assert listener.heard(1) == [LINE]


def test_a_line_of_which_only_a_part_comes_is_found_as_well(
    path: FaultyPath, server: CacheServer, listening: ListeningFactory
) -> None:
    listener = listening(path.port, until="subscribed")
    path.stops_after = 40
    server.say("x" * 200)
    listener.until("stale", seconds=15)
    assert listener.lines() == []


def test_a_path_that_only_delays_is_not_given_up(
    path: FaultyPath, server: CacheServer, listening: ListeningFactory
) -> None:
    listener = listening(path.port, timing=replace(QUICK, pong=2.0), until="subscribed")
    path.delay = 0.3
    sent = [f"{LINE}|{number}" for number in range(5)]
    for line in sent:
        server.say(line)
    assert listener.heard(5) == sent
    time.sleep(1.5)
    assert listener.states() == ["subscribed"]


def test_what_the_disk_did_not_take_is_written_when_it_does(server: CacheServer, listener: Listening) -> None:
    spool = listener.spool
    # The file is held exclusively: the way to fill the disk is to allow no further page.
    spool._call(lambda db: db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}"))
    sent = [f"{LINE}|{number}|{'x' * 3000}" for number in range(10)]
    for line in sent:
        server.say(line)
    wait_for(lambda: listener.part._record.waits, seconds=5, what="lines that wait")
    spool._call(lambda db: db.execute("PRAGMA max_page_count = 1000000"))
    assert listener.heard(10) == sent


@pytest.mark.long
def test_a_swallowed_connection_is_noticed_within_45_seconds_at_the_real_rhythm(
    path: FaultyPath, listening: ListeningFactory
) -> None:
    listener = listening(path.port, timing=Timing(), until="subscribed")
    path.swallows = True
    begun = datetime.now(timezone.utc)
    seconds = (listener.until("stale", seconds=60) - begun).total_seconds()
    assert 30 < seconds <= 45
