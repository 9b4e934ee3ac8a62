"""Accounts in Slack and PagerDuty: an admin links one to a user, or the user does with an invitation."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.accounts import external_accounts
from fleet.domain.reasons import Refused
from fleet.models import Entry, OutsideAccount
from fleet.projections.timeline.entries import rows_of
from fleet.wording.say import text_of
from fleet.wording.times import API
from tests import factories
from tests.dashboard.conftest import logged_in

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)
THEIRS = {"kind": "slack", "team": "T1", "account": "U1"}


def link(by: Any, username: str, **changed: str) -> OutsideAccount:
    return external_accounts.link(actor=factories.acting(by), username=username, now=NOW, **{**THEIRS, **changed})


def test_an_admin_says_whose_an_account_is_and_one_line_tells_it() -> None:
    factories.operator()
    link(factories.admin(), "otto", name="otto.o")
    link(factories.admin(), "otto")
    found = external_accounts.person_of(**THEIRS)
    assert found is not None and found.get_username() == "otto"
    line = Entry.objects.get(kind="person_changed")
    assert (factories.who(line), line.before, line.after) == ("ada", {"account": None}, {"account": "U1"})
    (row,) = rows_of([line])
    assert text_of(row, API) == "ada linked the Slack account U1 to otto. Its claims count as claims of otto."


def test_only_admins_link_accounts_and_no_linked_one_is_reassigned() -> None:
    otto, anna = factories.operator(), factories.approver()
    for person in (otto, anna):
        with pytest.raises(Refused, match="not-permitted"):
            link(person, person.username)
    link(factories.admin(), "otto")
    for wrong in ({"username": "anna"}, {"username": "otto", "kind": "teams"}, {"username": "otto", "account": "U 1"}):
        with pytest.raises(Refused, match="validation"):
            link(factories.admin(), **wrong)
    User.objects.filter(pk=otto.pk).update(is_superuser=True)
    for name, code in (("nobody", "unknown-person"), ("otto", "not-permitted")):
        with pytest.raises(Refused, match=code):
            link(factories.admin(), name, account="U2")


def test_an_invitation_counts_for_ten_minutes_and_only_as_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    otto = factories.acting(factories.operator())
    token = external_accounts.invitation(**THEIRS, name="otto.o")
    for wrong in ("", "x", token[:-1], token + "x"):
        with pytest.raises(Refused):
            external_accounts.link_own(actor=otto, token=wrong, now=NOW)
    with monkeypatch.context() as patch:
        patch.setattr(external_accounts, "INVITATION", timedelta(seconds=-1))
        with pytest.raises(Refused):
            external_accounts.link_own(actor=otto, token=token, now=NOW)
    external_accounts.link_own(actor=otto, token=token, now=NOW)
    # Another user who finds the link later does not get the account.
    with pytest.raises(Refused):
        external_accounts.link_own(actor=factories.acting(factories.approver()), token=token, now=NOW)
    assert OutsideAccount.objects.get().user == otto.person


def test_opening_the_link_does_nothing_and_needs_a_login() -> None:
    address = f"/you/accounts/{external_accounts.invitation(**THEIRS, name='<b>otto')}/"
    assert Client().get(address).status_code == 302
    otto = logged_in(factories.operator())
    shown = otto.get(address)
    assert (shown.status_code, b"&lt;b&gt;otto" in shown.content) == (200, True)
    assert not OutsideAccount.objects.exists()
    assert otto.get("/you/accounts/made-up/").status_code == 422
    assert otto.post("/you/accounts/made-up/link/").status_code == 422
    assert otto.post(f"{address}link/", headers={"X-Request-ID": "r"}).status_code == 302
    assert Entry.objects.filter(request_id="r", via="page", kind="person_changed").count() == 1


def test_users_unlink_their_own_accounts_and_admins_any() -> None:
    otto, anna = factories.operator(), factories.approver()
    row = link(factories.admin(), "otto")
    assert b"U1" in logged_in(otto).get("/you/").content
    for_anna = logged_in(anna)
    assert b"U1" not in for_anna.get("/you/").content
    assert for_anna.post(f"/you/accounts/{row.pk}/unlink/").status_code == 403
    assert logged_in(otto).post(f"/you/accounts/{row.pk}/unlink/").status_code == 302
    assert external_accounts.person_of(**THEIRS) is None
    again = link(factories.admin(), "otto")
    external_accounts.unlink(actor=factories.acting(factories.admin()), account_id=again.pk, now=NOW)
    lines = Entry.objects.filter(kind="person_changed").order_by("pk")
    assert [line.data["did"] for line in lines] == ["linked", "unlinked"] * 2


def test_unlinked_accounts_are_recorded_without_a_user() -> None:
    factories.operator()
    link(factories.admin(), "otto")
    external_accounts.note_stranger(kind="pagerduty", team="", account="P1", name="Anna\x00", now=NOW)
    assert OutsideAccount.objects.get(user=None).name == "Anna"
    # A linked account stays linked, however often its owner presses.
    external_accounts.note_stranger(**THEIRS, name="other", now=NOW)
    assert external_accounts.person_of(**THEIRS) is not None
