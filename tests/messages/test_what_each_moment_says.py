"""Notification types from end to end: each happens, is recorded, and has its text in mail and pager."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fleet.accounts import logins
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Order
from fleet.notifications.models import Message
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.text import message_words
from fleet.operations import blind_spots
from fleet.operations.approvals import claims, conditions
from fleet.operations.orders import advance
from fleet.wording.times import Form, Reader
from tests.caches.walking import EXAMPLE, Listeners
from tests.factories import (
    Fleet,
    accepted,
    acting,
    announced,
    approver,
    freeze_completed,
    listing,
    open_order,
    operator,
    seconds,
    the_event,
)
from tests.messages.telling import a_message, news

pytestmark = pytest.mark.django_db
WEB = ("vm1", "vm2")
WRITTEN = Path(__file__).parent / "what_each_moment_says.txt"


def said(fleet: Fleet, message: Message) -> str:
    """Return the mail and the pager text for a reader in Berlin, under a heading with every name."""
    told = news(message, now=fleet.now)
    words = message_words(told, Reader(ZoneInfo("Europe/Berlin"), Form.MESSAGE, fleet.now))
    assert told.stale == "", told.stale
    assert len(words.short) <= 160
    assert words.lines[0] == words.title
    mail = "\n".join(f"    {line}" for line in words.lines)
    path, subject = re.sub(r"/\d+/$", "/N/", words.path), re.sub(r"^(Maintenance) \d+", r"\1 N", words.subject)
    return f"  subject: {subject}\n{mail}\n  pager: {words.short}\n  leads to: {path}"


def shop() -> Fleet:
    fleet = Fleet()
    announced(fleet, event_type="Reboot")
    AvailabilitySet.objects.update(service="shop", min_live=5)
    fleet.later(5)
    return fleet


def changed(fleet: Fleet) -> None:
    fleet.all_say(listing(event_type="Redeploy", resources=("vm1", "vm2"), not_before=fleet.now + seconds(300)))


def by_otto(fleet: Fleet, why: str) -> dict[str, Any]:
    return {"event_id": the_event().event_id, "actor": acting(operator(), why=why), "now": fleet.now}


def proposed(fleet: Fleet) -> None:
    AvailabilitySet.objects.update(second_person=True)
    fleet.approve(comment="it is night")


def decided(fleet: Fleet) -> None:
    AvailabilitySet.objects.update(second_person=True)
    approval = fleet.approve(comment="it is night")
    conditions.consent(approval_id=approval.pk, actor=acting(approver()), now=fleet.now)


def withdrawn(fleet: Fleet) -> None:
    AvailabilitySet.objects.update(second_person=True)
    approval = fleet.approve()
    conditions.withdraw(approval_id=approval.pk, actor=acting(operator(), why="not yet"), now=fleet.now)


def overdue(fleet: Fleet) -> None:
    fleet.approve()
    fleet.later(60)
    fleet.heard()


def refused(fleet: Fleet) -> None:
    approval = fleet.approve()
    while Order.objects.filter(state__in=("OFFERED", "DELIVERED")).exists():
        order = open_order(approval)
        fleet.delivered(order)
        fleet.receipt(order, status=400, outcome="refused", reason="no such event")
        advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")


def started(fleet: Fleet) -> None:
    accepted(fleet, event_type="Reboot")
    fleet.later(10)
    fleet.all_say(listing(event_type="Reboot", status="Started", resources=("vm1", "vm2")))


def unwatched_event(fleet: Fleet) -> None:
    fleet.later(120)
    fleet.advance()


def looked(fleet: Fleet, *heard: str) -> None:
    for _ in range(26):
        fleet.later(30)
        fleet.heard(*heard)
        blind_spots.compare(now=fleet.now, via="beat")


def two_sets() -> Fleet:
    fleet = Fleet()
    fleet.enrol_set(2)
    fleet.enrol_set(2, prefix="db", availability_set="db")
    blind_spots.compare(now=fleet.now, via="beat")
    return fleet


def coverage_closed(fleet: Fleet) -> None:
    looked(fleet, *WEB)
    looked(fleet)


def maintenance(listeners: Listeners, upto: int = 1) -> None:
    listeners.enrol("vm1")
    listeners.cover("vm1", "subscribed", tier="basic")
    listeners.play("vm1", upto=upto)


def your_account(fleet: Fleet) -> None:
    otto = operator()
    logins.know_device(user=otto, device="", now=fleet.now, actor=acting(otto), way="passkey", agent="Firefox/1 Linux")


# The fleet at the beginning, what happens, and the kind of entry that is reported.
MOMENTS: dict[str, tuple[Callable[[], Any], Callable[[Any], object], EntryKind]] = {
    "first seen": (shop, lambda fleet: None, EntryKind.EVENT_SEEN),
    "changed": (shop, changed, EntryKind.EVENT_CHANGED),
    "claimed": (shop, lambda fleet: claims.claim(**by_otto(fleet, "I look")), EntryKind.EVENT_CLAIMED),
    "proposed": (shop, proposed, EntryKind.APPROVAL_PROPOSED),
    "decided": (shop, decided, EntryKind.APPROVAL_CONSENTED),
    "left to Azure": (shop, lambda fleet: claims.hold(**by_otto(fleet, "the shop is open")), EntryKind.EVENT_HELD),
    "withdrawn": (shop, withdrawn, EntryKind.APPROVAL_WITHDRAWN),
    "overdue": (shop, overdue, EntryKind.APPROVAL_GRANTED),
    "refused": (shop, refused, EntryKind.APPROVAL_REFUSED),
    "started": (Fleet, started, EntryKind.EVENT_STARTED),
    "ended": (Fleet, freeze_completed, EntryKind.EVENT_ENDED),
    "an event without a live agent": (shop, unwatched_event, EntryKind.EVENT_UNWATCHED),
    "machines that no longer report": (
        two_sets,
        lambda fleet: looked(fleet, *WEB, "db1"),
        EntryKind.SOURCE_QUIET,
    ),
    "a set without a live agent": (two_sets, lambda fleet: looked(fleet, *WEB), EntryKind.SET_UNWATCHED),
    "a blind spot resolved": (two_sets, coverage_closed, EntryKind.COVERAGE_CLOSED),
    "cache maintenance announced": (Listeners, maintenance, EntryKind.MAINTENANCE_SCHEDULED),
    "cache maintenance ended": (Listeners, partial(maintenance, upto=len(EXAMPLE)), EntryKind.MAINTENANCE_ENDED),
    "your account": (Fleet, your_account, EntryKind.NEW_DEVICE),
}


def written() -> dict[str, str]:
    parts = re.split(r"^== (.+)\n", WRITTEN.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (part.rstrip() for part in parts[1::2]), strict=True))


@pytest.mark.parametrize("name", MOMENTS)
def test_text_matches_the_snapshot(name: str) -> None:
    begin, happens, kind = MOMENTS[name]
    fleet = begin()
    happens(fleet)
    moment = NotificationType.OVERDUE if name == "overdue" else None
    assert said(fleet, a_message(kind, now=fleet.now, moment=moment)) == written()[name]


def test_snapshot_has_no_unused_text() -> None:
    assert list(written()) == list(MOMENTS)
