"""Delivery log: deliveries with every attempt, unsent messages with the reason, and the notifications of an event."""

from dataclasses import replace

import pytest
from django.test import Client

from fleet.models import ScheduledEvent
from fleet.notifications import log
from fleet.notifications.labels import notified_sentence
from fleet.notifications.log import of_event
from fleet.notifications.models import Channel
from fleet.wording.times import API
from tests import factories
from tests.dashboard.conftest import logged_in, states, text_of
from tests.factories import Fleet, announced, seconds
from tests.messages.sent import a_channel, a_message, a_post, a_route, failed

pytestmark = pytest.mark.django_db


@pytest.fixture
def event(fleet: Fleet) -> ScheduledEvent:
    return announced(fleet)


@pytest.fixture
def operator() -> Client:
    """Who also reads what receivers answered."""
    return logged_in(factories.admin())


def names(filters: dict[str, object], fleet: Fleet) -> list[str]:
    """The channels of the posts that a filter leaves."""
    page = log.deliveries(person=factories.viewer(), now=fleet.now, filters=filters)
    return [row.channel.name for row in page.results]


def test_log_filters_by_channel_state_event_and_type(fleet: Fleet, event: ScheduledEvent) -> None:
    slack, mail = a_channel("slack", at=fleet.now), a_channel("mail", kind="mail", at=fleet.now)
    a_post(slack, [a_message(event, slack, at=fleet.now)], at=fleet.now)
    a_post(mail, [], at=fleet.now + seconds(1), state="GIVEN_UP", tries=[failed()])
    both = [a_message(event, slack, at=fleet.now, moment=moment) for moment in ("event.started", "event.ended")]
    a_post(slack, both, at=fleet.now + seconds(2))
    assert names({}, fleet) == ["slack", "mail", "slack"]
    assert names({"channel": mail.pk}, fleet) == ["mail"]
    assert names({"state": ["GIVEN_UP"]}, fleet) == ["mail"]
    assert names({"event": event.event_id.lower()}, fleet) == ["slack", "slack"]
    assert names({"moment": "event.ended"}, fleet) == ["slack"]
    assert names({"moment": "test"}, fleet) == ["mail"]
    assert names({"moment": "group", "channel": mail.pk}, fleet) == []


def test_page_lists_each_attempt_with_its_answer(fleet: Fleet, event: ScheduledEvent, operator: Client) -> None:
    channel = a_channel("hook", kind="webhook", at=fleet.now)
    tries = [failed("<i>busy</i>", status=429), failed("", status=None, error="timeout"), {"ok": True, "status": 204}]
    post = a_post(channel, [a_message(event, channel, at=fleet.now)], at=fleet.now, tries=tries)
    answer = operator.get(f"/messages/log/{post.pk}/")
    text = text_of(answer)
    assert "429" in text and "&lt;i&gt;busy&lt;/i&gt;" in text and "0.5 s 204" in text
    assert b"http-equiv" not in answer.content


def test_open_delivery_refreshes_with_and_without_javascript(fleet: Fleet, operator: Client) -> None:
    post = a_post(a_channel(at=fleet.now), [], at=fleet.now, state="SENDING", tries=[{"ok": None}])
    body = operator.get(f"/messages/log/{post.pk}/").content.decode()
    assert 'data-every="1"' in body and '<noscript><meta http-equiv="refresh" content="3"></noscript>' in body


def test_large_delivery_names_a_few_and_counts_the_rest(fleet: Fleet, event: ScheduledEvent, operator: Client) -> None:
    channel = a_channel(at=fleet.now)
    post = a_post(channel, [a_message(event, channel, at=fleet.now) for _ in range(120)], at=fleet.now)
    (row,) = log.deliveries(person=factories.viewer(), now=fleet.now).results
    assert (row.count, len(row.messages)) == (120, 3)
    assert "120" in text_of(operator.get("/messages/log/"))
    assert len(operator.get(f"/messages/log/{post.pk}/").content) < 100_000


def test_unsent_message_states_the_reason(fleet: Fleet, event: ScheduledEvent, operator: Client) -> None:
    channel, route = a_channel(at=fleet.now), a_route("Night", at=fleet.now)
    a_message(event, channel, at=fleet.now, route=route, data={"route": "Night"}, state="DROPPED", why="event-over")
    a_message(event, None, at=fleet.now, state="UNROUTED")
    a_message(None, channel, at=fleet.now, subject=f"set:{event.availability_set_id}", moment="set.unwatched")
    a_post(channel, [a_message(event, channel, at=fleet.now)], at=fleet.now)
    answer = operator.get("/messages/log/unsent/")
    assert set(states(answer)) >= {"DROPPED", "UNROUTED", "WAITING"}
    assert "Night" in text_of(answer) and "web" in text_of(answer)
    assert len(log.unsent(person=factories.viewer(), filters={"state": ["DROPPED"]}).results) == 1
    assert len(log.unsent(person=factories.viewer(), filters={"channel": channel.pk}).results) == 2


def test_empty_log_and_bad_filters_are_no_error(operator: Client) -> None:
    assert operator.get("/messages/log/").status_code == 200
    for query in ("?channel=x&state=LOST&moment=no", "?channel=99999999999999999999", "?event=nothing"):
        assert operator.get(f"/messages/log/{query}").status_code == 200, query
        assert operator.get(f"/messages/log/unsent/{query}").status_code == 200, query
    assert operator.get("/messages/log/?cursor=nonsense").status_code == 302
    assert operator.get("/messages/log/00000000-0000-4000-8000-000000000000/").status_code == 404


def test_answers_are_shown_to_users_who_may_change_the_channel(fleet: Fleet, event: ScheduledEvent) -> None:
    otto = factories.operator()
    mine, others = (a_channel("mine", at=fleet.now, owner=who) for who in (otto, factories.viewer()))
    shared = a_channel("shared", at=fleet.now)
    posts_of = {
        row: a_post(row, [a_message(event, row, at=fleet.now)], at=fleet.now, tries=[failed(f"secret of {row.pk}")])
        for row in (mine, others, shared)
    }
    client = logged_in(otto)
    seen = client.get("/messages/log/").content.decode() + client.get(f"/events/{event.event_id}/").content.decode()
    assert f"secret of {mine.pk}" in seen
    assert f"secret of {others.pk}" not in seen and f"secret of {shared.pk}" not in seen
    assert client.get(f"/messages/log/{posts_of[others].pk}/").status_code == 404
    hidden = client.get(f"/messages/log/{posts_of[shared].pk}/")
    assert (hidden.status_code, f"secret of {shared.pk}" in hidden.content.decode()) == (200, False)


def said(event_pk: int, *, fleet: Fleet, over: bool = False) -> str:
    text = notified_sentence(of_event(event_pk, person=factories.viewer()), replace(API, now=fleet.now), over=over)
    return text.replace(f"{fleet.now:%Y-%m-%d} ", "").replace(" UTC", "")


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


def test_retried_delivery_is_no_failure_and_a_given_up_one_is(fleet: Fleet, event: ScheduledEvent) -> None:
    mail, hook = a_channel("mail", at=fleet.now), a_channel("hook", at=fleet.now)
    a_post(mail, [a_message(event, mail, at=fleet.now)], at=fleet.now, tries=[failed(), {"ok": True}])
    a_post(hook, [a_message(event, hook, at=fleet.now)], at=fleet.now, state="GIVEN_UP", tries=[failed()])
    assert said(event.pk, fleet=fleet).endswith(" mail; hook failed and was given up.")
    # A personal channel is named by its user.
    phone = a_channel("my phone", kind="webpush", at=fleet.now, owner=factories.operator())
    a_post(phone, [a_message(event, phone, at=fleet.now)], at=fleet.now)
    assert " otto," in said(event.pk, fleet=fleet)


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
