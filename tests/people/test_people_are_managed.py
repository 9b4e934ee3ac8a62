"""Admins manage people; everybody their own tokens and settings. Each change has its line, never with a secret."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from fleet.accounts import factors, logins, tokens
from fleet.accounts import services as account_services
from fleet.domain.people import Right
from fleet.domain.reasons import Refused
from fleet.models import ApiToken, Entry, Scope
from fleet.models.people import rights_of
from fleet.notifications import router
from fleet.notifications.models import Channel, Message
from fleet.notifications.news import news_of
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.text import message_words
from fleet.operations import profile
from fleet.wording.times import API
from tests import accounts, factories
from tests.api.conftest import Caller, caller, in_person, problem
from tests.dashboard.conftest import logged_in, text_of
from tests.messages.sent import a_channel, a_route
from tests.messages.walk import routed
from tests.rows import PersonFactory
from tests.words import text

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
pytestmark = pytest.mark.django_db


def lines() -> list[Entry]:
    return list(Entry.objects.filter(kind="person_changed").order_by("pk"))


def test_admin_creates_a_user_who_can_sign_in(client: Client) -> None:
    admin = in_person(factories.admin())
    body = {"username": "nina", "group": "operator", "scopes": [{"kind": "name", "pattern": "web*"}]}
    answer = admin.post("people/", body)
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert (made["group"], made["scopes"], made["active"]) == ("operator", body["scopes"], True)
    assert client.post("/accounts/login/", {"login": "nina", "password": made["password"]}).status_code == 302
    [line] = lines()
    assert (factories.who(line), line.via, line.token_name) == ("ada", "api", "")
    assert line.before is None
    assert line.after == {"groups": ["operator"], "scopes": ["name: web*"], "active": True}
    assert line.request_id
    assert made["password"] not in json.dumps([text(line), line.before, line.after, line.data])
    assert [row["username"] for row in admin.get("people/?q=NIN").json()["results"]] == ["nina"]


def test_invalid_user_is_not_created() -> None:
    ada = in_person(factories.admin())
    taken = [{"username": name} for name in ("ada", "ADA", "Azure", "rule: x", "person 7")]
    for wrong in (*taken, {"scopes": [{"kind": "name", "pattern": " "}]}, {"group": "emperor"}):
        problem(ada.post("people/", {"username": "nina", "group": "viewer", **wrong}), 422, "validation")
    assert User.objects.count() == 1


def test_a_change_holds_at_once_and_tells_before_and_after() -> None:
    admin, otto = in_person(factories.admin()), caller(factories.operator())
    assert admin("PATCH", "people/otto/", {"group": "viewer"}).status_code == 200
    problem(otto.post("events/X/claims/", {"comment": ""}), 403, "not-permitted")
    assert (lines()[-1].before, lines()[-1].after) == ({"groups": ["operator"]}, {"groups": ["viewer"]})
    scopes = [{"kind": "service", "pattern": "shop"}]
    assert admin("PATCH", "people/otto/", {"scopes": scopes}).json()["scopes"] == scopes
    assert (lines()[-1].before, lines()[-1].after) == ({"scopes": []}, {"scopes": ["service: shop"]})
    assert admin("PATCH", "people/otto/", {"scopes": scopes}).status_code == 200
    assert len(lines()) == 2
    assert admin("PATCH", "people/otto/", {"active": False}).status_code == 200
    problem(otto.get("me/"), 401, "not-authenticated")
    problem(admin("PATCH", "people/nobody/", {"active": True}), 404, "unknown-person")


def test_last_admin_stays_and_superusers_are_protected() -> None:
    ada = in_person(factories.admin())
    problem(ada("PATCH", "people/ada/", {"group": "viewer"}), 422, "validation")
    assert rights_of(User.objects.get(username="ada")).may(Right.ADMINISTER)
    factories.admin("axel")
    assert ada("PATCH", "people/ada/", {"group": "viewer"}).status_code == 200
    PersonFactory(username="root", is_superuser=True, is_staff=True)
    axel = in_person(User.objects.get(username="axel"))
    problem(axel("PATCH", "people/root/", {"active": False}), 403, "not-permitted")


def test_guesses_at_the_old_password_count_as_failed_sign_ins() -> None:
    """An attacker at an open session guesses its password no faster than at the sign-in page."""
    session = logged_in(factories.operator())
    fields = {"old_password": "wrong", **dict.fromkeys(("new_password1", "new_password2"), "a whole new harbour")}
    answers = [session.post("/you/password/", fields) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [422] * 5 + [429]
    assert int(answers[-1]["Retry-After"]) >= 1
    right = session.post("/you/password/", {**fields, "old_password": "harbour-otto"})
    assert right.status_code == 429
    assert User.objects.get(username="otto").check_password("harbour-otto")


def test_a_token_gives_no_more_than_its_person_and_its_own_token_have() -> None:
    otto = factories.operator()
    problem(caller(otto).post("tokens/", {"name": "x", "scopes": ["read", "admin"]}), 403, "not-permitted")
    narrow = caller(factories.admin(), "read", "approve")
    problem(narrow.post("tokens/", {"name": "x", "scopes": ["admin"]}), 403, "not-permitted")
    wanted = ["read", "approve"]
    short = caller(otto, *wanted, expires_at=datetime.now(UTC) + timedelta(hours=1))
    made = short.post("tokens/", {"name": "mine", "scopes": wanted, "expires_in_seconds": 86400 * 300}).json()
    assert datetime.fromisoformat(made["expires_at"]) < datetime.now(UTC) + timedelta(hours=2)
    mine = Caller(made["token"])
    expected = {"name": "mine", "scopes": sorted(wanted), "expires_at": made["expires_at"]}
    assert mine.get("me/").json()["token"] == expected
    assert made["prefix"] in [row["prefix"] for row in mine.get("tokens/").json()["results"]]
    assert made["token"] not in mine.get("tokens/").content.decode()
    line = Entry.objects.get(kind="token_created", via="api")
    assert (factories.who(line), line.token_name, line.before) == ("otto", "tests", None)
    assert made["token"] not in json.dumps([text(line), line.before, line.after, line.data])
    assert mine.delete(f"tokens/{made['prefix']}/").status_code == 204
    problem(mine.get("me/"), 401, "not-authenticated")
    line = Entry.objects.get(kind="token_ended")
    assert (factories.who(line), line.via, line.token_name) == ("otto", "api", "mine")
    assert (line.before["prefix"], line.after) == (made["prefix"], None)


def test_ones_own_page_makes_a_token_shows_it_once_and_keeps_settings() -> None:
    session = logged_in(factories.operator())
    form = {"name": "deploys", "scopes": ["read", "approve"], "expires_in_seconds": 2592000}
    answer = session.post("/you/tokens/", form)
    row = ApiToken.objects.get()
    assert row.prefix in answer.content.decode()
    assert tokens.hash_of(answer.content.decode().split('readonly value="')[1].split('"')[0]) == row.secret_hash
    assert row.secret_hash not in session.get("/you/").content.decode()
    assert session.post("/you/tokens/", form | {"scopes": ["admin"]}).status_code == 403
    assert session.post("/you/tokens/", form | {"name": ""}).status_code == 422
    assert session.post("/you/settings/", {"time_zone": "Europe/Berlin"}).status_code == 302
    assert session.post("/you/settings/", {"time_zone": "Mars/Base"}).status_code == 422
    assert lines()[-1].after == {"time_zone": "Europe/Berlin", "shortcuts": False}
    page = session.get("/").content.decode()
    assert 'data-zone="Europe/Berlin"' in page
    assert "shortcuts.js" not in page
    me = session.get("/api/v1/me/").json()
    assert (me["time_zone"], me["shortcuts"], me["token"]) == ("Europe/Berlin", False, None)
    assert session.post(f"/tokens/{row.prefix}/end/").status_code == 302
    assert ApiToken.objects.get().revoked_at is not None


def test_pages_tell_times_in_the_chosen_zone_and_files_and_the_api_in_utc() -> None:
    fleet = factories.Fleet(now=datetime.now(UTC))
    event = factories.announced(fleet)
    session = logged_in(factories.operator())
    session.post("/you/settings/", {"time_zone": "Asia/Kolkata", "shortcuts": "on"})
    page = session.get(f"/events/{event.event_id}/")
    assert '<span class="zone"> IST</span>' in page.content.decode()
    assert '<span class="zone"> UTC</span>' not in page.content.decode()
    assert session.get(f"/api/v1/events/{event.event_id}/").json()["not_before"].endswith("Z")
    assert "+05:30" not in b"".join(session.get("/audit/export.csv")).decode()  # type: ignore[call-overload]
    # What a browser says of itself counts only for who wants that, and only if there is such a zone.
    session.post("/you/settings/", {"time_zone": "browser", "shortcuts": "on"})
    session.cookies["drydock_zone"] = "America/New_York"
    assert 'data-zone="America/New_York"' in session.get("/").content.decode()
    session.cookies["drydock_zone"] = '"><script>'
    assert 'data-zone="UTC"' in session.get("/").content.decode()


def test_pages_of_people_are_for_admins(client: Client) -> None:
    session = logged_in(factories.admin())
    answer = session.post("/people/new/", {"username": "nina", "group": "approver", "scopes": "name: web*\nservice: x"})
    assert answer.status_code == 200
    assert Scope.objects.filter(user__username="nina").count() == 2
    assert "nina" in text_of(session.get("/people/"))
    assert session.post("/people/nina/change/", {"group": "viewer", "scopes": "", "is_active": "on"}).status_code == 302
    assert lines()[-1].after == {"groups": ["viewer"], "scopes": []}
    assert session.post("/people/nina/change/", {"group": "viewer", "scopes": "web"}).status_code == 422
    assert session.post("/people/nina/password/").status_code == 200
    assert session.post("/people/new/", {"username": "nina", "group": "viewer"}).status_code == 422
    assert session.get("/people/nobody/").status_code == 404


def test_the_command_line_makes_the_first_admin() -> None:
    out = StringIO()
    call_command("create_person", "ada", "--group", "admin", stdout=out, stderr=StringIO())
    assert User.objects.get(username="ada").check_password(out.getvalue().strip())
    [line] = lines()
    assert (factories.who(line), line.via) == ("the command line", "command")
    with pytest.raises(CommandError):
        call_command("create_person", "ada", "--group", "admin", stdout=out, stderr=StringIO())


def test_djangos_own_admin_writes_the_same_lines() -> None:
    session = logged_in(PersonFactory(username="root", is_superuser=True, is_staff=True))
    otto = factories.operator()
    browser, script = logged_in(otto), caller(otto)
    fields = {"username": "otto", "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
    answer = session.post(f"/admin/auth/user/{otto.pk}/change/", fields)
    assert answer.status_code == 302, answer.content[:500]
    assert factories.who(lines()[-1]) == "root"
    assert lines()[-1].before == {"groups": ["operator"], "active": True}
    assert lines()[-1].after == {"groups": [], "active": False}
    User.objects.filter(pk=otto.pk).update(is_active=True)
    assert browser.get("/").status_code == 302, "enabling the account again restores no session and no token"
    problem(script.get("me/"), 401, "not-authenticated")
    new = {"password1": "a whole new harbour", "password2": "a whole new harbour", "usable_password": "true"}
    assert session.post(f"/admin/auth/user/{otto.pk}/password/", new).status_code == 302
    assert (lines()[-1].data["person"], lines()[-1].data["did"]) == (f"person {otto.pk}", "password")
    assert session.post(f"/admin/auth/user/{otto.pk}/delete/", {"post": "yes"}).status_code == 403


def test_existing_user_gets_only_one_entry() -> None:
    for _ in range(2):
        account_services.ensure_person(username="demo", group="viewer", password="long enough for it", now=NOW)
    assert len(lines()) == 1
    with pytest.raises(Refused):
        accounts.change_person(username="demo", group="nobody", now=NOW)


# Account notifications: a user learns of every new way to sign in as them, by their own channels, without secrets.


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
    return [
        (Channel.objects.get(pk=row.channel_id).name, "\n".join(message_words(news[row.pk], API).lines))
        for row in found
    ]


def asked_by_password(device: Client | None = None) -> Client:
    client = device or Client(headers={"user-agent": "Firefox/133.0 (X11; Linux)"}, REMOTE_ADDR="198.51.100.9")
    client.post("/accounts/login/", {"login": "otto", "password": PASSWORD})
    return client


@pytest.mark.django_db(transaction=True)
def test_sign_in_on_an_unknown_device_notifies_only_its_user(otto: User, others: None) -> None:
    fleet = factories.Fleet(now=datetime.now(UTC))
    routed(fleet)
    asked_by_password()
    routed(fleet)
    [(channel, said)] = said_by(Message.objects.all(), fleet.now)
    assert channel == "otto's mail"
    assert said.startswith("otto signed in on an unknown device: Firefox on Linux from 198.51.100.9, by password.")
    assert "If this was not you" in said
    assert Entry.objects.get(kind="new_device").actor == f"person {otto.pk}"


def test_wrong_password_and_known_device_are_no_news(otto: User) -> None:
    Client().post("/accounts/login/", {"login": "otto", "password": "wrong"})
    assert not Entry.objects.filter(kind="new_device").exists()
    here = asked_by_password()
    here.post("/accounts/logout/")
    asked_by_password(here)
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
