"""Sessions: users list and end their own, admins end any, and no other user sees the address of a session."""

import re
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from fleet.accounts import queries as shown
from fleet.accounts import sessions
from fleet.accounts.models import PersonSession
from fleet.accounts.sessions import LastSeen, browser_of
from fleet.domain.reasons import Refused
from fleet.domain.secrets import hash_of
from fleet.domain.timeline import EntryKind
from fleet.gateway.open_calls import CallCredentials
from fleet.gateway.streams import listener_of
from fleet.models import Entry
from tests import factories
from tests.accounts import FIREFOX
from tests.api.conftest import caller, in_person
from tests.dashboard.conftest import text_of

pytestmark = pytest.mark.django_db
PASSWORD = "harbour-otto"
SAFARI = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 Version/18.1 Mobile Safari/604.1"
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def logged_in(person: User, agent: str = FIREFOX, address: str = "192.0.2.1") -> Client:
    client = Client(headers={"user-agent": agent}, REMOTE_ADDR=address)
    answer = client.post("/accounts/login/", {"login": person.get_username(), "password": PASSWORD})
    assert answer.status_code == 302
    return client


def is_in(client: Client) -> bool:
    return client.get("/you/").status_code == 200


def own(client: Client) -> PersonSession:
    return PersonSession.objects.get(key_hash=hash_of(client.session.session_key or ""))


def rows(person: User) -> tuple[shown.SessionRow, ...]:
    now = datetime.now(UTC)
    return shown.session_rows(username=person.get_username(), session_key="", now=now).results


def test_the_page_names_each_session_its_browser_its_address_and_which_one_this_is(otto: User) -> None:
    here, phone = logged_in(otto), logged_in(otto, SAFARI, "2001:db8::7")
    body = text_of(here.get("/you/sessions/"))
    assert re.search(r"Firefox on Linux this session password .* 192\.0\.2\.1", body)
    assert re.search(r"Safari on iOS password .* 2001:db8::7", body)
    assert body.count("this session") == 1
    assert own(phone).signed_in_at == own(phone).last_seen_at
    assert (here.session.session_key or "") not in str(PersonSession.objects.values_list())


def test_revoked_session_is_refused_at_once_and_the_act_is_audited(otto: User) -> None:
    here, stolen = logged_in(otto), logged_in(otto, SAFARI, "198.51.100.9")
    key = stolen.session.session_key or ""
    answer = here.post(f"/sessions/{own(stolen).pk}/end/")
    assert answer["Location"] == "/you/sessions/"
    assert is_in(here)
    assert not is_in(stolen)
    # A stream looks again at each entry of this kind.
    assert listener_of(CallCredentials("", key, "", None), now=datetime.now(UTC)) is None
    entry = Entry.objects.get(kind=EntryKind.PERSON_CHANGED.value, data__did="session-ended")
    assert (entry.actor, entry.via, entry.after) == (f"person {otto.pk}", "page", {"sessions": 0})
    assert "ended a session of their own" in text_of(here.get("/audit/"))


def test_all_other_sessions_end_and_this_one_continues(otto: User) -> None:
    here, one, two = logged_in(otto), logged_in(otto), logged_in(otto)
    here.post("/you/sessions/end/")
    assert [is_in(client) for client in (here, one, two)] == [True, False, False]
    assert [row.id for row in rows(otto)] == [own(here).pk]
    # An act that ends no session writes no entry.
    here.post("/you/sessions/end/")
    assert Entry.objects.filter(data__did="sessions-ended").count() == 1


@pytest.mark.parametrize("address", ["/sessions/{own}/end/", "/accounts/logout/"])
def test_signed_out_session_ends_and_leaves_the_list(otto: User, address: str) -> None:
    here = logged_in(otto)
    assert here.post(address.format(own=own(here).pk))["Location"].startswith("/accounts/login/")
    assert not is_in(here)
    assert not PersonSession.objects.exists()


def test_a_new_password_ends_all_sessions_but_the_one_in_which_it_was_set(otto: User) -> None:
    here, other = logged_in(otto), logged_in(otto)
    new = "a pier of grey granite"
    fields = {"old_password": "wrong", "new_password1": new, "new_password2": new}
    assert here.post("/you/password/", fields).status_code == 422
    here.post("/you/password/", {**fields, "old_password": PASSWORD})
    line = Entry.objects.get(data__did="password")
    assert (line.actor, line.data["person"]) == (f"person {otto.pk}",) * 2
    assert is_in(here)
    assert not is_in(other)
    assert [(row.id, row.sign_in_method) for row in rows(otto)] == [(own(here).pk, "password")]
    plain = in_person(factories.admin()).post("people/otto/password/").json()["password"]
    assert rows(otto) == ()
    assert not is_in(here)
    assert Client().post("/accounts/login/", {"login": "otto", "password": plain}).status_code == 302
    line = Entry.objects.filter(data__did="password").latest("pk")
    assert (line.before, line.after) == ({"password": "old"}, {"password": "new"})


def test_only_admins_see_and_end_sessions_of_other_users(otto: User) -> None:
    stolen = logged_in(otto, SAFARI, "198.51.100.9")
    vera, ada = (in_person(person).client for person in (factories.viewer(), factories.admin()))
    assert vera.post(f"/sessions/{own(stolen).pk}/end/").status_code == 403
    assert "198.51.100.9" not in text_of(vera.get("/you/sessions/"))
    assert is_in(stolen)
    assert "198.51.100.9" in text_of(ada.get("/people/otto/"))
    assert ada.post("/people/otto/sessions/end/")["Location"] == "/people/otto/"
    assert not is_in(stolen)
    assert Entry.objects.get(data__did="sessions-ended").data["person"] == f"person {otto.pk}"


def test_only_a_superuser_ends_the_sessions_of_one() -> None:
    root = User.objects.create_superuser("root", password=PASSWORD)
    stays = logged_in(root)
    actor = factories.acting(factories.admin())
    with pytest.raises(Refused, match="superuser"):
        sessions.end(actor=actor, session_id=own(stays).pk, now=NOW)
    assert is_in(stays)


def test_the_api_lists_and_ends_them(otto: User) -> None:
    one, two = logged_in(otto), logged_in(otto, SAFARI)
    who, admin = caller(otto, "read", "approve"), caller(factories.admin())
    listed = [(row["browser"], row["system"], row["is_current"]) for row in who.get("sessions/").json()["results"]]
    assert listed == [("Safari", "iOS", False), ("Firefox", "Linux", False)]
    assert who.delete(f"sessions/{own(one).pk}/").status_code == 204
    assert [is_in(one), is_in(two)] == [False, True]
    assert who.post("sessions/end/", {"person": "ada"}).status_code == 403
    assert len(admin.get("people/otto/sessions/").json()["results"]) == 1
    assert admin.get("people/nobody/sessions/").status_code == 404
    assert admin.post("sessions/end/", {"person": "otto"}).json() == {"ended": 1}
    assert not is_in(two)


def test_a_header_of_8_kb_with_markup_is_a_name_out_of_our_table_and_nothing_of_it_is_kept(otto: User) -> None:
    hostile = ("<script>alert(1)</script>\x00" * 400)[:8192]
    client = logged_in(otto, hostile)
    assert (own(client).browser, own(client).system) == ("", "")
    body = client.get("/you/sessions/").content.decode()
    assert "An unknown browser" in body
    assert "alert(1)" not in body
    assert browser_of("x" * 500 + "Firefox/133.0")["browser"] == ""


def test_requests_note_when_a_session_was_seen_once_in_minutes(otto: User, django_assert_num_queries: Any) -> None:
    seen, key = LastSeen(), "a" * 32
    begun = {"user": otto, "session_key": key, "way": "passkey", "agent": FIREFOX, "address": "192.0.2.1"}
    sessions.begin(**begun, now=NOW)  # type: ignore[arg-type]
    with django_assert_num_queries(0):
        for second in range(0, 290, 10):
            seen.note(key, user_id=otto.pk, agent=FIREFOX, address="192.0.2.1", now=NOW + timedelta(seconds=second))
    assert seen.write() == 1
    later = NOW + timedelta(minutes=6)
    seen.note(key, user_id=otto.pk, agent=SAFARI, address="198.51.100.9", now=later)
    with django_assert_num_queries(1):
        assert seen.write() == 1
    row = PersonSession.objects.get()
    assert (row.address, row.last_address, row.last_seen_at) == ("192.0.2.1", "198.51.100.9", later)
    # It is of the login what it was.
    assert (row.sign_in_method, row.browser, row.signed_in_at) == ("passkey", "Firefox", NOW)
    assert seen.write() == 0


def test_whose_session_is_used_from_elsewhere_reads_both_addresses(otto: User) -> None:
    here = logged_in(otto)
    PersonSession.objects.update(last_address="198.51.100.9")
    assert "198.51.100.9 signed in from 192.0.2.1" in text_of(here.get("/you/sessions/"))


def test_session_of_an_older_release_continues_and_is_listed(otto: User, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of this test alone.
    monkeypatch.setattr(sessions, "last_seen", LastSeen())
    client = Client(headers={"user-agent": FIREFOX}, REMOTE_ADDR="192.0.2.1")
    client.force_login(otto)
    assert not PersonSession.objects.exists()
    assert is_in(client)
    sessions.last_seen.write()
    (row,) = rows(otto)
    assert (row.browser, row.sign_in_method, row.signed_in_at, row.address) == ("Firefox", "", None, "")
    assert "before 0.2.0" in text_of(client.get("/you/sessions/"))


def test_facts_about_ended_sessions_are_deleted(otto: User, settings: Any) -> None:
    logged_in(otto)
    Session.objects.all().delete()
    assert rows(otto) == ()
    sessions.forget_sessions(now=datetime.now(UTC))
    assert PersonSession.objects.count() == 1
    age = timedelta(seconds=settings.SESSION_COOKIE_AGE, minutes=1)
    sessions.forget_sessions(now=datetime.now(UTC) + age)
    assert not PersonSession.objects.exists()


def test_a_session_of_an_account_that_is_not_there_keeps_no_other_back(transactional_db: None) -> None:
    seen, here = LastSeen(), "192.0.2.1"
    seen.note("a" * 32, user_id=404, agent=FIREFOX, address=here, now=NOW)
    assert seen.write() == 0
    seen.note("b" * 32, user_id=factories.viewer().pk, agent=FIREFOX, address=here, now=NOW)
    assert seen.write() == 1


def test_migration_lists_the_active_sessions(otto: User) -> None:
    client = Client()
    client.force_login(otto)
    # A stranger's, who only asked for a challenge.
    Client().get("/accounts/passkey/")
    import_module("fleet.migrations.0013_data_0_2").list_sessions(apps, None)
    row = PersonSession.objects.get()
    assert (row.user_id, row.key_hash, row.sign_in_method) == (otto.pk, hash_of(client.session.session_key or ""), "")
    assert row.last_seen_at <= datetime.now(UTC)
