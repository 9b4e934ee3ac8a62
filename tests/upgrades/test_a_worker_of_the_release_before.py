"""Celery while a release is rolled out: messages of the release before are carried out, and it understands ours."""

import base64
import json
from pathlib import Path

import pytest
import redis
from pytest_django.plugin import DjangoDbBlocker

from fleet.embedded import Urls
from fleet.management import demo_recipes as recipes
from fleet.operations import wake_up
from tests.factories import Fleet, announced
from tests.gateway.conftest import shared
from tests.processes import start, wait_for
from tests.upgrades.recorded import task

pytestmark = [pytest.mark.real_time, pytest.mark.flow]
QUEUE = "drydock"


def test_its_task_is_carried_out(own_urls: Urls, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> None:
    with shared(own_urls, django_db_blocker):
        fleet = Fleet()
        event = announced(fleet)
        approval = fleet.approve(event.event_id)
        assert (approval.pk, approval.state) == (1, "GRANTED")
        with redis.Redis.from_url(own_urls.redis) as client:
            client.delete(QUEUE)
            client.lpush(QUEUE, json.dumps(task()))
        environment = {**own_urls.environment, "SECRET_KEY": "a key for tests, long enough and known to everybody"}
        recipe = recipes.worker()
        worker = start(recipe.command, environment={**environment, **recipe.environment}, log=tmp_path / "worker.log")
        try:

            def relayed() -> bool:
                approval.refresh_from_db()
                return approval.state != "GRANTED"

            wait_for(relayed, seconds=60, what="the worker relays it")
        finally:
            worker.kill()


def test_our_hint_is_the_message_that_it_knows(redis_url: str, redis_client: redis.Redis) -> None:
    wake_up.hint_approval(1)
    (raw,) = wait_for(lambda: redis_client.lrange(QUEUE, 0, -1) or None, seconds=20, what="the hint is in the queue")
    ours, known = json.loads(raw), task()
    assert ours["headers"]["task"] == known["headers"]["task"]
    assert json.loads(base64.b64decode(ours["body"]))[:2] == json.loads(base64.b64decode(known["body"]))[:2]
    assert set(known["headers"]) <= set(ours["headers"])
    assert (ours["content-type"], ours["content-encoding"]) == (known["content-type"], known["content-encoding"])
