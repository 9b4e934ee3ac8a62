"""Notification worker under kill -9: every notification arrives, and at most the one in flight arrives twice."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
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
from tests.receivers import Received, Receiver, receiver
from tests.searches import searched

SEED = 20261122
EACH = 3


def events_of(got: Received) -> set[str]:
    """The EventIds that a request names."""
    body = json.loads(got.body)
    named = {one["data"].get("event_id") for one in (body, *body["data"].get("items", []))} - {None}
    return named | {one["url"].rstrip("/").rpartition("/")[2] for one in body["data"].get("others", [])}


def _more(there: Receiver, *, than: int) -> bool:
    return len(there.got) > than


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

    def slowly(got: Received) -> tuple[int, dict[str, str], bytes]:
        """Answer late, so that many calls are in flight when a worker is killed."""
        time.sleep(random.uniform(0, 0.1))
        return 204, {}, b""

    with receiver() as there:
        there.answer = slowly
        a_channel(now=fleet.now, url=there.url, secret="whsec_" + "c2VjcmV0" * 4)
        only(now=fleet.now, moments=["event.first_seen"])
        for _ in range(rounds):
            more = partial(_more, there, than=len(there.got))
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
    posts = Counter(got.headers["webhook-id"] for got in there.got)
    repeats = posts.total() - len(posts)
    assert {event for got in there.got for event in events_of(got)} == {one["EventId"] for one in announced}
    assert set(Message.objects.values_list("state", flat=True)) == {"TOLD"}
    assert repeats <= rounds
    tries = Counter(map(str, DeliveryAttempt.objects.values_list("delivery_id", flat=True)))
    assert all(tries[post] >= times for post, times in posts.items())
    sys.stdout.write(f"{rounds} kills, {len(announced)} events, {posts.total()} posts, {repeats} twice\n")
