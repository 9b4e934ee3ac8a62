"""Which routes are in force, where they lead, and that loading them costs the same however many there are."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User

from fleet.domain.people import Place
from fleet.notifications.models import Channel, Route, may_hear, routes_in_force
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.routing import MessageFacts
from tests import factories
from tests.factories import NOW
from tests.messages.messages import channel, route

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
    route("all")
    ada = factories.admin()
    on = channel("on")
    off = channel("off", enabled=False)
    channel("gone", deleted_at=NOW)
    channel("mirror", kind="alertmanager")
    channel("ada's", owner=ada)
    route("to a channel that is off", channel=off)
    route("off", channel=on, enabled=False)
    route("deleted", deleted_at=NOW)
    assert led() == {"all": {"on"}}


def test_own_routes_need_an_active_account() -> None:
    ada, ben = factories.admin(), factories.person("ben", "viewer")
    route("ada's", owner=ada, channel=channel("mail", owner=ada))
    route("through another user's channel", owner=ben, channel=Channel.objects.get(name="mail"))
    route("without a channel", owner=ben)
    assert led() == {"ada's": {"mail"}}
    User.objects.filter(pk=ada.pk).update(is_active=False)
    assert led() == {}


def test_who_may_hear_is_asked_once_for_all(django_assert_num_queries: Any) -> None:
    facts = MessageFacts(NotificationType.PROPOSED, NOW, "warning", place=Place("availability_set", "web", "shop"))
    for name, group in (("vic", "viewer"), ("ben", "approver")):
        owner = factories.person(name, group)
        route(name, owner=owner, channel=channel(name, owner=owner))
    with django_assert_num_queries(3):
        heard = {one.route.name: may_hear(one.owner, facts) for one in routes_in_force()}
    assert heard == {"vic": False, "ben": True}
    assert may_hear(None, facts)
