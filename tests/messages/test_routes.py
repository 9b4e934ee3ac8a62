"""Routes: created, changed and deleted with an entry each; which are in force, and where they lead."""

from __future__ import annotations

import importlib
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User

from fleet.domain.people import Place
from fleet.domain.reasons import Refused
from fleet.notifications import route_services
from fleet.notifications.models import Channel, Message, MessageDelivery, Route, may_hear, routes_in_force
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.route_services import RouteChangeSerializer, RouteRequestSerializer
from fleet.notifications.routing import MessageFacts
from tests import factories
from tests.factories import NOW, acting
from tests.messages.sent import a_route, channel, delivered, told
from tests.messages.test_channels import errors, newest
from tests.words import refused

pytestmark = pytest.mark.django_db
migration = importlib.import_module("fleet.migrations.0013_data_0_2")


@pytest.fixture(autouse=True)
def no_routes(db: None) -> None:
    Route.objects.all().delete()


def led() -> dict[str, set[str]]:
    return {one.route.name: {channel.name for channel in one.channels} for one in routes_in_force()}


def test_first_channel_gets_the_default_route() -> None:
    migration.offer(apps, None)
    migration.offer(apps, None)
    assert led() == {}
    channel("first")
    assert led() == {"Events that need action": {"first"}}
    (found,) = routes_in_force()
    assert {NotificationType.FIRST_SEEN, NotificationType.PROPOSED, NotificationType.CHANNEL_FAILING} <= set(
        found.route.moments
    )
    assert set(found.route.moments) <= set(NotificationType)


def test_routes_lead_to_enabled_channels_of_the_installation_that_take_messages() -> None:
    a_route("all")
    ada = factories.admin()
    on = channel("on")
    off = channel("off", enabled=False)
    channel("gone", deleted_at=NOW)
    channel("mirror", kind="alertmanager")
    channel("ada's", owner=ada)
    a_route("to a channel that is off", channel=off)
    a_route("off", channel=on, enabled=False)
    a_route("deleted", deleted_at=NOW)
    assert led() == {"all": {"on"}}


def test_own_routes_need_an_active_account() -> None:
    ada, ben = factories.admin(), factories.person("ben", "viewer")
    a_route("ada's", owner=ada, channel=channel("mail", owner=ada))
    a_route("through another user's channel", owner=ben, channel=Channel.objects.get(name="mail"))
    a_route("without a channel", owner=ben)
    assert led() == {"ada's": {"mail"}}
    User.objects.filter(pk=ada.pk).update(is_active=False)
    assert led() == {}


def test_who_may_hear_is_asked_once_for_all(django_assert_num_queries: Any) -> None:
    facts = MessageFacts(NotificationType.PROPOSED, NOW, "warning", place=Place("availability_set", "web", "shop"))
    for name, group in (("vic", "viewer"), ("ben", "approver")):
        owner = factories.person(name, group)
        a_route(name, owner=owner, channel=channel(name, owner=owner))
    with django_assert_num_queries(3):
        heard = {one.route.name: may_hear(one.owner, facts) for one in routes_in_force()}
    assert heard == {"vic": False, "ben": True}
    assert may_hear(None, facts)


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
