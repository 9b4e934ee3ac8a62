"""Notification worker under kill -9: every notification arrives, and at most the one in flight arrives twice."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from fleet.notifications import router
from fleet.notifications.models import DeliveryAttempt, Message
from tests.databases import database_named
from tests.factories import Fleet, listing
from tests.messages.walk import a_channel, only
from tests.processes import PYTHON, start, wait_for
from tests.searches import searched

SEED = 20261122
EACH = 3


@dataclass
class Received:
    """What came over HTTP: the id of each POST and the EventIds that it names, in order."""

    posts: list[tuple[str, set[str]]] = field(default_factory=list)

    @property
    def events(self) -> set[str]:
        return {event for _, named in self.posts for event in named}

    @property
    def repeats(self) -> int:
        return len(self.posts) - len({post for post, _ in self.posts})


@contextmanager
def receiver(random: Random) -> Iterator[tuple[str, Received]]:
    """A slow receiver, so that many calls are in flight when a worker is killed."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told = [body, *body["data"].get("items", [])]
            named = {one["data"]["event_id"] for one in told if "event_id" in one["data"]}
            named |= {one["url"].rstrip("/").rpartition("/")[2] for one in body["data"].get("others", [])}
            received.posts.append((self.headers["webhook-id"], named))
            time.sleep(random.uniform(0, 0.1))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """Ignore the error: the sending worker was killed meanwhile."""

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", received
    finally:
        server.shutdown()
        server.server_close()


def _more(received: Received, *, than: int) -> bool:
    return len(received.posts) > than


@pytest.mark.fault
@pytest.mark.django_db(transaction=True)
@searched("rounds", share=1, whole=6, variable="MESSAGE_KILLS")
def test_every_message_arrives_and_only_what_was_in_flight_comes_twice(rounds: int, tmp_path: Path) -> None:
    random, fleet = Random(SEED), Fleet(now=datetime.now(UTC))
    fleet.enrol_set()
    router.route(now=fleet.now, via="test")
    environment = {
        "DATABASE_URL": database_named(connection.settings_dict["NAME"]),
        "EGRESS_ALLOWLIST": "127.0.0.0/8",
        "NOTIFICATION_GROUP_WAIT_SECONDS": "0",
        "NOTIFICATION_GROUP_INTERVAL_SECONDS": "0.1",
    }
    log = tmp_path / "worker.log"
    announced: list[dict[str, Any]] = []

    def announce() -> None:
        fleet.now = datetime.now(UTC)
        announced.extend(listing(str(uuid4()).upper(), resources=["vm1"]) for _ in range(EACH))
        fleet.all_say(*announced)

    with receiver(random) as (url, received):
        a_channel(now=fleet.now, url=url, secret="whsec_" + "c2VjcmV0" * 4)
        only(now=fleet.now, moments=["event.first_seen"])
        for _ in range(rounds):
            more = partial(_more, received, than=len(received.posts))
            worker = start([PYTHON, "-m", "tests.messages.a_worker"], environment=environment, log=log)
            try:
                announce()
                wait_for(more, seconds=60, what=f"a message was delivered: {worker.said()}")
                announce()
                time.sleep(random.uniform(0, 0.6))
            finally:
                worker.kill()
        last = start([PYTHON, "-m", "tests.messages.a_worker"], environment=environment, log=log)
        try:
            waits = Message.objects.filter(state__in=["WAITING", "PACKED"])
            wait_for(lambda: not waits.exists(), seconds=90, what="every message is delivered", every=0.2)
        finally:
            last.kill()
    assert received.events == {one["EventId"] for one in announced}
    assert set(Message.objects.values_list("state", flat=True)) == {"TOLD"}
    assert received.repeats <= rounds
    tries = Counter(map(str, DeliveryAttempt.objects.values_list("delivery_id", flat=True)))
    assert all(tries[post] >= times for post, times in Counter(post for post, _ in received.posts).items())
    sys.stdout.write(
        f"{rounds} kills, {len(announced)} events, {len(received.posts)} posts, {received.repeats} twice\n"
    )
