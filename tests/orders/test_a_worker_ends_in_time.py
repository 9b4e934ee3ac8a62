"""A worker that is told to end does so within seconds, also while Redis takes every question and answers none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from fleet.celery import STOP_SECONDS
from fleet.embedded import Urls, valkey
from tests.databases import database, database_named
from tests.processes import PYTHON, running, wait_for

pytestmark = [pytest.mark.flow, pytest.mark.long, pytest.mark.real_time]


def test_a_worker_ends_while_redis_hangs(migrated_template: str, tmp_path: Path) -> None:
    with database(migrated_template) as name, valkey(tmp_path) as broker:
        environment = Urls(database=database_named(name), redis=broker).environment
        log = tmp_path / "worker.log"
        with running([PYTHON, "manage.py", "worker"], environment=environment, log=log) as worker:
            wait_for(lambda: " ready." in worker.said(), seconds=120, what="a worker that is ready")
            with redis.Redis.from_url(broker) as client:
                client.execute_command("CLIENT", "PAUSE", 60_000, "ALL")
            # By then it waits for an answer.
            time.sleep(5)
            began = time.monotonic()
            worker.child.terminate()
            wait_for(lambda: worker.child.poll() is not None, seconds=30, what="the worker ends")
            assert worker.child.returncode == 0, worker.said()[-2000:]
            assert time.monotonic() - began < 2 * STOP_SECONDS
