"""Celery while Redis is unavailable: the log of each process stays small."""

import json
import time
from pathlib import Path

import pytest
import redis

from fleet.embedded import Urls, valkey_server
from fleet.management import supervisor
from tests.processes import PYTHON, running, wait_for


@pytest.mark.long
@pytest.mark.real_time
@pytest.mark.parametrize("program", [supervisor.BEAT, supervisor.worker()], ids=["beat", "worker"])
def test_an_unavailable_redis_is_logged_with_growing_pauses(own_urls: Urls, tmp_path: Path, program: list[str]) -> None:
    folder = tmp_path / "redis"
    folder.mkdir()
    words = [PYTHON, "-m", "celery", "--app", "fleet", *program]
    with valkey_server(folder) as server, redis.Redis.from_url(server.url) as client:
        urls = Urls(database=own_urls.database, redis=server.url)
        environment = {**urls.environment, "LOG_FORMAT": "json"}
        with running(words, environment=environment, log=tmp_path / "log") as it:
            # Beat has queued a task, or the worker waits for one.
            def uses_redis() -> bool:
                return bool(client.llen("drydock")) or any(one["cmd"] == "brpop" for one in client.client_list())

            wait_for(uses_redis, seconds=60, what="it uses Redis", every=0.2)
            before = len(it.said())
            client.shutdown(nosave=True)
            # Beat alone would write 200 kB in this time.
            time.sleep(20)
            lines = [json.loads(line) for line in it.said()[before:].splitlines()]
    errors = [line for line in lines if line["level"] == "error"]
    assert 1 <= len(errors) <= 3
    assert all(line["event"].count("more of these") <= 1 for line in errors)
    assert "connect" in errors[0]["event"].lower()
    assert sum("exception" in line for line in lines) <= 1
