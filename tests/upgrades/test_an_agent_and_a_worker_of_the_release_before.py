"""An agent and a worker of the release before: what that agent sent is understood, and tasks are shared."""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import requests
from django.contrib.auth.models import User
from pytest_django.plugin import DjangoDbBlocker

from fleet.embedded import Urls
from fleet.management import demo_recipes as recipes
from fleet.models import Approval, ScheduledEvent
from fleet.operations import wake_up
from fleet.operations.approvals import approve
from tests import accounts
from tests.factories import Fleet, acting, announced, operator
from tests.gateway.conftest import shared
from tests.gateway_process import running_gateway
from tests.processes import start, wait_for
from tests.upgrades.recorded import Calls, task

pytestmark = [pytest.mark.real_time, pytest.mark.flow]


def test_a_former_agent_is_understood(own_urls: Urls, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> None:
    calls = Calls()
    with running_gateway(own_urls, tmp_path) as gateway, shared(own_urls, django_db_blocker):
        _, calls.known["JOIN-TOKEN"] = accounts.join_token(
            comment="", expires_in=timedelta(hours=1), now=datetime.now(UTC)
        )
        for call in calls:
            if call["path"].startswith("/agent/v1/orders") and call["answer"]["orders"]:
                _approve(operator())
            said = requests.request(
                call["method"],
                gateway.url + call["path"].replace("wait=50", "wait=5"),
                data=call["body"].encode(),
                headers=call["headers"],
                timeout=20,
            )
            assert said.status_code == 200, said.text
            answer = said.json()
            _same_shape(call["answer"], answer, call["path"])
            if "credential" in answer:
                calls.known["CREDENTIAL"] = answer["credential"]
            for order in answer.get("orders", ()):
                calls.known["ORDER-ID"] = order["id"]
        event = ScheduledEvent.objects.get()
        assert event.status == "ENDED"
        assert Approval.objects.get().state == "CONFIRMED"


def _approve(by: User) -> None:
    event = ScheduledEvent.objects.get(status="SCHEDULED")
    approve.grant(event_id=event.event_id, actor=acting(by, why="go"), now=datetime.now(UTC))


def _same_shape(then: Any, today: Any, where: str) -> None:
    """Whatever was answered then is answered now, of the same kind; more may be there."""
    assert type(then) is type(today) or then is None or today is None, where
    if isinstance(then, dict):
        assert set(then) <= set(today), where
        for name in then:
            _same_shape(then[name], today[name], f"{where} {name}")
    elif isinstance(then, list) and then and today:
        _same_shape(then[0], today[0], where)


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
