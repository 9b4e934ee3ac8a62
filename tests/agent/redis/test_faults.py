"""Cache faults: the listener survives every fault of a real server and of the network path to it."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from drydock_agent import wire
from drydock_agent.redis.listener import Timing

from tests.agent.redis.conftest import QUICK, ListeningFactory, cache_at
from tests.agent.redis.servers import CacheServer, FaultyPath
from tests.processes import wait_for

pytestmark = [pytest.mark.fault, pytest.mark.real_time]

START = "NotificationType|NodeMaintenanceStart|IsReplica|False|IPAddress||SSLPort|15000|NonSSLPort|13000"


def test_a_client_that_the_server_kills_is_a_gap_with_its_times(
    server: CacheServer, listening: ListeningFactory
) -> None:
    one = listening(server.port)
    one.until("subscribed")
    before = datetime.now(timezone.utc)
    assert server.kill_subscribers() == 1
    wait_for(lambda: one.states() == ["subscribed", "lost", "subscribed"], seconds=10, what="heard again")
    lost, again = one.reports(wire.COVERAGE)[1:]
    assert before <= lost["at"] <= again["at"] <= datetime.now(timezone.utc)
    assert (lost["at"] - before).total_seconds() < 4


def test_a_server_that_stops_and_starts_is_heard_again(server: CacheServer, listening: ListeningFactory) -> None:
    one = listening(server.port)
    one.until("subscribed")
    server.stop()
    one.until("lost")
    server.start()
    one.until("subscribed", seconds=30)
    server.say(START)
    assert one.heard(1) == [START]
    assert one.states() == ["subscribed", "lost", "subscribed"]


def test_a_server_that_cuts_each_connection_at_once_is_asked_less_and_less(
    server: CacheServer, listening: ListeningFactory
) -> None:
    one = listening(server.port, timing=replace(QUICK, steady=30.0))
    one.until("subscribed")
    end = time.monotonic() + 6
    while time.monotonic() < end:
        server.kill_subscribers()
        time.sleep(0.02)
    # Waits of up to one second each time would make about twelve.
    assert 2 <= one.states().count("subscribed") <= 7


def test_during_a_maintenance_it_comes_back_within_two_seconds(
    server: CacheServer, listening: ListeningFactory
) -> None:
    one = listening(server.port, timing=replace(QUICK, hurry=(1.0, 2.0)))
    one.until("subscribed")
    server.say(START)
    one.heard(1)
    # Four failures in a row would otherwise be followed by waits of up to sixteen seconds.
    server.stop()
    one.until("lost")
    time.sleep(4.0)
    server.start()
    up = datetime.now(timezone.utc)
    assert (one.until("subscribed") - up).total_seconds() < 5


@pytest.mark.parametrize("given", ["", ":wrong@"])
def test_a_wrong_password_is_a_refusal_tried_again_slowly(
    tmp_path: Path, listening: ListeningFactory, given: str
) -> None:
    server = CacheServer(tmp_path, requirepass="right")
    try:
        one = listening(cache_at(server.port, user=given))
        one.until("refused")
        with server.client() as client:
            client.config_set("requirepass", given.strip(":@"))
        server._options["requirepass"] = given.strip(":@")
        one.until("subscribed")
        assert one.states() == ["refused", "subscribed"]
    finally:
        server.stop()


def test_a_new_key_in_the_file_needs_no_restart(tmp_path: Path, listening: ListeningFactory) -> None:
    key = tmp_path / "key"
    key.write_text("old\n")
    server = CacheServer(tmp_path, requirepass="new")
    try:
        one = listening(cache_at(server.port, f"&password_file={key}"))
        one.until("refused")
        key.write_text("new\n")
        one.until("subscribed")
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
    one = listening(cache_at(server.port, user="agent:secret@"), timing=replace(QUICK, renew=(0.3, 0.3)))
    one.until(state)
    time.sleep(1.0)
    assert one.states() == [state], "also over pings and renewals"
    if state == "subscribed":
        server.say(START)
        assert one.heard(1) == [START]


def test_a_right_that_is_taken_away_is_noticed(server: CacheServer, listening: ListeningFactory) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "agent", "on", ">secret", "allchannels", "+@all")
        one = listening(cache_at(server.port, user="agent:secret@"))
        one.until("subscribed")
        client.execute_command("ACL", "SETUSER", "agent", "resetchannels")
    one.until("refused")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "agent", "allchannels")
    one.until("subscribed")


def test_a_path_that_swallows_bytes_is_found_and_left(
    path: FaultyPath, server: CacheServer, listening: ListeningFactory
) -> None:
    one = listening(path.port)
    one.until("subscribed")
    path.swallows = True
    begun = datetime.now(timezone.utc)
    found = one.until("stale")
    assert (found - begun).total_seconds() < 6 * (QUICK.ping + QUICK.pong)
    # Connecting leads nowhere either, and is no news.
    time.sleep(1.0)
    assert one.states() == ["subscribed", "stale"]
    path.swallows = False
    one.until("subscribed", seconds=40)
    server.say(START)
    assert one.heard(1) == [START]


def test_a_line_of_which_only_a_part_comes_is_found_as_well(
    path: FaultyPath, server: CacheServer, listening: ListeningFactory
) -> None:
    one = listening(path.port)
    one.until("subscribed")
    path.stops_after = 40
    server.say("x" * 200)
    one.until("stale", seconds=15)
    assert one.lines() == []


def test_a_path_that_only_delays_is_not_given_up(
    path: FaultyPath, server: CacheServer, listening: ListeningFactory
) -> None:
    one = listening(path.port, timing=replace(QUICK, pong=2.0))
    one.until("subscribed")
    path.delay = 0.3
    sent = [f"{START}|{number}" for number in range(5)]
    for line in sent:
        server.say(line)
    assert one.heard(5) == sent
    time.sleep(1.5)
    assert one.states() == ["subscribed"]


def test_what_the_disk_did_not_take_is_written_when_it_does(
    server: CacheServer, listening: ListeningFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = listening(server.port)
    one.until("subscribed")
    spool = one.spool
    # The file is held exclusively: the way to fill the disk is to allow no further page.
    spool._call(lambda db: db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}"))
    sent = [f"{START}|{number}|{'x' * 3000}" for number in range(10)]
    for line in sent:
        server.say(line)
    wait_for(lambda: one.part._record.waits, seconds=5, what="lines that wait")
    spool._call(lambda db: db.execute("PRAGMA max_page_count = 1000000"))
    assert one.heard(10) == sent


@pytest.mark.long
def test_a_swallowed_connection_is_noticed_within_45_seconds_at_the_real_rhythm(
    path: FaultyPath, listening: ListeningFactory
) -> None:
    one = listening(path.port, timing=Timing())
    one.until("subscribed")
    path.swallows = True
    begun = datetime.now(timezone.utc)
    seconds = (one.until("stale", seconds=60) - begun).total_seconds()
    assert 30 < seconds <= 45
