"""Routes are made, changed and deleted with an entry each; what a route said when it sent a message stays known."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps

from fleet.domain.reasons import Refused
from fleet.notifications import log, route_services
from fleet.notifications.models import Channel, Message, MessageDelivery, Route
from fleet.notifications.route_services import RouteChangeSerializer, RouteRequestSerializer
from tests import factories
from tests.factories import NOW, acting
from tests.messages.messages import channel, delivered, told
from tests.messages.test_channels_are_made import errors, newest
from tests.words import refused

pytestmark = pytest.mark.django_db
migration = importlib.import_module("fleet.migrations.0013_data_0_2")


@pytest.fixture
def ada(db: None) -> Any:
    Route.objects.all().delete()
    return acting(factories.admin())


def made(actor: Any, own: bool = False, **fields: Any) -> Route:
    sent = RouteRequestSerializer(data={"name": "night", **fields})
    return route_services.create(sent, actor=actor, now=NOW, own=own)


def changed(actor: Any, row: Route, **fields: Any) -> None:
    route_services.change(RouteChangeSerializer(data=fields), route_id=row.pk, actor=actor, now=NOW)


def test_each_change_is_a_version_with_its_entry(ada: Any) -> None:
    row = made(ada, channel=channel("pager").pk, moments=["event.ended", "event.first_seen", "event.ended"])
    assert (row.position, row.version, row.moments) == (1, 1, ["event.ended", "event.first_seen"])
    assert newest().kind == "route_created"
    changed(ada, row, service="shop")
    entry = newest()
    assert (entry.before, entry.after, entry.data["version"]) == ({"service": ""}, {"service": "shop"}, 2)
    before = entry.pk
    changed(ada, row, service="shop", enabled=True)
    assert newest().pk == before
    changed(ada, row, enabled=False)
    assert newest().after == {"enabled": False}
    route_services.delete(route_id=row.pk, actor=ada, now=NOW)
    assert newest().kind == "route_deleted"


def test_what_a_route_said_when_it_sent_a_message_stays_known(ada: Any) -> None:
    hook = channel("pager")
    row = made(ada, channel=hook.pk, event_types=["Reboot"])
    first = told(hook, NOW, route=row, route_version=1)
    changed(ada, row, event_types=["Freeze"], name="day")
    second = told(hook, NOW, route=row, route_version=2)
    route_services.delete(route_id=row.pk, actor=ada, now=NOW)
    found = log.sent_by(list(Message.objects.select_related("route", "channel")))
    assert [(found[one.pk].name, found[one.pk].wording.values["event_types"]) for one in (first, second)] == [
        ("night", ["Reboot"]),
        ("day", ["Freeze"]),
    ]


def test_changed_default_route_keeps_its_former_wording_for_old_messages(ada: Any) -> None:
    migration.offer(apps, None)
    row = Route.objects.get()
    message = told(channel("pager"), NOW, route=row, route_version=1)
    rows = Message.objects.select_related("route", "channel")
    before = log.sent_by(list(rows))[message.pk]
    assert len(before.wording.values["moments"]) > 3
    changed(ada, row, moments=["event.first_seen"])
    assert log.sent_by(list(rows))[message.pk] == before


def test_what_makes_no_sense_is_refused_at_its_field(ada: Any) -> None:
    faults: tuple[tuple[dict[str, Any], str], ...] = (
        ({"name": ""}, "name"),
        ({"moments": ["event.exploded"]}, "moments"),
        ({"event_types": ["Flood"]}, "event_types"),
        ({"severities": ["awful"]}, "severities"),
        ({"weekdays": [7]}, "weekdays"),
        ({"time_zone": "Mars"}, "time_zone"),
        ({"set_pattern": "x" * 201}, "set_pattern"),
        ({"channel": 4711}, "channel"),
        ({"unclaimed_after_seconds": -1}, "unclaimed_after_seconds"),
        ({"unclaimed_after_seconds": 60, "before_decide_by_seconds": 60}, "before_decide_by_seconds"),
        ({"unclaimed_after_seconds": 60, "moments": ["event.ended"]}, "moments"),
        ({"colour": "red"}, "colour"),
    )
    for fields, field in faults:
        with pytest.raises(Refused) as caught:
            made(ada, **fields)
        assert field in errors(caught), fields
    assert not Route.objects.exists()


def test_private_route_uses_only_the_users_own_channel(ada: Any) -> None:
    vera, otto = acting(factories.viewer()), acting(factories.operator())
    mail = channel("mail", kind="mail", owner=vera.person)
    with pytest.raises(Refused, match="not-permitted"):
        made(vera)
    for theirs in (channel("hook").pk, None):
        with pytest.raises(Refused) as caught:
            made(vera, own=True, channel=theirs)
        assert "channel" in errors(caught)
    row = made(vera, own=True, channel=mail.pk)
    assert newest().data["own"] is True
    for actor in (otto, ada):
        with pytest.raises(Refused, match="not-found"):
            route_services.delete(route_id=row.pk, actor=actor, now=NOW)
    with pytest.raises(Refused) as caught:
        made(ada, channel=mail.pk)
    assert "channel" in errors(caught)


def test_sent_or_abandoned_message_is_resent_under_its_id(ada: Any) -> None:
    hook = channel()
    message = delivered(hook, NOW - timedelta(days=3))
    second = told(hook, NOW, state="TOLD", delivery=message.delivery)
    assert route_services.redeliver(message_id=message.pk, actor=ada, now=NOW) == str(message.delivery_id)
    delivery = MessageDelivery.objects.get()
    assert (delivery.state, delivery.due_at, delivery.settled_at, delivery.attempts) == ("QUEUED", NOW, None, 1)
    assert {row.state for row in Message.objects.filter(pk__in=[message.pk, second.pk])} == {"PACKED"}
    assert newest().kind == "message_sent_again"
    with refused("message-under-way"):
        route_services.redeliver(message_id=message.pk, actor=ada, now=NOW)


def test_what_was_never_sent_is_not_sent_again_and_others_messages_are_not_there(ada: Any) -> None:
    with refused("message-never-sent"):
        route_services.redeliver(message_id=told(None, NOW).pk, actor=ada, now=NOW)
    with refused("message-never-sent"):
        route_services.redeliver(message_id=told(channel(), NOW).pk, actor=ada, now=NOW)
    theirs = delivered(channel("vera's", owner=factories.viewer()), NOW)
    with pytest.raises(Refused, match="not-found"):
        route_services.redeliver(message_id=theirs.pk, actor=ada, now=NOW)
    off = delivered(channel("off", enabled=False), NOW)
    with refused("channel-is-off"):
        route_services.redeliver(message_id=off.pk, actor=ada, now=NOW)
    with pytest.raises(Refused, match="not-permitted"):
        route_services.redeliver(message_id=off.pk, actor=acting(factories.operator()), now=NOW)
    assert Channel.objects.count() == 3
