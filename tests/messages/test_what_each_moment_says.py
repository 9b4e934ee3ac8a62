"""Notification types from end to end: each happens, is recorded, and has its text in mail and pager."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from fleet.accounts import logins
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Entry, Order
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


def first_seen() -> str:
    fleet = shop()
    return said(fleet, a_message(EntryKind.EVENT_SEEN, now=fleet.now))


def changed() -> str:
    fleet = shop()
    fleet.all_say(listing(event_type="Redeploy", resources=("vm1", "vm2"), not_before=fleet.now + seconds(300)))
    return said(fleet, a_message(EntryKind.EVENT_CHANGED, now=fleet.now))


def claimed() -> str:
    fleet = shop()
    claims.claim(event_id=the_event().event_id, actor=acting(operator(), why="I look"), now=fleet.now)
    return said(fleet, a_message(EntryKind.EVENT_CLAIMED, now=fleet.now))


def proposed() -> str:
    fleet = shop()
    AvailabilitySet.objects.update(second_person=True)
    fleet.approve(comment="it is night")
    return said(fleet, a_message(EntryKind.APPROVAL_PROPOSED, now=fleet.now))


def decided() -> str:
    fleet = shop()
    AvailabilitySet.objects.update(second_person=True)
    approval = fleet.approve(comment="it is night")
    conditions.consent(approval_id=approval.pk, actor=acting(approver()), now=fleet.now)
    return said(fleet, a_message(EntryKind.APPROVAL_CONSENTED, now=fleet.now))


def left_to_azure() -> str:
    fleet = shop()
    claims.hold(event_id=the_event().event_id, actor=acting(operator(), why="the shop is open"), now=fleet.now)
    return said(fleet, a_message(EntryKind.EVENT_HELD, now=fleet.now))


def withdrawn() -> str:
    fleet = shop()
    AvailabilitySet.objects.update(second_person=True)
    approval = fleet.approve()
    conditions.withdraw(approval_id=approval.pk, actor=acting(operator(), why="not yet"), now=fleet.now)
    return said(fleet, a_message(EntryKind.APPROVAL_WITHDRAWN, now=fleet.now))


def overdue() -> str:
    fleet = shop()
    fleet.approve()
    message = a_message(EntryKind.APPROVAL_GRANTED, now=fleet.now, moment=NotificationType.OVERDUE)
    fleet.later(60)
    fleet.heard()
    return said(fleet, message)


def refused() -> str:
    fleet = shop()
    approval = fleet.approve()
    while Order.objects.filter(state__in=("OFFERED", "DELIVERED")).exists():
        order = open_order(approval)
        fleet.delivered(order)
        fleet.receipt(order, status=400, outcome="refused", reason="no such event")
        advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    return said(fleet, a_message(EntryKind.APPROVAL_REFUSED, now=fleet.now))


def started() -> str:
    fleet = Fleet()
    accepted(fleet, event_type="Reboot")
    fleet.later(10)
    fleet.all_say(listing(event_type="Reboot", status="Started", resources=("vm1", "vm2")))
    return said(fleet, a_message(EntryKind.EVENT_STARTED, now=fleet.now))


def ended() -> str:
    fleet = Fleet()
    freeze_completed(fleet)
    return said(fleet, a_message(EntryKind.EVENT_ENDED, now=fleet.now))


def unwatched_event() -> str:
    fleet = shop()
    fleet.later(120)
    fleet.advance()
    return said(fleet, a_message(EntryKind.EVENT_UNWATCHED, now=fleet.now))


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


def source_quiet() -> str:
    fleet = two_sets()
    looked(fleet, "vm1", "vm2", "db1")
    return said(fleet, a_message(EntryKind.SOURCE_QUIET, now=fleet.now))


def set_unwatched() -> str:
    fleet = two_sets()
    looked(fleet, "vm1", "vm2")
    return said(fleet, a_message(EntryKind.SET_UNWATCHED, now=fleet.now))


def coverage_closed() -> str:
    fleet = two_sets()
    looked(fleet, "vm1", "vm2")
    looked(fleet)
    return said(fleet, a_message(EntryKind.COVERAGE_CLOSED, now=fleet.now))


def maintenance(upto: int, kind: EntryKind) -> str:
    listeners = Listeners()
    listeners.enrol("vm1")
    listeners.cover("vm1", "subscribed", tier="basic")
    listeners.play("vm1", upto=upto)
    assert Entry.objects.filter(kind=kind.value).exists()
    return said(listeners, a_message(kind, now=listeners.now))


def your_account() -> str:
    otto, fleet = operator(), Fleet()
    logins.know_device(user=otto, device="", now=fleet.now, actor=acting(otto), way="passkey", agent="Firefox/1 Linux")
    return said(fleet, a_message(EntryKind.NEW_DEVICE, now=fleet.now))


MOMENTS: dict[str, Callable[[], str]] = {
    "first seen": first_seen,
    "changed": changed,
    "claimed": claimed,
    "proposed": proposed,
    "decided": decided,
    "left to Azure": left_to_azure,
    "withdrawn": withdrawn,
    "overdue": overdue,
    "refused": refused,
    "started": started,
    "ended": ended,
    "an event without a live agent": unwatched_event,
    "machines that no longer report": source_quiet,
    "a set without a live agent": set_unwatched,
    "a blind spot resolved": coverage_closed,
    "cache maintenance announced": lambda: maintenance(1, EntryKind.MAINTENANCE_SCHEDULED),
    "cache maintenance ended": lambda: maintenance(len(EXAMPLE), EntryKind.MAINTENANCE_ENDED),
    "your account": your_account,
}


def written() -> dict[str, str]:
    parts = re.split(r"^== (.+)\n", WRITTEN.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (part.rstrip() for part in parts[1::2]), strict=True))


@pytest.mark.parametrize("name", MOMENTS)
def test_text_matches_the_snapshot(name: str) -> None:
    assert MOMENTS[name]() == written()[name]


def test_snapshot_has_no_unused_text() -> None:
    assert list(written()) == list(MOMENTS)
