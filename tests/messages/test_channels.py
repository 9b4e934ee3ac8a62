"""Channels: permitted users create, change, rotate, test and delete them, and no answer or row contains a secret."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from fleet.domain.reasons import Refused
from fleet.gateway.probes import Probes
from fleet.models import Entry
from fleet.models.timeline import ACTING
from fleet.notifications import channel_services
from fleet.notifications.channel_services import ChannelFieldsSerializer, ChannelRequestSerializer, in_use, unreadable
from fleet.notifications.models import Channel, MessageDelivery, Route, UnreadableSecretsError
from fleet.projections.timeline.entries import rows_of
from fleet.wording.say import text_of
from fleet.wording.times import API
from tests import factories
from tests.factories import NOW, acting
from tests.messages.sent import a_route, channel
from tests.words import refused, sentence

pytestmark = pytest.mark.django_db
KEY = "0123456789abcdefABCDEF0123456789"


@pytest.fixture
def ada(db: None) -> Any:
    return acting(factories.admin())


def made(actor: Any, kind: str = "webhook", name: str = "hook", own: bool = False, **values: Any) -> Channel:
    if kind == "webhook":
        values = {"url": "https://hooks.example.org/T0/s3cr3t", **values}
    return created(actor, kind, name, own, **values)[0]


def created(actor: Any, kind: str, name: str, own: bool = False, **values: Any) -> tuple[Channel, str | None]:
    sent = ChannelRequestSerializer(data={"kind": kind, "name": name, **values})
    return channel_services.create(sent, actor=actor, now=NOW, own=own)


def changed(actor: Any, row: Channel, **values: Any) -> None:
    channel_services.change(ChannelFieldsSerializer(data=values), channel_id=row.pk, actor=actor, now=NOW)
    row.refresh_from_db()


def newest() -> Entry:
    return Entry.objects.filter(via__in=ACTING).order_by("-pk")[0]


def said(entry: Entry) -> str:
    (row,) = rows_of([entry])
    return text_of(row, API)


@contextmanager
def refused_at(field: str) -> Iterator[None]:
    """Something is refused at this field."""
    with pytest.raises(Refused) as caught:
        yield
    assert field in {each["field"] for each in caught.value.details["errors"]}


def test_a_webhook_gets_a_secret_that_is_returned_once_and_kept_encrypted(ada: Any) -> None:
    row, secret = created(ada, "webhook", " hook ", url="https://hooks.example.org/T0/s3cr3t")
    assert secret is not None and secret.startswith("whsec_")
    assert row.name == "hook"
    assert secret not in row.secrets
    row.refresh_from_db()
    assert in_use(row, now=NOW)["secret"] == secret
    entry = newest()
    assert said(entry) == "ada created the channel “hook” (Webhook)."
    assert "s3cr3t" not in json.dumps(entry.after)
    assert entry.after["url"].startswith("https://hooks.example.org/…")


def test_secret_is_in_no_column_and_no_entry(ada: Any) -> None:
    row = made(ada, "pagerduty", routing_key=KEY)
    assert KEY not in json.dumps([row.settings, row.secrets])
    other = KEY.replace("0", "9")
    changed(ada, row, routing_key=other)
    entry = newest()
    assert (entry.before, entry.after) == ({"routing_key": "set"}, {"routing_key": "replaced"})
    assert said(entry) == "ada changed the channel “hook” (PagerDuty): integration key."
    assert in_use(row, now=NOW)["routing_key"] == other
    # What stays as it is writes nothing.
    changed(ada, row, name="hook", routing_key=other)
    assert newest() == entry
    assert KEY not in json.dumps(list(Entry.objects.values_list("before", "after", "data")))


def test_after_a_rotation_the_secret_before_counts_for_a_day(ada: Any) -> None:
    row, first = created(ada, "webhook", "h", url="https://a.example.org")
    _, second = channel_services.rotate(channel_id=row.pk, actor=ada, now=NOW + timedelta(hours=1))
    entry = newest()
    assert entry.before != entry.after and first not in json.dumps([entry.before, entry.after, entry.data])
    changed(ada, row, url="https://b.example.org")
    row = Channel.objects.get()
    for hours, earlier in ((24, first), (26, None)):
        secrets = in_use(row, now=NOW + timedelta(hours=hours))
        assert (secrets["secret"], secrets.get("earlier_secret")) == (second, earlier)
    with refused("channel-without-secret"):
        channel_services.rotate(channel_id=made(ada, "pagerduty", "p", routing_key=KEY).pk, actor=ada, now=NOW)


BAD_URLS = """
ftp://a.example.org file:///etc/passwd https:// https://ada:pw@a.example.org/ https://a.example.org/#x https://[::1/
https://a.example.org:99999/
"""
ODD_URLS = ("https://a.example.org/\r\nHost: b", ["https://a.example.org"], "https://a.example.org/" + "x" * 2000)


def test_what_a_kind_cannot_use_is_refused_at_its_field(ada: Any) -> None:
    url = {"url": "https://a.example.org"}
    faults: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("carrier-pigeon", {}, "kind"),
        ("webhook", {}, "url"),
        *(("webhook", {"url": bad}, "url") for bad in (*BAD_URLS.split(), *ODD_URLS)),
        *(("webhook", {**url, name: value}, name) for name, value in (("time_zone", "Mars"), ("secret", "mine"))),
        ("webhook", {**url, "colour": "red"}, "colour"),
        ("pagerduty", {"routing_key": "short"}, "routing_key"),
        ("slack", {"token": "nope", "channel": "#ops"}, "token"),
        ("mail", {"recipients": ["ada@example.org", "ada <x@example.org>"]}, "recipients"),
        ("mail", {"recipients": [" "]}, "recipients"),
        ("mail", {"recipients": [f"a{n}@example.org" for n in range(51)]}, "recipients"),
        ("apprise", {"url": "no url"}, "url"),
    )
    for kind, values, field in faults:
        with refused_at(field):
            created(ada, kind, "x", **values)
        assert not Channel.objects.exists()


@pytest.mark.parametrize("url", ["https://drydock.example.org/x", "https://DRYDOCK.example.org:443", "https://alias"])
def test_drydock_is_no_receiver_of_its_own(ada: Any, settings: Any, url: str) -> None:
    settings.BASE_URL, settings.ALLOWED_HOSTS = "https://drydock.example.org", ["drydock.example.org", "alias"]
    with refused_at("url"):
        made(ada, url=url)
    made(ada, url="https://drydock.example.org:9093")


def test_a_name_is_given_once_to_each_owner_and_lines_are_kept_once(ada: Any) -> None:
    made(ada)
    with refused("channel-name-taken"):
        made(ada, name="HOOK")
    lines = [" ada@example.org", "bob@example.org ", "", "ada@example.org"]
    row = made(ada, "mail", own=True, recipients=lines)
    assert row.settings["recipients"] == ["ada@example.org", "bob@example.org"]


def test_only_admins_make_the_installations_and_everybody_their_own(ada: Any) -> None:
    vera = acting(factories.viewer())
    with pytest.raises(Refused, match="not-permitted"):
        made(vera)
    row = made(vera, "mail", own=True, recipients=["vera@example.org"])
    assert "vera@example.org" not in json.dumps([newest().after, newest().data])
    assert said(newest()) == "vera created their own channel “hook” (Mail)."
    with refused("channel-kind-not-personal"):
        made(vera, own=True)
    with pytest.raises(Refused, match="not-found"):
        channel_services.delete(channel_id=row.pk, actor=ada, now=NOW)
    with refused("too-many-lines"):
        made(vera, "mail", "many", own=True, recipients=[f"a{n}@example.org" for n in range(4)])


def test_number_of_private_channels_is_limited(ada: Any) -> None:
    for number in range(channel_services.MOST_OWN_CHANNELS):
        made(ada, "mail", f"mail {number}", own=True, recipients=["ada@example.org"])
    with refused("channels-too-many"):
        made(ada, "mail", "one more", own=True, recipients=["ada@example.org"])
    made(ada)


def test_a_deleted_channel_forgets_its_secrets_and_is_not_left_to_routes(ada: Any) -> None:
    row = made(ada, "pagerduty", routing_key=KEY)
    leading = a_route("Only mail", channel=row)
    with refused("channel-of-routes") as caught:
        channel_services.delete(channel_id=row.pk, actor=ada, now=NOW)
    assert "Only mail" in sentence(caught.value)
    Route.objects.filter(pk=leading.pk).update(deleted_at=NOW)
    channel_services.delete(channel_id=row.pk, actor=ada, now=NOW)
    row.refresh_from_db()
    assert (row.secrets, row.enabled, row.deleted_at) == ("", False, NOW)
    with pytest.raises(Refused, match="not-found"):
        changed(ada, row, enabled=True)


def test_what_was_changed_is_tried_at_once_however_long_it_failed(ada: Any) -> None:
    row = made(ada)
    failing = {"failing_since": NOW, "failures": 9, "held_until": NOW + timedelta(hours=1)}
    Channel.objects.filter(pk=row.pk).update(**failing)
    changed(ada, row, url="https://b.example.org")
    # Only its own answer says that it works again.
    assert (row.failing_since, row.failures, row.held_until) == (NOW, 9, None)


def test_after_a_lost_secret_key_entering_secrets_again_suffices(ada: Any, settings: Any) -> None:
    row = made(ada, "slack", token="xoxb-1", channel="#ops")
    settings.SECRET_KEY = "another-key-of-at-least-fifty-characters-for-this-test"
    changed(ada, row, name="slack")
    changed(ada, row, token="xoxb-2")
    row.refresh_from_db()
    assert in_use(row, now=NOW)["token"] == "xoxb-2"
    assert row.settings["channel"] == "#ops"


def test_a_test_is_one_delivery_at_a_time(ada: Any) -> None:
    row = made(ada)
    Channel.objects.filter(pk=row.pk).update(held_until=NOW + timedelta(hours=1))
    delivery = MessageDelivery.objects.get(pk=channel_services.request_test(channel_id=row.pk, actor=ada, now=NOW))
    assert (delivery.moment, delivery.state, delivery.channel_id) == ("test", "QUEUED", row.pk)
    row.refresh_from_db()
    assert row.held_until is None
    assert newest().kind == "channel_tried"
    mirror = made(ada, "alertmanager", "am", url="https://am.example.org")
    for channel_id, code in ((row.pk, "test-under-way"), (mirror.pk, "channel-takes-no-posts")):
        with refused(code):
            channel_services.request_test(channel_id=channel_id, actor=ada, now=NOW)
    changed(ada, row, enabled=False)
    with refused("channel-is-off"):
        channel_services.request_test(channel_id=row.pk, actor=ada, now=NOW)


SECRET = {"routing_key": "R0UT1NG"}
OTHER_KEY = "another-key-of-at-least-fifty-characters-for-this-test"


def sealed(pk: int = 1, **secrets: str) -> Channel:
    row = Channel(pk=pk, kind="pagerduty")
    row.seal(secrets)
    return row


@pytest.mark.parametrize("text", ["", "no base64!", "AAAA", "x" * 40])
def test_secrets_of_another_row_are_not_read(text: str) -> None:
    row = Channel(pk=2, kind="pagerduty", secrets=text or sealed(**SECRET).secrets)
    with capture_logs() as logs, pytest.raises(UnreadableSecretsError, match="channel:2"):
        row.unseal()
    assert "R0UT1NG" not in str(logs)
    assert logs[0]["of"] == "channel:2"


def test_an_earlier_key_reads_what_it_sealed(settings: Any) -> None:
    row, old = sealed(**SECRET), settings.SECRET_KEY
    assert row.secrets != sealed(**SECRET).secrets
    settings.SECRET_KEY = OTHER_KEY
    with pytest.raises(UnreadableSecretsError):
        row.unseal()
    settings.SECRET_KEY_FALLBACKS = [old]
    assert row.unseal() == SECRET


@pytest.mark.django_db
def test_unreadable_channels_are_named_while_they_are_on(settings: Any) -> None:
    row = channel("pager", kind="pagerduty", settings={"time_zone": "UTC"})
    row.seal(SECRET)
    row.save()
    assert in_use(row, now=row.created_at) == {"time_zone": "UTC", **SECRET}
    assert unreadable() == []
    settings.SECRET_KEY = OTHER_KEY
    assert unreadable() == ["pager"]
    probes = Probes.__new__(Probes)
    probes.migrated = True
    assert probes._ask().unusable == {"channels_unreadable": 1}
    Channel.objects.update(enabled=False)
    assert unreadable() == []
