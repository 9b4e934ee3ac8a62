"""Account notifications: a user learns of every new way to sign in as them, by their own channels, without secrets."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.accounts import factors, logins
from fleet.accounts import services as account_services
from fleet.models import Entry
from fleet.notifications import router
from fleet.notifications.models import Channel, Message
from fleet.notifications.news import news_of
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.text import message_words
from fleet.operations import profile
from fleet.wording.times import API
from tests import accounts, factories
from tests.api.conftest import caller, problem
from tests.messages.sent import a_channel, a_route
from tests.messages.walk import routed

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PASSWORD = "harbour-otto"


@pytest.fixture
def otto(otto: User) -> User:
    """With a channel of his own, and without a route."""
    a_channel("otto's mail", kind="mail", at=NOW, owner=otto)
    return otto


@pytest.fixture
def others(otto: User) -> None:
    """Channels of the installation and of another user, with routes for all notifications."""
    a_route("All", at=NOW, channel=a_channel("#ops", at=NOW))
    ada = factories.admin()
    a_route("Ada's", at=NOW, owner=ada, channel=a_channel("ada's mail", kind="mail", at=NOW, owner=ada))


def told(now: datetime = NOW) -> list[tuple[str, str]]:
    """Return channel and full text of each account notification for all entries so far."""
    entries = Entry.objects.select_related("availability_set", "cache").order_by("pk")
    Message.objects.bulk_create(router._messages(list(entries), now=now))
    return said_by(Message.objects.filter(moment=NotificationType.ACCOUNT.value).order_by("pk"), now)


def said_by(rows: Iterable[Message], now: datetime) -> list[tuple[str, str]]:
    found = list(rows)
    news = news_of([row.pk for row in found], now=now)
    return [(Channel.objects.get(pk=row.channel_id).name, "\n".join(words(news[row.pk]))) for row in found]


def words(news: Any) -> tuple[str, ...]:
    return message_words(news, API).lines


def logged_in(device: Client | None = None) -> Client:
    client = device or Client(headers={"user-agent": "Firefox/133.0 (X11; Linux)"}, REMOTE_ADDR="198.51.100.9")
    client.post("/accounts/login/", {"login": "otto", "password": PASSWORD})
    return client


@pytest.mark.django_db(transaction=True)
def test_sign_in_on_an_unknown_device_notifies_only_its_user(otto: User, others: None) -> None:
    fleet = factories.Fleet(now=datetime.now(UTC))
    routed(fleet)
    logged_in()
    routed(fleet)
    [(channel, said)] = said_by(Message.objects.all(), fleet.now)
    assert channel == "otto's mail"
    assert said.startswith("otto signed in on an unknown device: Firefox on Linux from 198.51.100.9, by password.")
    assert "If this was not you" in said
    assert Entry.objects.get(kind="new_device").actor == f"person {otto.pk}"


def test_wrong_password_and_known_device_are_no_news(otto: User) -> None:
    Client().post("/accounts/login/", {"login": "otto", "password": "wrong"})
    assert not Entry.objects.filter(kind="new_device").exists()
    here = logged_in()
    here.post("/accounts/logout/")
    logged_in(here)
    assert Entry.objects.filter(kind="new_device").count() == 1


def test_new_sign_in_methods_and_tokens_notify_without_secrets(otto: User, others: None) -> None:
    actor, secret = factories.acting(otto), factors.new_secret()
    code = factors.code_at(secret, int(NOW.timestamp()) // factors.STEP)
    codes = factors.add_app(actor=actor, secret=secret, code=code, now=NOW)
    # These codes are recorded, and the user gets no notification of them in addition to that of the factor.
    row = Entry.objects.get(data__did="codes-first")
    assert (row.before, row.after) == ({"codes": None}, {"codes": 10})
    more = factors.new_codes(actor=actor, now=NOW)
    factors.check_code(actor=actor, code=more[0], now=NOW)
    _, token = accounts.token(user=otto, name="deploys", scopes=["read"], now=NOW, actor=actor)
    account_services.set_own_password(actor=actor, password="a pier of grey granite", now=NOW)
    password = account_services.reset_password(username="otto", now=NOW, actor=factories.acting(factories.admin()))
    factors.remove_all(username="otto", actor=factories.acting(factories.admin()), now=NOW)
    for attempt in range(logins.MOST_IN_A_ROW):
        logins.begin(username="otto", address=f"2001:db8:{attempt:x}::1", now=NOW + timedelta(hours=2 * attempt))
    said = told()
    assert {channel for channel, _ in said} == {"otto's mail"}
    assert [text.partition("\n")[0] for _, text in said] == [
        "otto added an authenticator app to their account.",
        "otto created new recovery codes; the old ones have ended.",
        "otto used a recovery code; 9 are left.",
        "An API token “deploys” of otto was created.",
        "otto changed their own password.",
        "ada changed otto's password.",
        "ada removed all second factors of otto.",
        "100 attempts to sign in as otto failed in a row. Until otto signs in on a known device, or an administrator"
        " sets a new password, the password is accepted on known devices only.",
    ]
    whole = "".join(text for _, text in said)
    assert not any(hidden in whole for hidden in (secret, token, password, PASSWORD, *codes, *more))


def test_settings_rights_and_join_tokens_send_no_private_notification(otto: User) -> None:
    admin = factories.acting(factories.admin())
    accounts.change_person(username="otto", group="viewer", now=NOW, actor=admin)
    sent = profile.ChoicesSerializer(data={"time_zone": "Europe/Berlin"})
    profile.choose(sent, actor=factories.acting(otto), now=NOW)
    accounts.join_token(comment="rack 7", expires_in=timedelta(days=1), now=NOW)
    assert told() == []


@pytest.mark.parametrize("disabled", ["channel", "user"])
def test_disabled_user_or_channel_gets_no_notification(otto: User, disabled: str) -> None:
    if disabled == "channel":
        Channel.objects.update(enabled=False)
        a_channel("gone", kind="mail", at=NOW, owner=otto, deleted_at=NOW)
    else:
        accounts.change_person(username="otto", active=False, now=NOW)
    account_services.reset_password(username="otto", now=NOW)
    assert told() == []


def test_shared_route_cannot_subscribe_to_account_notifications(otto: User) -> None:
    answer = caller(factories.admin()).post("routes/", {"name": "spy", "moments": [NotificationType.ACCOUNT.value]})
    assert problem(answer, 422, "validation")["errors"][0]["field"] == "moments"
