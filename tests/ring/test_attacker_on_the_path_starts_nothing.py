"""An attacker who controls Redis, the broker and a proxy before the backend: no unapproved event starts."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
import requests

from fleet.celery import app
from fleet.embedded import Urls
from fleet.settings import broker
from tests.processes import wait_for
from tests.receivers import Handler, serving
from tests.ring.ring import Ring, ring

pytestmark = [pytest.mark.flow, pytest.mark.real_time]

MIGRATION = {"set": "west", "type": "Freeze", "resources": ["WestNO_0"], "notice_seconds": 600}
MACHINE = "00000000-0000-4000-8000-000000000000"


class Proxy:
    """Passes every call on to the backend, and puts `forged` orders and keys into its answers."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.forged: list[dict[str, Any]] = []
        self.key_words: list[dict[str, Any]] = []
        # Orders as the backend sent them, to be bent and repeated.
        self.seen: list[dict[str, Any]] = []
        self.drops_orders = False

    def bend(self, content: dict[str, Any]) -> dict[str, Any]:
        """The answer as the machine gets it."""
        self.seen += content.get("orders", [])
        orders = [] if self.drops_orders else content.get("orders", [])
        if "orders" in content:
            content["orders"] = [*self.forged, *orders]
        if "key_words" in content:
            content["key_words"] = [*self.key_words, *content["key_words"]]
        return content


@contextmanager
def on_the_way(backend: str) -> Iterator[tuple[Proxy, str]]:
    """The proxy, and its address."""
    proxy = Proxy(backend)

    class Here(Handler):
        def take(self) -> None:
            body = self.body() if self.command == "POST" else None
            kept = {name: self.headers[name] for name in ("Authorization", "Content-Type") if name in self.headers}
            try:
                answer = requests.request(self.command, backend + self.path, headers=kept, data=body, timeout=70)
            except requests.RequestException:
                self.close_connection = True
                return
            content = json.dumps(proxy.bend(answer.json())).encode()
            self.answer(answer.status_code, content, {"Content-Type": "application/json"})

    with serving(Here) as url:
        yield proxy, url


def order(event_id: str, **more: Any) -> dict[str, Any]:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "id": str(uuid4()), "machine_id": MACHINE, "event_id": event_id, "issued_at": at, "expires_at": None,
        "via": "celery", **more,
    }  # fmt: skip


def owns_redis(it: Ring, event_id: str) -> None:
    """Everything that Redis carries here: wake-ups for machines, streams and approvals, and Celery's tasks."""
    client = redis.Redis.from_url(it.urls.redis)
    for message in (
        {"orders": [1, 2, 3], "via": "celery"},
        {"approval": 1},
        {"orders": [MACHINE], "order": order(event_id)},
        order(event_id),
    ):
        client.publish("drydock:wake-ups", json.dumps(message))
    with app.connection_for_write(broker(it.urls.redis)) as line, line.Producer() as producer:
        for task, arguments in (
            ("fleet.relay.tasks.relay_approval", [1]),
            ("fleet.relay.tasks.relay_approval", [event_id]),
            ("fleet.relay.tasks.advance", []),
        ):
            app.send_task(task, arguments, producer=producer, ignore_result=True)
    client.close()


def test_attacker_with_redis_broker_and_proxy_cannot_start_an_event(own_urls: Urls, tmp_path: Path) -> None:
    with ring(own_urls, tmp_path) as it, on_the_way(it.url) as (proxy, address):
        agent = it.recipes["agent-WestNO_0"]
        agent.environment["DRYDOCK_FLEET_URL"] = address
        agent.environment["DRYDOCK_SIGNED_ORDERS"] = "always"
        it.start("web", "worker", "beat", "agent-WestNO_0")
        it.all_live(1)
        event_id = it.simulator.events.create(**MIGRATION)
        other = it.simulator.events.create(**MIGRATION)
        it.event_when(event_id, "SCHEDULED")
        it.event_when(other, "SCHEDULED")

        owns_redis(it, event_id)
        theirs = {"key": "0" * 16, "value": "A" * 88}
        proxy.key_words = [{"id": "0" * 16, "public_key": "A" * 43 + "=", "retired": False, "by": "0" * 16,
                            "signature": "A" * 88}]  # fmt: skip
        proxy.forged = [order(event_id), order(event_id, signatures=[theirs])]
        refusals = ("unsigned", "bad-signature")

        def said() -> str:
            return it.processes["agent-WestNO_0"].said()

        wait_for(lambda: all(word in said() for word in refusals), seconds=30, what="the agent refuses what is forged")
        assert it.starts() == []

        # A true order is caught on its way, then sent on with another event's id, and to run for ever.
        proxy.drops_orders = True
        it.approve(event_id)
        wait_for(lambda: len(proxy.seen) > 0, seconds=10, what="the proxy has caught the order")
        caught = proxy.seen[0]
        assert caught["signatures"]
        bent = [{"event_id": other}, {"expires_at": None}, {"machine_id": "x"}]
        proxy.forged = [{**caught, "id": str(uuid4())}, *({**caught, "id": str(uuid4()), **change} for change in bent)]
        wait_for(lambda: said().count("bad-signature") >= 4, seconds=30, what="the agent refuses what was bent")
        assert it.starts() == []
        assert it.event(other)["status"] == "SCHEDULED"

        # Let through as it is, it is carried out, once.
        proxy.forged, proxy.drops_orders = [caught, caught], False
        it.event_when(event_id, "STARTED")
        [post] = it.starts()
        assert json.loads(post["body"]) == {"StartRequests": [{"EventId": event_id}]}
