"""Notification types from end to end: each happens, is recorded, and has its text in mail and pager."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from fleet.accounts import logins
from fleet.domain.states import EventStatus
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, AvailabilitySet, Order
from fleet.notifications.models import Message
from fleet.notifications.news import MessageNews, news_of
from fleet.notifications.notification_types import SILENCEABLE, STEPS, NotificationType, why_stale
from fleet.notifications.text import group_words, message_words
from fleet.notifications.text import test_words as words_of_a_try
from fleet.operations import blind_spots
from fleet.operations.approvals import claims, conditions
from fleet.operations.orders import advance
from fleet.projections.events.rows import ClaimRow
from fleet.wording.times import Form, Reader, one_line
from tests import factories
from tests.approvals.asking import hook
from tests.caches.walking import EXAMPLE, Listeners
from tests.factories import EVENT, Fleet, acting, announced, listing, operator, seconds, the_event
from tests.messages.telling import a_channel, a_message, news
from tests.rows import PersonFactory

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


def proposed(fleet: Fleet) -> Approval:
    AvailabilitySet.objects.update(second_person=True)
    return fleet.approve(comment="it is night")


def decided(fleet: Fleet) -> None:
    conditions.consent(approval_id=proposed(fleet).pk, actor=acting(factories.approver()), now=fleet.now)


def withdrawn(fleet: Fleet) -> None:
    conditions.withdraw(approval_id=proposed(fleet).pk, actor=acting(operator(), why="not yet"), now=fleet.now)


def overdue(fleet: Fleet) -> None:
    fleet.approve()
    fleet.later(60)
    fleet.heard()


def refused(fleet: Fleet) -> None:
    approval = fleet.approve()
    while Order.objects.filter(state__in=("OFFERED", "DELIVERED")).exists():
        order = factories.open_order(approval)
        fleet.delivered(order)
        fleet.receipt(order, status=400, outcome="refused", reason="no such event")
        advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")


def started(fleet: Fleet) -> None:
    factories.accepted(fleet, event_type="Reboot")
    fleet.later(10)
    fleet.all_say(listing(event_type="Reboot", status="Started", resources=("vm1", "vm2")))


def prepare_failed(fleet: Fleet) -> None:
    hook(fleet, "vm2", EVENT, "end", "failed", output="The folder can be written by everybody.")


def recovered(fleet: Fleet, outcome: str) -> None:
    factories.freeze_completed(fleet)
    hook(fleet, "vm2", EVENT, "end", outcome, phase="recover")


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
    "ended": (Fleet, factories.freeze_completed, EntryKind.EVENT_ENDED),
    "prepare failed": (shop, prepare_failed, EntryKind.HOOKS_ENDED),
    "recover failed": (Fleet, partial(recovered, outcome="timed-out"), EntryKind.HOOKS_ENDED),
    "a machine that serves again": (Fleet, partial(recovered, outcome="succeeded"), EntryKind.HOOKS_ENDED),
    "an event without a live agent": (shop, unwatched_event, EntryKind.EVENT_UNWATCHED),
    "machines that no longer report": (two_sets, lambda fleet: looked(fleet, *WEB, "db1"), EntryKind.SOURCE_QUIET),
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


# Hostile names, many at once, and what has moved on since: a message stays a message.


HOSTILE = [
    "vm1\nSeverity: info.",
    "<script>alert(1)</script>",
    "vm\x00\x1b[31m\u202ered\u2066\u200b",
    "x" * 5000,
    "\u2028" * 300 + "end",
    "{at:time} %s $(reboot) `reboot`",
    "*_~<!channel> @everyone [a](http://b)",
]


def reader(fleet: Fleet) -> Reader:
    return Reader(ZoneInfo("America/St_Johns"), Form.MESSAGE, fleet.now)


def hostile(told: MessageNews, name: str, **fields: Any) -> MessageNews:
    assert told.event is not None and told.card is not None
    named: dict[str, Any] = {"resources": (name,) * 9, "set": replace(told.event.set, name=name), "event_type": name}
    event = replace(told.event, **named, **fields)
    return replace(told, event=event, card=replace(told.card, event=event), service=name, first=(name, (name,)))


def test_hostile_names_break_no_line_limit_or_deadline(fleet: Fleet) -> None:
    announced(fleet)
    first = news(a_message(EntryKind.EVENT_SEEN, now=fleet.now), now=fleet.now)
    for name in HOSTILE:
        told = hostile(first, name)
        words = message_words(told, reader(fleet))
        for line in (words.title, words.subject, words.short, *words.lines):
            assert line == one_line(line, 1000) and len(line) <= 600
        assert len(words.short) <= 160 and "decide by" in words.short and "UTC" in words.short
        digest = group_words([replace(told, subject=f"event:{number}") for number in range(50)], reader(fleet))
        assert len(digest.short) <= 160 and all(line == one_line(line, 1000) for line in digest.lines)


def test_digest_of_a_thousand_is_as_short_as_of_twenty(fleet: Fleet) -> None:
    announced(fleet, event_type="Reboot")
    told = news(a_message(EntryKind.EVENT_SEEN, now=fleet.now), now=fleet.now)
    assert told.deadline is not None
    many = []
    for number in range(1000):
        severity, due = "warning" if number % 5 else "critical", told.deadline - timedelta(seconds=number % 60)
        subject, service = f"event:{number}", f"service {number % 30}"
        many.append(replace(told, subject=subject, service=service, severity=severity, deadline=due))
    words = group_words(many, replace(reader(fleet), zone=ZoneInfo("UTC")))
    assert words.title == "1000 events, decide the first by 22:25:58 UTC"
    head = ("Severity: 200 critical, 800 warning.", "event announced: 1000.", "service 0: 34 Reboot.")
    assert (words.lines[1:4], words.lines[-1]) == (head, "And 990 more, on the page.")
    assert words.short == (
        "1000 events in service 29, service 28 and 28 more, decide the first by 22:25:58 UTC."
        " 200 critical, 800 warning."
    )
    assert len(words.lines) <= min(26, len(group_words(many[:40], reader(fleet)).lines) + 2)


def test_several_messages_of_one_subject_show_the_newest_and_the_history(fleet: Fleet) -> None:
    announced(fleet)
    messages = [a_message(EntryKind.EVENT_SEEN, now=fleet.now)]
    claims.claim(**by_otto(fleet, ""))
    messages.append(a_message(EntryKind.EVENT_CLAIMED, now=fleet.now))
    words = group_words([news(message, now=fleet.now) for message in messages], reader(fleet))
    assert words.title.startswith("Claimed by otto: Freeze of vm1, vm2 in web")
    assert words.lines[-1] == "What happened: event announced, event claimed."


def test_drill_is_labelled_first(fleet: Fleet) -> None:
    announced(fleet)
    told = hostile(news(a_message(EntryKind.EVENT_SEEN, now=fleet.now), now=fleet.now), "x", drill=True)
    words = message_words(replace(told, drill=True), reader(fleet))
    assert all(text.startswith("DRILL: ") for text in (words.title, words.subject, words.short))
    assert "Azure is not involved" in " ".join(words.lines)


def test_mail_subject_never_changes(fleet: Fleet) -> None:
    announced(fleet, event_type="Reboot")
    first = message_words(news(a_message(EntryKind.EVENT_SEEN, now=fleet.now), now=fleet.now), reader(fleet))
    fleet.later(5)
    fleet.all_say(listing(event_type="Redeploy", resources=("vm2", "vm3"), not_before=fleet.now + seconds(300)))
    then = message_words(news(a_message(EntryKind.EVENT_CHANGED, now=fleet.now), now=fleet.now), reader(fleet))
    assert (first.subject, first.title == then.title) == (then.subject, False)


def test_test_notification_states_that_it_is_a_test(fleet: Fleet) -> None:
    words = words_of_a_try(reader(fleet))
    assert words.lines[-1] == "Sent at 2022-04-11 19:42:00 NDT (22:12:00 UTC)."
    assert len(words.short) <= 160


def stale(fleet: Fleet, *messages: Message) -> list[str]:
    return [news(message, now=fleet.now).stale for message in messages]


def test_message_is_stale_once_its_event_has_moved_on(fleet: Fleet) -> None:
    announced(fleet, event_type="Reboot")
    told = news(a_message(EntryKind.EVENT_SEEN, now=fleet.now), now=fleet.now)
    assert told.event is not None
    over, decided, silenced = {"status": EventStatus.ENDED}, {"needs_decision": False}, {"silenced_until": fleet.now}
    claimed = {"claim": ClaimRow("otto", fleet.now, "")}
    cases: tuple[tuple[NotificationType, dict[str, Any], str, str], ...] = (
        (NotificationType.FIRST_SEEN, {}, "warning", ""),
        (NotificationType.FIRST_SEEN, over, "warning", "event-over"),
        (NotificationType.PREPARE_FAILED, over, "warning", "event-over"),
        (NotificationType.RECOVER_FAILED, over, "warning", ""),
        (NotificationType.ENDED, over, "warning", ""),
        (NotificationType.ENDED, {}, "warning", "event-open-again"),
        (NotificationType.UNCLAIMED, claimed, "warning", "claimed"),
        (NotificationType.UNDECIDED, claimed, "warning", ""),
        *((step, decided, "warning", "decided") for step in STEPS),
        *((moment, silenced, "warning", "silenced") for moment in SILENCEABLE),
        # What is critical, what a user has done, and what has failed is not held back.
        (NotificationType.FIRST_SEEN, silenced, "critical", ""),
        (NotificationType.RECOVER_FAILED, silenced, "warning", ""),
        (NotificationType.WITHDRAWN, silenced, "warning", ""),
    )
    for moment, changes, severity, code in cases:
        changed = replace(told, moment=moment, severity=severity, event=replace(told.event, **changes))
        assert why_stale(changed) == code, (moment, changes)


def test_older_change_is_superseded_in_the_same_channel(fleet: Fleet) -> None:
    announced(fleet)
    messages: list[Message] = []
    for due, names in ((600, ("ops", "night")), (500, ("ops",))):
        fleet.later(1)
        fleet.all_say(listing(not_before=fleet.now + seconds(due), resources=("vm1", "vm2")))
        kind = EntryKind.EVENT_CHANGED
        messages += [a_message(kind, now=fleet.now, channel=a_channel(name)) for name in names]
    assert stale(fleet, *messages) == ["superseded", "", ""]


def test_silence_of_a_set_ends_at_its_time(fleet: Fleet) -> None:
    announced(fleet, event_type="Reboot")
    first = a_message(EntryKind.EVENT_SEEN, now=fleet.now)
    claims.silence(**by_otto(fleet, ""), whole_set=True, until=fleet.now + timedelta(minutes=1))
    assert stale(fleet, first) == ["silenced"]
    fleet.later(60)
    assert stale(fleet, first) == [""]


def test_claim_that_was_assigned_is_reported_while_it_lasts(fleet: Fleet) -> None:
    announced(fleet)
    factories.approver()
    claims.claim(**by_otto(fleet, "you know it"), assign_to="anna")
    assigned = a_message(EntryKind.EVENT_CLAIMED, now=fleet.now)
    assert stale(fleet, assigned) == [""]
    claims.claim(**by_otto(fleet, ""), take_over=True)
    assert stale(fleet, assigned) == ["claim-ended"]


def test_withdrawn_proposal_and_answered_order_are_stale(fleet: Fleet) -> None:
    announced(fleet)
    AvailabilitySet.objects.update(second_person=True)
    approval = fleet.approve()
    proposed = a_message(EntryKind.APPROVAL_PROPOSED, now=fleet.now)
    assert stale(fleet, proposed) == [""]
    conditions.withdraw(approval_id=approval.pk, actor=acting(operator(), why="no"), now=fleet.now)
    AvailabilitySet.objects.update(second_person=False)
    approval = fleet.approve()
    overdue = a_message(EntryKind.APPROVAL_GRANTED, now=fleet.now, moment=NotificationType.OVERDUE)
    assert stale(fleet, proposed, overdue) == ["decided", ""]
    fleet.receipt(approval.orders.get())
    assert stale(fleet, overdue) == ["answered"]


def test_number_of_queries_is_fixed(fleet: Fleet, django_assert_max_num_queries: Any) -> None:
    announced(fleet)
    messages = [a_message(EntryKind.EVENT_SEEN, now=fleet.now, channel=a_channel(f"c{n}")) for n in range(12)]
    with django_assert_max_num_queries(22):
        assert len(news_of([message.pk for message in messages], now=fleet.now)) == 12
    with django_assert_max_num_queries(22):
        news_of([messages[0].pk], now=fleet.now)


def test_link_leads_to_the_card_after_sign_in(fleet: Fleet, client: Client) -> None:
    announced(fleet)
    path = message_words(news(a_message(EntryKind.EVENT_SEEN, now=fleet.now), now=fleet.now), reader(fleet)).path
    PersonFactory(username="otto", groups=["operator"])
    # Opening it, as scanners of mail do, does nothing.
    before, asked = the_event().version, client.get(path)
    assert (asked.status_code, the_event().version, the_event().approvals.count()) == (302, before, 0)
    landed = client.post(asked["Location"], {"login": "otto", "password": "harbour-otto"}, follow=True)
    assert landed.redirect_chain[-1][0] == path
    assert "decide-stays" in landed.content.decode()
