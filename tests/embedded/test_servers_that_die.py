"""A server of ours that died is started again, where it was and with what it had."""

import os
import signal
from pathlib import Path

import psycopg
import pytest
import redis

from fleet.embedded import Urls, servers
from tests.processes import PYTHON, start, wait_for

pytestmark = pytest.mark.fault


def kill(urls: Urls, name: str) -> None:
    """Kill -9 for the one process of a server that stands for it: of Postgres the postmaster alone."""
    child = next(server.child for server in urls.own if server.name == name)
    os.kill(child.pid, signal.SIGKILL)
    # Of a program with threads the first may be gone while others still end: it has ended once it was waited for.
    wait_for(lambda: child.poll() is not None, seconds=10, what=f"the end of {name}")


def test_both_restart_at_their_addresses_and_postgres_with_its_data_despite_an_open_session(tmp_path: Path) -> None:
    assert Urls(database="postgresql://elsewhere/x", redis="redis://elsewhere").watch() == []
    with servers(tmp_path, {}, durable=False) as own:
        pids = [server.child.pid for server in own.own]
        assert own.watch() == [], "while both run nothing is said"
        assert [server.child.pid for server in own.own] == pids
        with psycopg.connect(own.database, autocommit=True) as before:
            before.execute("CREATE TABLE kept AS SELECT 1 AS one")
            kill(own, "Postgres")
            # Its session is held by a process of the dead server, which holds the memory, too.
            assert own.watch() == ["Postgres ended by itself (SIGKILL); it was started again on its data."]
        with psycopg.connect(own.database) as after:
            assert after.execute("SELECT one FROM kept").fetchone() == (1,)
        kill(own, "Valkey")
        assert own.watch() == ["Valkey ended by itself (SIGKILL); it was started again on its data."]
        with redis.Redis.from_url(own.redis) as client:
            assert client.ping()
        assert own.watch() == []


def test_a_command_with_servers_finds_them_again(tmp_path: Path) -> None:
    waits = "import os, psycopg, time\nwhile True:\n try: psycopg.connect(os.environ['DATABASE_URL']).close()\n"
    waits += " except psycopg.Error: print('away', flush=True)\n else: print('there', flush=True)\n time.sleep(0.05)\n"
    command = [PYTHON, "manage.py", "with_servers", "--data", str(tmp_path / "data"), "--", PYTHON, "-c", waits]
    process = start(command, environment={"DATABASE_URL": "", "REDIS_URL": "", "SECRET_KEY": ""}, log=tmp_path / "log")
    try:
        wait_for(lambda: "there" in process.said(), seconds=60, what="a database")
        postmaster = int((tmp_path / "data/postgres/postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        wait_for(
            lambda: process.said().rpartition("Postgres ended by itself (SIGKILL)")[2].count("there") > 1,
            seconds=60,
            what="the database again, and a word about it",
        )
    finally:
        process.stop(seconds=20)
