"""Notifications on an event's page: recipient, time and channel of each, or the statement that none was sent."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fleet.notifications.log import of_event
from fleet.notifications.models import Channel
from fleet.notifications.tags import notified_sentence
from fleet.wording.times import API
from tests import factories
from tests.dashboard.conftest import logged_in, text_of
from tests.dashboard.test_every_page_costs_the_same import queries
from tests.factories import Fleet, announced, seconds
from tests.messages.sent import a_channel, a_message, a_post, failed

pytestmark = pytest.mark.django_db


def said(event_pk: int, *, fleet: Fleet, over: bool = False) -> str:
    day = f"{fleet.now:%Y-%m-%d} "
    return (
        notified_sentence(of_event(event_pk, user_id=None, now=fleet.now), API, over=over)
        .replace(day, "")
        .replace(" UTC", "")
    )


def test_line_lists_first_deliveries_and_failures(fleet: Fleet) -> None:
    event = announced(fleet)
    at = fleet.now
    slack, pager, mail = (a_channel(name, at=at) for name in ("#shop-ops", "pager", "mail"))
    a_post(pager, [a_message(event, pager, at=at)], at=at + seconds(1))
    a_post(slack, [a_message(event, slack, at=at)], at=at)
    a_post(slack, [a_message(event, slack, at=at, moment="event.claimed")], at=at + seconds(30))
    a_post(mail, [a_message(event, mail, at=at)], at=at, state="QUEUED", tries=[failed()])
    Channel.objects.filter(pk=mail.pk).update(held_until=at + seconds(60), failing_since=at)
    a_message(event, pager, at=at, moment="event.changed")
    a_message(event, slack, at=at, moment="event.changed")
    first, then, retry = (f"{at + seconds(count):%H:%M:%S}" for count in (1, 2, 60))
    assert said(event.pk, fleet=fleet) == (
        f"Notified {first} #shop-ops, {then} pager; 2 waiting; mail failed, next try {retry}."
    )


def test_retried_delivery_is_no_failure_and_a_given_up_one_is(fleet: Fleet) -> None:
    event = announced(fleet)
    mail, hook = a_channel("mail", at=fleet.now), a_channel("hook", at=fleet.now)
    a_post(mail, [a_message(event, mail, at=fleet.now)], at=fleet.now, tries=[failed(), {"ok": True}])
    a_post(hook, [a_message(event, hook, at=fleet.now)], at=fleet.now, state="GIVEN_UP", tries=[failed()])
    assert said(event.pk, fleet=fleet).endswith(" mail; hook failed and was given up.")


def test_line_states_why_no_notification_was_sent(fleet: Fleet) -> None:
    event = announced(fleet)
    assert said(event.pk, fleet=fleet) == "No notification sent: no channel is configured."
    channel = a_channel(at=fleet.now)
    assert said(event.pk, fleet=fleet) == "No notification sent: no matching route has a channel."
    unrouted = a_message(event, None, at=fleet.now, state="UNROUTED")
    assert said(event.pk, fleet=fleet) == "No notification sent: no route matches."
    unrouted.delete()
    a_message(event, channel, at=fleet.now)
    assert said(event.pk, fleet=fleet) == "No notification sent yet; 1 waiting."
    assert said(event.pk, fleet=fleet, over=True) == "No notification sent."


def test_personal_channel_is_named_by_its_user(fleet: Fleet) -> None:
    event = announced(fleet)
    phone = a_channel("my phone", kind="webpush", at=fleet.now, owner=factories.operator())
    a_post(phone, [a_message(event, phone, at=fleet.now)], at=fleet.now)
    assert said(event.pk, fleet=fleet).endswith(" otto.")


def test_page_shows_the_log_and_escapes_answers() -> None:
    fleet, operator = Fleet(), logged_in(factories.admin())
    event = announced(fleet)
    channel = a_channel("<b>#ops</b>", at=fleet.now)
    a_post(
        channel, [a_message(event, channel, at=fleet.now)], at=fleet.now, state="GIVEN_UP", tries=[failed("<script>x")]
    )
    a_message(event, channel, at=fleet.now, moment="event.changed", state="DROPPED", why="event-over")
    answer = operator.get(f"/events/{event.event_id}/")
    assert "<b>#ops</b> failed and was given up." in text_of(answer).replace("&lt;", "<").replace("&gt;", ">")
    assert b"<script>x" not in answer.content and b"&lt;script&gt;x" in answer.content
    assert "the event was over" in text_of(answer)


def test_number_of_queries_is_fixed(fleet: Fleet) -> None:
    event = announced(fleet)
    channels = [a_channel(f"channel {number}", at=fleet.now) for number in range(3)]
    for number in range(40):
        channel = channels[number % 3]
        at = fleet.now + timedelta(seconds=number)
        a_post(channel, [a_message(event, channel, at=at)], at=at)
    assert len(queries(lambda: of_event(event.pk, user_id=None, now=fleet.now))) == 4
