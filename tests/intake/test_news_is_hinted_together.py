"""Celery is asked to follow news, not each report: a storm is a few tasks, and a click is not behind them."""

import base64
import json
import time
from typing import Any

import pytest
import redis

from fleet.operations import wake_up
from tests.processes import wait_for

QUEUE = "drydock"


def tasks(client: redis.Redis) -> list[tuple[str, Any, dict[str, Any]]]:
    """(task, its argument, its headers) of each message that waits for a worker, oldest first."""
    found = []
    for raw in reversed(client.lrange(QUEUE, 0, -1)):
        message = json.loads(raw)
        ((argument,), _, _) = json.loads(base64.b64decode(message["body"]))
        found.append((message["headers"]["task"], argument, message["headers"]))
    return found


def test_a_storm_of_news_is_a_few_tasks_that_name_every_event(redis_client: redis.Redis) -> None:
    began = time.monotonic()
    for number in range(2000):
        wake_up.hint_events([number % 500, 500])

    def all_named() -> list[tuple[str, Any, dict[str, Any]]] | None:
        found = tasks(redis_client)
        named = {row_id for _, events, _ in found for row_id in events}
        return found if named == set(range(501)) else None

    found = wait_for(all_named, seconds=20, what="every event is named")
    took = time.monotonic() - began
    assert {task for task, _, _ in found} == {wake_up.FOLLOW_TASK}
    assert len(found) <= took / wake_up.FOLLOW_PAUSE_SECONDS + 2
    # These hints expire, so a returning worker does not process hours of old news: the tick has done that.
    assert all(headers["expires"] for _, _, headers in found)
    # What is still on its way would be news to the next test.
    wait_for(wake_up._hints.empty, seconds=20, what="all of it is taken")
    time.sleep(3 * wake_up.FOLLOW_PAUSE_SECONDS)


def test_a_click_is_not_behind_the_news(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough for the click to come while the second news waits, on any machine.
    monkeypatch.setattr(wake_up, "FOLLOW_PAUSE_SECONDS", 1.5)
    wake_up.hint_events([1])
    wait_for(lambda: tasks(redis_client) or None, seconds=20, what="the first change is announced at once")
    wake_up.hint_events([2])
    wake_up.hint_approval(7)
    found = wait_for(
        lambda: len(tasks(redis_client)) == 3 and tasks(redis_client), seconds=20, what="all three are there"
    )
    assert [(task, argument) for task, argument, _ in found] == [
        (wake_up.FOLLOW_TASK, [1]),
        (wake_up.RELAY_TASK, 7),
        (wake_up.FOLLOW_TASK, [2]),
    ]
