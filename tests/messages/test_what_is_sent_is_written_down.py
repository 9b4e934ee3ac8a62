"""Delivery log: attempts are recorded before sending, failing channels pause, and no stale notification is sent."""

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

from fleet.notifications import delivery, router
from fleet.notifications.channels.base import Outcome
from fleet.notifications.models import Channel, DeliveryAttempt, Message, MessageDelivery
from fleet.operations.approvals import claims
from tests import receivers
from tests.approvals.racing import thread_group
from tests.databases import database_named
from tests.factories import EVENT, Fleet, acting, announced, listing, operator, seconds
from tests.messages.sent import channel
from tests.messages.walk import Receiver, due_channels, only, routed, send_all, told
from tests.processes import PYTHON, start, wait_for
from tests.searches import searched

pytestmark = pytest.mark.django_db(transaction=True)
AWAY = Outcome(ok=False, again=True, error="connect")


@pytest.fixture
def fleet() -> Fleet:
    """A set of six, one channel and a route for all that happens."""
    fleet = Fleet()
    fleet.enrol_set()
    routed(fleet)
    channel("shop-ops")
    only()
    return fleet


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    receiver = Receiver()
    monkeypatch.setattr(delivery, "kind_of", lambda name: receiver)
    return receiver


def sent_after(fleet: Fleet, *counts: float) -> None:
    for count in counts:
        fleet.later(count)
        fleet.heard()
        send_all(fleet)


def test_first_sighting_is_sent_after_the_group_wait_and_recorded_before(
    fleet: Fleet, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    send = receiver.send

    def look(*given: Any, **named: Any) -> Outcome:
        seen.extend(DeliveryAttempt.objects.values_list("ended_at", "ok"))
        seen.append(MessageDelivery.objects.get().state)
        return send(*given, **named)

    monkeypatch.setattr(receiver, "send", look)
    announced(fleet)
    send_all(fleet)
    assert receiver.moments == []
    sent_after(fleet, 2)
    assert (receiver.moments, seen) == (["event.first_seen"], [(None, None), "SENDING"])
    [attempt] = DeliveryAttempt.objects.all()
    assert (attempt.ok, attempt.status, attempt.number) == (True, 200, 1)
    assert told(state="TOLD") == [("event.first_seen", "shop-ops")]


def test_retries_keep_the_delivery_id(fleet: Fleet, receiver: Receiver) -> None:
    receiver.answers = [AWAY, Outcome(ok=False, again=True, status=429, wait_seconds=600), Outcome(ok=True)]
    announced(fleet)
    sent_after(fleet, *[5] * 4, *[100] * 5)
    # The pause that the receiver requested is kept.
    assert len(receiver.posts) == 2
    sent_after(fleet, 110)
    assert len(receiver.posts) == DeliveryAttempt.objects.count() == 3
    assert len({post.id for _, post in receiver.posts}) == 1
    assert Channel.objects.get().failures == 0


def test_delivery_of_a_killed_sender_is_retried_after_the_lease(fleet: Fleet, receiver: Receiver) -> None:
    receiver.answers = [KeyboardInterrupt(), Outcome(ok=True)]
    announced(fleet)
    routed(fleet)
    fleet.later(2)
    real = delivery.release
    delivery.release = lambda channel_id: None  # a killed worker releases nothing
    try:
        with pytest.raises(KeyboardInterrupt):
            send_all(fleet)
    finally:
        delivery.release = real
    sent_after(fleet, 14)
    assert len(receiver.posts) == 1
    sent_after(fleet, 1)
    assert len({post.id for _, post in receiver.posts}) == 1
    attempts = DeliveryAttempt.objects.order_by("number").values_list("error", "ok")
    assert list(attempts) == [("unknown", None), ("", True)]


def test_retry_drops_what_is_stale(fleet: Fleet, receiver: Receiver) -> None:
    receiver.answers = [AWAY]
    announced(fleet)
    sent_after(fleet, 2, 2)
    fleet.later(60)
    fleet.all_say()
    receiver.answers = [Outcome(ok=True)]
    sent_after(fleet, 10, 10, 10)
    assert receiver.moments[-1] == "event.ended"
    assert receiver.moments.count("event.first_seen") == 1
    assert Message.objects.get(moment="event.first_seen").state == "DROPPED"


@pytest.mark.parametrize(
    "answers",
    [
        [Outcome(ok=False, status=422, error="refused", answer="too odd")],
        # An error of our own costs one delivery.
        [ArithmeticError()] * delivery.MOST_OWN_FAILURES,
    ],
    ids=["refused", "own error"],
)
def test_refused_delivery_does_not_block_the_next(fleet: Fleet, receiver: Receiver, answers: list[Any]) -> None:
    receiver.answers = [*answers, Outcome(ok=True)]
    announced(fleet)
    sent_after(fleet, *[30] * 12)
    claims.claim(event_id=EVENT, actor=acting(operator()), now=fleet.now)
    sent_after(fleet, 60, 60)
    assert told(state="GIVEN_UP") == [("event.first_seen", "shop-ops")]
    assert receiver.moments == ["event.first_seen"] * len(answers) + ["event.claimed"]


def test_failing_channel_is_reported_through_others(fleet: Fleet, receiver: Receiver) -> None:
    receiver.answers = [AWAY]
    announced(fleet)
    sent_after(fleet, *[5] * 8)
    channel("pager")
    routed(fleet)
    assert Channel.objects.get(name="shop-ops").failures >= 3
    receiver.answers = [Outcome(ok=True)]
    sent_after(fleet, *[100] * 4)
    assert ("channel.works", "pager") in told(state="TOLD")


def test_gone_receiver_is_disabled(fleet: Fleet, receiver: Receiver) -> None:
    receiver.answers = [Outcome(ok=False, status=410, gone=True)]
    announced(fleet)
    sent_after(fleet, 2, 2)
    assert not Channel.objects.get().enabled
    assert told(state="GIVEN_UP") == [("event.first_seen", "shop-ops")]


def test_concurrent_senders_send_once(fleet: Fleet, receiver: Receiver) -> None:
    announced(fleet)
    routed(fleet)
    fleet.later(2)
    [channel_id] = due_channels(now=fleet.now)
    with thread_group(6) as group:
        group.at_once(*[partial(delivery.work_off, channel_id, clock=lambda: fleet.now)] * 6)
    assert receiver.moments == ["event.first_seen"]


def test_storm_is_one_delivery_per_interval(fleet: Fleet, receiver: Receiver) -> None:
    many = [listing(f"{EVENT[:-2]}{number:02d}", resources=["vm1"]) for number in range(60)]
    fleet.all_say(*many)
    # Of a document with many events a portion is taken at once, and the rest by the next ticks.
    for _ in range(3):
        fleet.advance()
    routed(fleet)
    sent_after(fleet, 2)
    [(_, post)] = receiver.posts
    assert (post.moment, len(post.items)) == ("group", 60)
    assert MessageDelivery.objects.get().group == "*"
    fleet.all_say(*(dict(one, EventStatus="Started", NotBefore="") for one in many))
    sent_after(fleet, 2, 30)
    assert len(receiver.posts) == 1
    sent_after(fleet, 30)
    assert [post.moment for _, post in receiver.posts] == ["group", "group"]
    assert fleet.now - MessageDelivery.objects.earliest("created_at").created_at >= seconds(60)


# Notification worker under kill -9: every notification arrives, and at most the one in flight arrives twice.


SEED = 20261122
EACH = 3


def events_of(got: receivers.Received) -> set[str]:
    """The EventIds that a request names."""
    body = json.loads(got.body)
    named = {one["data"].get("event_id") for one in (body, *body["data"].get("items", []))} - {None}
    return named | {one["url"].rstrip("/").rpartition("/")[2] for one in body["data"].get("others", [])}


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

    def slowly(got: receivers.Received) -> tuple[int, dict[str, str], bytes]:
        """Answer late, so that many calls are in flight when a worker is killed."""
        time.sleep(random.uniform(0, 0.1))
        return 204, {}, b""

    with receivers.receiver() as there:
        there.answer = slowly
        channel("shop-ops", settings={"url": there.url, "secret": "whsec_" + "c2VjcmV0" * 4})
        only(moments=["event.first_seen"])
        for _ in range(rounds):
            before = len(there.got)
            worker = start([PYTHON, "-m", "tests.messages.a_worker"], environment=environment, log=log)
            try:
                announce()
                what = f"a message was delivered: {worker.said()}"
                wait_for(lambda before=before: len(there.got) > before, seconds=60, what=what)
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
