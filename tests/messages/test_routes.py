"""Routes: created, changed and deleted with an entry each; which are in force, and where they lead."""

import importlib
import re
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client

from fleet.domain.people import Place
from fleet.domain.reasons import Refused
from fleet.notifications import route_services
from fleet.notifications.channels import KINDS
from fleet.notifications.models import Channel, Message, MessageDelivery, Route, may_hear, routes_in_force
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.route_services import RouteChangeSerializer, RouteRequestSerializer
from fleet.notifications.routing import MessageFacts
from tests import factories
from tests.dashboard.conftest import acts, codes, logged_in, states, text_of
from tests.dashboard.test_every_page_costs_the_same import queries
from tests.factories import NOW, Fleet, acting, announced
from tests.messages.sent import a_channel, a_message, a_post, a_route, channel, delivered, failed, told
from tests.messages.test_channels import newest, refused_at
from tests.words import refused

pytestmark = pytest.mark.django_db
migration = importlib.import_module("fleet.migrations.0013_data_0_2")


@pytest.fixture(autouse=True)
def no_routes(db: None) -> None:
    Route.objects.all().delete()


def led() -> dict[str, set[str]]:
    return {route.name: {channel.name for channel in channels} for route, channels in routes_in_force()}


def test_first_channel_gets_the_default_route() -> None:
    migration.offer(apps, None)
    migration.offer(apps, None)
    assert led() == {}
    channel("first")
    assert led() == {"Events that need action": {"first"}}
    ((route, _),) = routes_in_force()
    action = {NotificationType.FIRST_SEEN, NotificationType.PROPOSED, NotificationType.CHANNEL_FAILING}
    assert action <= set(route.moments) <= set(NotificationType)


def test_routes_lead_to_usable_channels_of_their_owner(django_assert_num_queries: Any) -> None:
    a_route("all")
    on, off = channel("on"), channel("off", enabled=False)
    channel("gone", deleted_at=NOW)
    channel("mirror", kind="alertmanager")
    a_route("to a channel that is off", channel=off)
    a_route("off", channel=on, enabled=False)
    a_route("deleted", deleted_at=NOW)
    for name, group in (("vic", "viewer"), ("ben", "approver")):
        owner = factories.person(name, group)
        a_route(name, owner=owner, channel=channel(f"{name}'s", owner=owner))
    a_route("through another user's channel", owner=owner, channel=Channel.objects.get(name="vic's"))
    a_route("without a channel", owner=owner)
    with django_assert_num_queries(3):
        in_force = routes_in_force()
        facts = MessageFacts(NotificationType.PROPOSED, NOW, "warning", place=Place("availability_set", "web", "shop"))
        heard = {route.name: may_hear(route.owner, facts) for route, _ in in_force}
    assert heard == {"all": True, "vic": False, "ben": True}
    User.objects.filter(pk=owner.pk).update(is_active=False)
    assert led() == {"all": {"on"}, "vic": {"vic's"}}


@pytest.fixture
def ada(db: None) -> Any:
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
        with refused_at(field):
            made(ada, **fields)
    assert not Route.objects.exists()


def test_private_route_uses_only_the_users_own_channel(ada: Any) -> None:
    vera, otto = acting(factories.viewer()), acting(factories.operator())
    mail = channel("mail", kind="mail", owner=vera.person)
    with pytest.raises(Refused, match="not-permitted"):
        made(vera)
    for actor, own, through in ((vera, True, channel("hook").pk), (vera, True, None), (ada, False, mail.pk)):
        with refused_at("channel"):
            made(actor, own=own, channel=through)
    row = made(vera, own=True, channel=mail.pk)
    assert newest().data["own"] is True
    for actor in (otto, ada):
        with pytest.raises(Refused, match="not-found"):
            route_services.delete(route_id=row.pk, actor=actor, now=NOW)


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
    otto, off = acting(factories.operator()), delivered(channel("off", enabled=False), NOW)
    theirs = delivered(channel("vera's", owner=factories.viewer()), NOW)
    for actor, message, code in (
        (ada, told(None, NOW), "not-redeliverable"),
        (ada, told(channel(), NOW), "not-redeliverable"),
        (ada, off, "not-redeliverable"),
        (ada, theirs, "not-found"),
        (otto, off, "not-permitted"),
    ):
        with pytest.raises(Refused, match=code):
            route_services.redeliver(message_id=message.pk, actor=actor, now=NOW)


# Channels and routes on the pages: plain forms made of each kind's fields, secrets shown once, and one's own apart.


HOOK = {"name": "Hook", "url": "https://hooks.example.com/drydock"}


@pytest.fixture
def admin() -> Client:
    return logged_in(factories.admin())


@pytest.fixture
def otto() -> Client:
    return logged_in(factories.operator())


def test_every_kind_is_offered_to_admins_and_has_a_form_with_its_fields(admin: Client, otto: Client) -> None:
    links = re.findall(r'href="/channels/new/(\w+)/"', admin.get("/messages/").content.decode())
    assert links.index("slack") < links.index("pagerduty") < links.index("webhook") < links.index("alertmanager")
    assert "/channels/new/" not in otto.get("/messages/").content.decode()
    for name, kind in KINDS.items():
        body = admin.get(f"/channels/new/{name}/").content.decode()
        assert kind.fields.keys() <= set(re.findall(r'name="(\w+)"', body)), name
    assert admin.get("/channels/new/pigeon/").status_code == 404


def test_lines_are_saved_and_shown_as_they_were_entered(admin: Client) -> None:
    lines = "b@example.com\r\na@example.com"
    assert admin.post("/channels/new/mail/", {"name": "Mail", "recipients": lines}).status_code == 302
    row = Channel.objects.get(kind="mail")
    assert row.settings["recipients"] == ["b@example.com", "a@example.com"]
    assert "b@example.com\na@example.com" in admin.get(f"/channels/{row.pk}/").content.decode()


def test_a_webhooks_secret_is_shown_once_and_its_test_has_a_page(admin: Client) -> None:
    made = admin.post("/channels/new/webhook/", HOOK)
    (secret,) = set(re.findall(r"whsec_[\w+/=]+", made.content.decode()))
    row = Channel.objects.get()
    for path in (f"/channels/{row.pk}/", "/messages/"):
        assert secret not in admin.get(path).content.decode()
    rotated = admin.post(f"/channels/{row.pk}/rotate/").content.decode()
    assert len(set(re.findall(r"whsec_[\w+/=]+", rotated)) - {secret}) == 1
    answer = admin.post(f"/channels/{row.pk}/test/")
    assert answer["Location"] == f"/messages/log/{MessageDelivery.objects.get().pk}/"
    assert admin.get(answer["Location"]).status_code == 200
    assert admin.post(f"/channels/{row.pk}/test/").status_code == 422


def test_a_secret_is_never_shown_again_and_left_empty_it_stays(admin: Client) -> None:
    key = "0123456789abcdef0123456789abcdef"
    admin.post("/channels/new/pagerduty/", {"name": "Pager", "routing_key": key, "eu": "on"})
    row = Channel.objects.get()
    assert row.settings["eu"] is True
    assert key not in admin.get(f"/channels/{row.pk}/").content.decode()
    answer = admin.post(f"/channels/{row.pk}/", {"name": "On call", "routing_key": "", "time_zone": "Europe/Berlin"})
    assert answer.status_code == 302
    row = Channel.objects.get()
    assert (row.name, row.settings["time_zone"], row.opened) == ("On call", "Europe/Berlin", {"routing_key": key})
    bad = admin.post(f"/channels/{row.pk}/", {"name": "<i>x</i>", "routing_key": "much too short"})
    assert bad.status_code == 422 and "much too short" not in bad.content.decode()
    assert b'value="&lt;i&gt;x&lt;/i&gt;"' in bad.content and b"<i>x</i>" not in bad.content


def test_a_failing_channel_shows_since_when_with_its_own_answer_to_who_may_change_it(
    admin: Client, otto: Client
) -> None:
    failing = {"failing_since": NOW, "failures": 4, "last_error": "status", "last_answer": "<b>552</b> full"}
    Channel.objects.filter(pk=a_channel("Mail", kind="mail").pk).update(**failing)
    mine, theirs = admin.get("/messages/"), otto.get("/messages/")
    assert "fails" in states(mine) and "fails" in states(theirs)
    assert b"&lt;b&gt;552&lt;/b&gt; full" in mine.content and b"552" not in theirs.content


def test_a_route_is_tried_saved_and_switched_off_and_trying_saves_nothing(admin: Client) -> None:
    sent = {"name": "", "event_types": ["Freeze"], "do": "try"}
    tried = admin.post("/routes/new/", sent)
    assert (tried.status_code, Route.objects.count()) == (200, 0)
    assert "route-dry-run" in codes(tried)
    assert admin.post("/routes/new/", {**sent, "name": "Freezes", "do": "save"})["Location"] == "/messages/"
    row = Route.objects.get(name="Freezes")
    assert row.event_types == ["Freeze"]
    step = {"name": "Freezes", "unclaimed_after_seconds": "120"}
    assert admin.post(f"/routes/{row.pk}/", {**step, "before_decide_by_seconds": "60"}).status_code == 422
    assert admin.post(f"/routes/{row.pk}/", step).status_code == 302
    admin.post(f"/routes/{row.pk}/switch/", {"enabled": "off"})
    row.refresh_from_db()
    assert (row.unclaimed_after_seconds, row.enabled) == (120, False)


def test_private_channel_is_made_by_its_user_and_hidden_from_others(otto: Client, admin: Client) -> None:
    assert otto.post("/channels/new/mail/?own=1", {"name": "My mail", "recipients": "o@example.com"}).status_code == 302
    row = Channel.objects.exclude(owner=None).get()
    through = {"name": "Mine", "channel": str(row.pk), "event_types": ["Preempt"]}
    assert otto.post("/routes/new/?own=1", through)["Location"] == "/you/messages/"
    text = text_of(otto.get("/you/messages/"))
    assert "My mail" in text and "Preempt" in text
    for path in ("/messages/", "/you/messages/", "/messages/log/"):
        assert "My mail" not in text_of(admin.get(path))
    assert admin.get(f"/channels/{row.pk}/").status_code == 404
    assert otto.post("/channels/new/slack/?own=1", {"name": "S", "token": "xoxb-1", "channel": "#x"}).status_code == 422


def test_what_was_given_up_is_sent_again_under_its_id(admin: Client, otto: Client) -> None:
    fleet = Fleet()
    event = announced(fleet)
    channel = a_channel(at=fleet.now)
    post = a_post(channel, [a_message(event, channel, at=fleet.now)], at=fleet.now, state="GIVEN_UP", tries=[failed()])
    page = f"/messages/log/{post.pk}/"
    assert "again" not in acts(otto.get(page)) and "again" in acts(admin.get(page))
    assert admin.post(f"{page}again/")["Location"] == page
    post.refresh_from_db()
    assert (post.state, admin.post(f"{page}again/").status_code) == ("QUEUED", 409)


def test_the_pages_cost_the_same_however_many_there_are(admin: Client) -> None:
    def grow(count: int) -> None:
        for number in range(Channel.objects.count(), Channel.objects.count() + count):
            row = a_channel(f"channel {number}", kind="mail", settings={"recipients": ["a@example.com"]})
            a_route(f"to channel {number}", channel=row)
            told(row, NOW)
            a_post(row, [told(row, NOW, event=event)], at=NOW, tries=[failed(), {"ok": True}])
            told(row, NOW, event=event, state="DROPPED", why="claimed")

    event = announced(Fleet())
    grow(1)
    paths = ["/messages/", "/you/messages/", f"/channels/{Channel.objects.get().pk}/", "/routes/new/"]
    paths += ["/messages/log/", "/messages/log/unsent/"]
    before = [len(queries(lambda path=path: admin.get(path))) for path in paths]
    grow(5)
    assert [len(queries(lambda path=path: admin.get(path))) for path in paths] == before
