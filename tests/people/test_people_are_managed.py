"""Admins manage people; everybody their own tokens and settings. Each change has its line, never with a secret."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from fleet.accounts import services as account_services
from fleet.accounts import tokens
from fleet.domain.people import Right
from fleet.domain.reasons import Refused
from fleet.models import ApiToken, Entry, Scope
from fleet.models.people import rights_of
from tests import accounts, factories
from tests.api.conftest import Caller, caller, in_person, problem
from tests.dashboard.conftest import logged_in, text_of
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
    session = logged_in(User.objects.get(username="otto"))
    assert admin("PATCH", "people/otto/", {"group": "viewer"}).status_code == 200
    problem(otto.post("events/X/claims/", {"comment": ""}), 403, "not-permitted")
    assert (lines()[-1].before, lines()[-1].after) == ({"groups": ["operator"]}, {"groups": ["viewer"]})
    scopes = [{"kind": "service", "pattern": "shop"}]
    assert admin("PATCH", "people/otto/", {"scopes": scopes}).json()["scopes"] == scopes
    assert (lines()[-1].before, lines()[-1].after) == ({"scopes": []}, {"scopes": ["service: shop"]})
    assert admin("PATCH", "people/otto/", {"scopes": scopes}).status_code == 200
    assert len(lines()) == 2
    assert session.get("/").status_code == 200
    assert admin("PATCH", "people/otto/", {"active": False}).status_code == 200
    problem(otto.get("me/"), 401, "not-authenticated")
    assert session.get("/").status_code == 302
    assert admin("PATCH", "people/otto/", {"active": True}).status_code == 200
    # What has ended does not come back.
    problem(otto.get("me/"), 401, "not-authenticated")
    assert session.get("/").status_code == 302
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
    answers = [session.post("/you/password/", fields) for _ in range(7)]
    assert [answer.status_code for answer in answers] == [422] * 5 + [429] * 2
    assert int(answers[-1]["Retry-After"]) >= 1
    right = session.post("/you/password/", {**fields, "old_password": "harbour-otto"})
    assert right.status_code == 429
    assert User.objects.get(username="otto").check_password("harbour-otto")


def test_a_token_gives_no_more_than_its_person_and_its_own_token_have() -> None:
    otto = factories.operator()
    problem(caller(otto).post("tokens/", {"name": "x", "scopes": ["read", "admin"]}), 403, "not-permitted")
    narrow = caller(factories.admin(), "read", "approve")
    problem(narrow.post("tokens/", {"name": "x", "scopes": ["admin"]}), 403, "not-permitted")
    short, wanted = caller(otto, "read", "approve", expires_in=timedelta(hours=1)), ["read", "approve"]
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
