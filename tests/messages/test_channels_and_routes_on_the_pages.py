"""Channels and routes on the pages: plain forms made of each kind's fields, secrets shown once, and one's own apart."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from fleet.notifications.channels import KINDS
from fleet.notifications.models import Channel, MessageDelivery, Route
from tests import factories
from tests.dashboard.conftest import acts, codes, logged_in, states, text_of
from tests.dashboard.test_every_page_costs_the_same import queries
from tests.factories import Fleet, announced
from tests.messages.sent import a_channel, a_message, a_post, a_route, failed

pytestmark = pytest.mark.django_db
HOOK = {"name": "Hook", "url": "https://hooks.example.com/drydock"}


@pytest.fixture
def admin() -> Client:
    return logged_in(factories.admin())


@pytest.fixture
def otto() -> Client:
    return logged_in(factories.operator())


def test_a_fresh_installation_offers_every_kind_to_admins(admin: Client, otto: Client) -> None:
    links = re.findall(r'href="/channels/new/(\w+)/"', admin.get("/messages/").content.decode())
    assert links.index("slack") < links.index("pagerduty") < links.index("webhook") < links.index("alertmanager")
    assert "/channels/new/" not in otto.get("/messages/").content.decode()


def test_every_kind_has_a_form_with_its_fields(admin: Client) -> None:
    for name, kind in KINDS.items():
        body = admin.get(f"/channels/new/{name}/").content.decode()
        assert kind.fields.keys() <= set(re.findall(r'name="(\w+)"', body)), name
    assert admin.get("/channels/new/pigeon/").status_code == 404


def test_a_switch_and_lines_are_saved_and_shown_as_they_were_entered(admin: Client) -> None:
    pager = {"name": "Pager", "routing_key": "0" * 32, "eu": "on"}
    assert admin.post("/channels/new/pagerduty/", pager).status_code == 302
    assert Channel.objects.get().settings["eu"] is True
    lines = "b@example.com\r\na@example.com"
    admin.post("/channels/new/mail/", {"name": "Mail", "recipients": lines})
    row = Channel.objects.get(kind="mail")
    assert row.settings["recipients"] == ["b@example.com", "a@example.com"]
    assert "b@example.com\na@example.com" in admin.get(f"/channels/{row.pk}/").content.decode()


def test_a_webhooks_secret_is_shown_once_with_a_receiver_to_copy(admin: Client) -> None:
    made = admin.post("/channels/new/webhook/", HOOK)
    (secret,) = set(re.findall(r"whsec_[\w+/=]+", made.content.decode()))
    row = Channel.objects.get()
    assert secret not in admin.get(f"/channels/{row.pk}/").content.decode()
    assert secret not in admin.get("/messages/").content.decode()
    rotated = admin.post(f"/channels/{row.pk}/rotate/").content.decode()
    assert len(set(re.findall(r"whsec_[\w+/=]+", rotated)) - {secret}) == 1


def test_a_secret_is_never_shown_again_and_left_empty_it_stays(admin: Client) -> None:
    key = "0123456789abcdef0123456789abcdef"
    admin.post("/channels/new/pagerduty/", {"name": "Pager", "routing_key": key})
    row = Channel.objects.get()
    page = admin.get(f"/channels/{row.pk}/")
    assert key not in page.content.decode()
    sealed = row.secrets
    answer = admin.post(f"/channels/{row.pk}/", {"name": "On call", "routing_key": "", "time_zone": "Europe/Berlin"})
    assert answer.status_code == 302
    row.refresh_from_db()
    assert (row.name, row.settings["time_zone"]) == ("On call", "Europe/Berlin")
    assert row.settings["secrets_set"] == ["routing_key"] and row.secrets and sealed
    bad = admin.post(f"/channels/{row.pk}/", {"name": "On call", "routing_key": "much too short"})
    assert bad.status_code == 422 and "much too short" not in bad.content.decode()


def test_invalid_channel_form_keeps_the_typed_text(admin: Client) -> None:
    answer = admin.post("/channels/new/webhook/", {"name": "<i>x</i>", "url": "ftp://example.com/"})
    assert answer.status_code == 422
    assert b'value="&lt;i&gt;x&lt;/i&gt;"' in answer.content and b"<i>x</i>" not in answer.content


def test_a_test_leads_to_its_own_page_which_shows_the_answer(admin: Client) -> None:
    admin.post("/channels/new/webhook/", HOOK)
    row = Channel.objects.get()
    answer = admin.post(f"/channels/{row.pk}/test/")
    delivery = MessageDelivery.objects.get()
    assert answer["Location"] == f"/messages/log/{delivery.pk}/"
    assert admin.get(answer["Location"]).status_code == 200
    assert admin.post(f"/channels/{row.pk}/test/").status_code == 422


def test_a_failing_channel_shows_since_when_with_its_own_answer_to_who_may_change_it(
    admin: Client, otto: Client
) -> None:
    fleet = Fleet()
    Channel.objects.filter(pk=a_channel("Mail", kind="mail", at=fleet.now).pk).update(
        failing_since=fleet.now, failures=4, last_error="status", last_answer="<b>552</b> full"
    )
    mine, theirs = admin.get("/messages/"), otto.get("/messages/")
    assert "fails" in states(mine) and "fails" in states(theirs)
    assert b"&lt;b&gt;552&lt;/b&gt; full" in mine.content
    assert b"552" not in theirs.content


def test_a_channel_is_switched_off_and_deleted_but_not_while_a_route_leads_to_it(admin: Client) -> None:
    fleet = Fleet()
    row = a_channel("Mail", kind="mail", at=fleet.now, settings={"recipients": ["a@example.com"]})
    route = a_route("Only mail", at=fleet.now, channel=row)
    assert admin.post(f"/channels/{row.pk}/switch/", {"enabled": "off"}).status_code == 302
    assert "off" in states(admin.get(f"/channels/{row.pk}/"))
    refused = admin.post(f"/channels/{row.pk}/delete/")
    assert refused.status_code == 422 and "Only mail" in text_of(refused)
    assert admin.post(f"/routes/{route.pk}/delete/")["Location"] == "/messages/"
    assert admin.post(f"/channels/{row.pk}/delete/")["Location"] == "/messages/"
    assert admin.get(f"/channels/{row.pk}/").status_code == 404


def test_a_route_is_tried_saved_and_switched_off_and_trying_saves_nothing(admin: Client) -> None:
    fleet = Fleet()
    announced(fleet)
    before = Route.objects.count()
    sent = {"name": "", "event_types": ["Freeze"], "do": "try"}
    tried = admin.post("/routes/new/", sent)
    assert tried.status_code == 200
    assert "route-dry-run" in codes(tried)
    assert Route.objects.count() == before
    saved = admin.post("/routes/new/", {**sent, "name": "Freezes", "do": "save"})
    assert saved["Location"] == "/messages/"
    row = Route.objects.get(name="Freezes")
    assert row.event_types == ["Freeze"]
    step = {"name": "Freezes", "unclaimed_after_seconds": "120"}
    assert admin.post(f"/routes/{row.pk}/", {**step, "before_decide_by_seconds": "60"}).status_code == 422
    assert admin.post(f"/routes/{row.pk}/", step).status_code == 302
    admin.post(f"/routes/{row.pk}/switch/", {"enabled": "off"})
    row.refresh_from_db()
    assert (row.unclaimed_after_seconds, row.enabled) == (120, False)


def test_private_channel_is_made_by_its_user_and_hidden_from_others(otto: Client, admin: Client) -> None:
    assert "Microsoft" not in text_of(otto.get("/you/messages/"))
    made = otto.post("/channels/new/mail/?own=1", {"name": "My mail", "recipients": "otto@example.com"})
    assert made.status_code == 302, text_of(made)
    row = Channel.objects.get()
    assert row.owner is not None
    through = {"name": "Mine", "channel": str(row.pk), "event_types": ["Preempt"]}
    assert otto.post("/routes/new/?own=1", through)["Location"] == "/you/messages/"
    text = text_of(otto.get("/you/messages/"))
    assert "My mail" in text and "Preempt" in text
    for path in ("/messages/", "/you/messages/", "/messages/log/"):
        assert "My mail" not in text_of(admin.get(path))
    assert admin.get(f"/channels/{row.pk}/").status_code == 404
    assert admin.post(f"/channels/{row.pk}/delete/").status_code == 404
    assert otto.post("/channels/new/slack/?own=1", {"name": "S", "token": "xoxb-1", "channel": "#x"}).status_code == 422
    assert otto.post("/channels/new/webhook/", HOOK).status_code == 403


def test_what_was_given_up_is_sent_again_under_its_id(admin: Client, otto: Client) -> None:
    fleet = Fleet()
    event = announced(fleet)
    channel = a_channel(at=fleet.now)
    post = a_post(channel, [a_message(event, channel, at=fleet.now)], at=fleet.now, state="GIVEN_UP", tries=[failed()])
    assert "again" not in acts(otto.get(f"/messages/log/{post.pk}/"))
    assert "again" in acts(admin.get(f"/messages/log/{post.pk}/"))
    assert admin.post(f"/messages/log/{post.pk}/again/")["Location"] == f"/messages/log/{post.pk}/"
    post.refresh_from_db()
    assert post.state == "QUEUED"
    assert admin.post(f"/messages/log/{post.pk}/again/").status_code == 409


def test_the_pages_cost_the_same_however_many_there_are(admin: Client) -> None:
    fleet = Fleet()
    event = announced(fleet)

    def grow(count: int) -> Channel:
        for _ in range(count):
            name = f"channel {Channel.objects.count()}"
            row = a_channel(name, kind="mail", at=fleet.now, settings={"recipients": ["a@example.com"]})
            a_route(f"to {name}", at=fleet.now, channel=row)
            a_message(event, row, at=fleet.now)
        return row

    row = grow(1)
    paths = ["/messages/", "/you/messages/", f"/channels/{row.pk}/", "/routes/new/"]
    before = [len(queries(lambda path=path: admin.get(path))) for path in paths]
    grow(5)
    assert [len(queries(lambda path=path: admin.get(path))) for path in paths] == before
