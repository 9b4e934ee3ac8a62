"""Worker shutdown: a worker ends within seconds of a stop signal, even while Redis accepts calls and answers none."""

import time
from pathlib import Path

import pytest
import redis

from fleet.celery import STOP_SECONDS
from fleet.embedded import Urls
from tests.processes import PYTHON, running, wait_for

pytestmark = [pytest.mark.flow, pytest.mark.long, pytest.mark.real_time]


def test_a_worker_ends_while_redis_hangs(own_urls: Urls, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with running([PYTHON, "manage.py", "worker"], environment=own_urls.environment, log=log) as worker:
        wait_for(lambda: " ready." in worker.said(), seconds=120, what="a worker that is ready")
        with redis.Redis.from_url(own_urls.redis) as client:
            client.execute_command("CLIENT", "PAUSE", 60_000, "ALL")
        # By then it waits for an answer.
        time.sleep(5)
        began = time.monotonic()
        worker.child.terminate()
        wait_for(lambda: worker.child.poll() is not None, seconds=30, what="the worker ends")
        assert worker.child.returncode == 0, worker.said()[-2000:]
        assert time.monotonic() - began < 2 * STOP_SECONDS
