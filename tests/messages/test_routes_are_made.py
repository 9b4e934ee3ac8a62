"""Routes are made, changed and deleted with an entry each; what a route said when it sent a message stays known."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps

from fleet.domain.reasons import Refused
from fleet.notifications import channel_services, log, route_services
from fleet.notifications.models import Channel, Message, MessageDelivery, Route
from tests import factories
from tests.factories import NOW, acting
from tests.messages.messages import channel, delivered, told
from tests.messages.test_channels_are_made import errors, newest, said
from tests.words import refused, sentence

pytestmark = pytest.mark.django_db
migration = importlib.import_module("fleet.migrations.0013_data_0_2")


@pytest.fixture
def ada(db: None) -> Any:
    Route.objects.all().delete()
    return acting(factories.admin())


def made(actor: Any, own: bool = False, **fields: Any) -> Route:
    return route_services.create(actor=actor, now=NOW, fields={"name": "night", **fields}, own=own)


def test_each_change_is_a_version_with_its_entry(ada: Any) -> None:
    row = made(ada, channel_id=channel("pager").pk, moments=["event.ended", "event.first_seen", "event.ended"])
    assert (row.position, row.version, row.moments) == (1, 1, ["event.ended", "event.first_seen"])
    assert said(newest()) == "ada made the route “night”: To pager: first seen and ended."
    route_services.change(route_id=row.pk, actor=ada, now=NOW, fields={"service": "shop"})
    entry = newest()
    assert said(entry) == "ada changed the route “night”: To pager: first seen and ended; of the service “shop”."
    assert (entry.before, entry.after, entry.data["version"]) == ({"service": ""}, {"service": "shop"}, 2)
    before = entry.pk
    route_services.change(route_id=row.pk, actor=ada, now=NOW, fields={"service": "shop"}, enabled=True)
    assert newest().pk == before
    route_services.change(route_id=row.pk, actor=ada, now=NOW, enabled=False)
    assert said(newest()).startswith("ada switched the route “night” off: ")
    route_services.delete(route_id=row.pk, actor=ada, now=NOW)
    assert said(newest()).startswith("ada deleted the route “night”: ")


def test_what_a_route_said_when_it_sent_a_message_stays_known(ada: Any) -> None:
    hook = channel("pager")
    row = made(ada, channel_id=hook.pk, event_types=["Reboot"])
    first = told(hook, NOW, route=row, route_version=1)
    route_services.change(route_id=row.pk, actor=ada, now=NOW, fields={"event_types": ["Freeze"], "name": "day"})
    second = told(hook, NOW, route=row, route_version=2)
    route_services.delete(route_id=row.pk, actor=ada, now=NOW)
    found = log.sent_by(list(Message.objects.select_related("route", "channel")))
    assert [(found[one.pk].name, sentence(found[one.pk].wording)) for one in (first, second)] == [
        ("night", "To pager: everything; Reboot events."),
        ("day", "To pager: everything; Freeze events."),
    ]


def test_so_does_what_the_ready_made_one_said_before_somebody_changed_it(ada: Any) -> None:
    migration.offer(apps, None)
    row = Route.objects.get()
    message = told(channel("pager"), NOW, route=row, route_version=1)
    rows = Message.objects.select_related("route", "channel")
    before = log.sent_by(list(rows))[message.pk]
    assert sentence(before.wording).startswith("To every channel of the installation: first seen, changed, proposed,")
    route_services.change(route_id=row.pk, actor=ada, now=NOW, fields={"moments": ["event.first_seen"]})
    assert log.sent_by(list(rows))[message.pk] == before


@pytest.mark.parametrize(
    ("fields", "field", "why"),
    [
        ({"name": ""}, "name", "Give it a name"),
        ({"moments": ["event.exploded"]}, "moments", "no moment “event.exploded”"),
        ({"event_types": ["Flood"]}, "event_types", "no event type"),
        ({"severities": ["awful"]}, "severities", "no severity"),
        ({"weekdays": [7]}, "weekdays", "Weekdays are numbers"),
        ({"time_zone": "Mars"}, "time_zone", "no time zone"),
        ({"set_pattern": "x" * 201}, "set_pattern", "A pattern may have"),
        ({"channel_id": 4711}, "channel", "no channel with this id"),
        ({"unclaimed_after_seconds": -1}, "unclaimed_after_seconds", "Give a number of seconds"),
        (
            {"unclaimed_after_seconds": 60, "before_decide_by_seconds": 60},
            "before_decide_by_seconds",
            "goes by one clock",
        ),
        ({"unclaimed_after_seconds": 60, "moments": ["event.ended"]}, "moments", "takes no moments"),
        ({"colour": "red"}, "colour", "no such field"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(ada: Any, fields: Any, field: str, why: str) -> None:
    with pytest.raises(Refused) as caught:
        made(ada, **fields)
    assert why in errors(caught)[field]
    assert not Route.objects.exists()


def test_one_alone_is_told_through_a_channel_of_their_own(ada: Any) -> None:
    vera, otto = acting(factories.viewer()), acting(factories.operator())
    mail, _ = channel_services.create(
        actor=vera, now=NOW, kind="mail", name="mail", values={"recipients": "v@example.org"}, own=True
    )
    with pytest.raises(Refused, match="not-permitted"):
        made(vera)
    for theirs, why in ((channel("hook").pk, "You have no channel"), (None, "through which of your channels")):
        with pytest.raises(Refused) as caught:
            made(vera, own=True, channel_id=theirs)
        assert why in errors(caught)["channel"]
    row = made(vera, own=True, channel_id=mail.pk)
    assert said(newest()).startswith("vera made their own route “night”: To mail: ")
    for actor in (otto, ada):
        with pytest.raises(Refused, match="not-found"):
            route_services.delete(route_id=row.pk, actor=actor, now=NOW)
    with pytest.raises(Refused) as caught:
        made(ada, channel_id=mail.pk)
    assert "channel" in errors(caught)


def test_what_was_told_or_given_up_is_sent_again_under_its_id(ada: Any) -> None:
    hook = channel()
    message = delivered(hook, NOW - timedelta(days=3))
    beside = told(hook, NOW, state="TOLD", delivery=message.delivery)
    assert route_services.redeliver(message_id=message.pk, actor=ada, now=NOW) == str(message.delivery_id)
    delivery = MessageDelivery.objects.get()
    assert (delivery.state, delivery.due_at, delivery.settled_at, delivery.attempts) == ("QUEUED", NOW, None, 1)
    assert {row.state for row in Message.objects.filter(pk__in=[message.pk, beside.pk])} == {"PACKED"}
    assert said(newest()) == "ada had “first seen” sent again through “hook”."
    with refused("still on its way"):
        route_services.redeliver(message_id=message.pk, actor=ada, now=NOW)


def test_what_was_never_sent_is_not_sent_again_and_others_messages_are_not_there(ada: Any) -> None:
    with refused("never sent"):
        route_services.redeliver(message_id=told(None, NOW).pk, actor=ada, now=NOW)
    with refused("never sent"):
        route_services.redeliver(message_id=told(channel(), NOW).pk, actor=ada, now=NOW)
    theirs = delivered(channel("vera's", owner=factories.viewer()), NOW)
    with pytest.raises(Refused, match="not-found"):
        route_services.redeliver(message_id=theirs.pk, actor=ada, now=NOW)
    off = delivered(channel("off", enabled=False), NOW)
    with refused("switched off"):
        route_services.redeliver(message_id=off.pk, actor=ada, now=NOW)
    with pytest.raises(Refused, match="not-permitted"):
        route_services.redeliver(message_id=off.pk, actor=acting(factories.operator()), now=NOW)
    assert Channel.objects.count() == 3
