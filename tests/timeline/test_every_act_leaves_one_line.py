"""Audit of user actions: through every page and call that changes something, each act writes one complete entry."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet.accounts import external_accounts
from fleet.accounts.models import SignOn, SignOnGrant
from fleet.models import Entry, OutsideAccount, SavedView
from fleet.models.timeline import ACTING
from tests import factories
from tests.api.conftest import Caller, caller, in_person, problem
from tests.api.described import required_scopes
from tests.every_write import IN_PERSON, OTHER, api_steps, busy_fleet
from tests.factories import EVENT, Fleet
from tests.people.signed_in import a_session

pytestmark = pytest.mark.django_db
# Calls that leave another number of lines, each with its reason; tests of their own look at them.
OTHERWISE = {
    ("post", "/api/v1/rules/dry-run/"): "it looks back only",
    ("post", "/api/v1/routes/dry-run/"): "the same",
    ("post", "/api/v1/sign-on/dry-run/"): "it asks who would be what",
    ("post", "/api/v1/waves/"): "one line for the wave, and one for each decision in it",
    ("delete", "/api/v1/waves/<int:wave_id>/"): "the same",
}


@pytest.fixture
def fleet(db: None, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    # A channel test waits for the channel's answer, which never arrives here.
    monkeypatch.setattr("fleet.notifications.api.TEST_SECONDS", 0.0)
    return busy_fleet()


def the_line(request_id: str) -> Entry:
    """The one act of this request."""
    found = list(Entry.objects.filter(request_id=request_id, via__in=ACTING))
    assert len(found) == 1, [(line.kind, line.text) for line in found]
    line = found[0]
    assert line.address == "127.0.0.1"
    assert line.before != line.after, line.text
    return line


def test_every_call_of_the_api_leaves_one_line(fleet: Fleet) -> None:
    ada = factories.admin()
    callers = {"ada": caller(ada), IN_PERSON: in_person(ada), "anna": caller(factories.approver())}
    walked, made = set(), ""
    for number, (how, route, (address, body)) in enumerate(api_steps(fleet)):
        method, _, who = how.partition(" as ")
        who = who or "ada"
        answer = callers[who](method, address.format(made=made), body, X_Request_ID=f"step-{number}")
        assert answer.status_code < 300, (how, address, answer.content)
        line = the_line(f"step-{number}")
        token = "" if who == IN_PERSON else "tests"
        assert (factories.who(line), line.via, line.token_name) == (who.split()[0], "api", token), (how, address)
        if isinstance(body, dict) and (reason := body.get("comment") or body.get("reason")):
            assert reason in line.why, (how, address)
        walked.add((method.lower(), f"/api/v1/{route}"))
        said = answer.json() if answer.content else {}
        made = str(said.get("prefix") or said.get("id") or "") if isinstance(said, dict) else ""
    writing = {call for call in required_scopes() if call[0] != "get"}
    assert writing - walked - set(OTHERWISE) == set(), "a writing call that this walk does not make yet"


NEW = "a whole new harbour"
INVENTORY = "[]"
FORMS: list[tuple[str, dict[str, str]]] = [
    (f"/events/{EVENT}/claim/", {"comment": "mine"}),
    (f"/events/{EVENT}/give-back/", {}),
    (f"/events/{EVENT}/hold/", {"reason": "let it run"}),
    (f"/events/{EVENT}/lift/", {}),
    (f"/events/{EVENT}/approve/", {"comment": "go"}),
    ("/sets/{web}/second-person/", {"second_person": "True"}),
    ("/sets/{web}/needs/", {"min_live": "5"}),
    ("/you/settings/", {"time_zone": "Europe/Berlin", "shortcuts": "on"}),
    ("/handover/read/", {"until": "2026-11-01T06:00:00Z"}),
    ("/you/tokens/", {"name": "deploys", "scopes": "read", "expires_in_seconds": "604800"}),
    ("/tokens/{token}/end/", {}),
    ("/you/calendars/", {"name": "Web", "service": "web"}),
    ("/you/calendars/{calendar}/end/", {}),
    ("/views/save/", {"name": "Web", "page": "sets", "query": "q=web", "shared": "on"}),
    ("/views/{view}/delete/", {}),
    ("/you/password/", {"old_password": "harbour-ada", "new_password1": NEW, "new_password2": NEW}),
    ("/people/new/", {"username": "nina", "group": "viewer"}),
    ("/people/nina/change/", {"group": "operator", "is_active": "on"}),
    ("/people/nina/password/", {}),
    ("/people/service/", {"username": "bot", "group": "viewer", "owner": "ada", "purpose": "deploys", "scopes": ""}),
    ("/people/bot/service/", {"owner": "ada", "purpose": "releases"}),
    ("/people/bot/tokens/", {"name": "ci", "scopes": "read", "expires_in_seconds": "604800"}),
    ("/sets/{web}/spares/", {"exempt_service_accounts": "1"}),
    ("/sessions/{session}/end/", {}),
    ("/people/nina/sessions/end/", {}),
    ("/you/sessions/end/", {}),
    ("/sign-on/lines/", {"value": "Drydock.Operator", "group": "operator", "scopes": "name: web*"}),
    ("/sign-on/lines/{line}/", {"group": "viewer", "scopes": ""}),
    ("/sign-on/lines/{line}/delete/", {}),
    ("/sign-on/links/", {"username": "nina", "subject": "7f1c"}),
    ("/sign-on/links/{link}/end/", {}),
    ("/first-steps/sets/{stray}/name/", {"name": "jetty", "kind": "availability_set"}),
    ("/first-steps/entrance/", {"policy": "admit"}),
    ("/first-steps/token/", {}),
    ("/first-steps/put-away/", {}),
    ("/inventory/take/", {"pasted": INVENTORY, "what": "import"}),
    ("/sets/{stray}/merge/", {"into": "{web}"}),
    ("/you/accounts/{invitation}/link/", {}),
    ("/you/accounts/{account}/unlink/", {}),
]  # fmt: skip


def test_every_form_of_the_pages_leaves_one_line(fleet: Fleet, settings: Any) -> None:
    settings.OIDC_ISSUER, settings.ENROLMENT_POLICY = "https://login.example", ""
    session = in_person(factories.admin()).client
    named = {"web": str(factories.the_set().pk), "stray": str(fleet.agents["stray"].machine.availability_set_id)}
    named["invitation"] = external_accounts.invitation(kind="slack", team="T1", account="U1", name="ada.l")
    for number, (address, fields) in enumerate(FORMS):
        sent = {name: value.format(**named) for name, value in fields.items()}
        answer = session.post(address.format(**named), sent, headers={"X-Request-ID": f"form-{number}"})
        assert answer.status_code in (200, 302), (address, answer.content[-2000:])
        line = the_line(f"form-{number}")
        assert (factories.who(line), line.via, line.token_name) == ("ada", "page", ""), address
        if address == "/you/tokens/" and line.after:
            named["token"] = line.after["prefix"]
        if address == "/people/nina/password/":
            nina = User.objects.get(username="nina")
            named["session"] = str(a_session(nina).pk)
            a_session(nina)
            a_session(User.objects.get(username="ada"))
        if address == "/you/calendars/" and line.after:
            named["calendar"] = line.after["prefix"]
        if address == "/views/save/":
            named["view"] = str(SavedView.objects.get().pk)
        if address == "/sign-on/lines/":
            named["line"] = str(SignOnGrant.objects.get().pk)
        if address == "/sign-on/links/":
            named["link"] = str(SignOn.objects.get().pk)
        if address.endswith("/link/"):
            named["account"] = str(OutsideAccount.objects.get().pk)


def test_refusal_names_the_scopes_of_the_user(fleet: Fleet) -> None:
    otto: Caller = caller(factories.operator())
    admin = in_person(factories.admin())
    admin("PATCH", "people/otto/", {"scopes": [{"kind": "name", "pattern": "work*"}]})
    for address, body in (("approvals/", {"comment": ""}), ("claims/", {}), ("holds/", {"reason": "x"})):
        assert "work*" in problem(otto.post(f"events/{EVENT}/{address}", body), 403, "not-permitted")["detail"]
    admin("PATCH", "people/otto/", {"scopes": [{"kind": "name", "pattern": "WEB"}]})
    assert otto.post(f"events/{EVENT}/claims/", {}).status_code == 201
    assert "WEB" in problem(otto.post(f"events/{OTHER}/claims/", {}), 403, "not-permitted")["detail"]
