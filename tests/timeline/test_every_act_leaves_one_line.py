"""All doors through which people change something, one after the other: each act is one line that says everything."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern

from fleet.models import Entry, OutsideAccount, SavedView, SignOn, SignOnGrant
from fleet.models.timeline import ACTING
from fleet.operations.people import outside
from fleet.urls import PAGES
from tests import factories
from tests.api.conftest import Caller, caller, in_person, problem
from tests.api.described import required_scopes
from tests.dashboard.conftest import logged_in
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
    # Whoever tries a channel waits for its answer, which nobody gives here.
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


def addresses() -> Iterator[tuple[str, str]]:
    """Name and an address of every page."""
    for pattern in PAGES:
        if isinstance(pattern, URLPattern):
            values = {"int": "1", "event": EVENT, "str": "ada"}
            text = str(pattern.pattern)
            for kind, value in values.items():
                while f"<{kind}:" in text:
                    before, _, rest = text.partition(f"<{kind}:")
                    text = before + value + rest.partition(">")[2]
            yield str(pattern.name), f"/{text}"


# Answers that say of each thing that was chosen what became of it.
A_RESULT_EACH = {"bulk-undo"}


def test_pages_that_only_take_forms_refuse_who_has_not_logged_in_and_who_may_not(fleet: Fleet) -> None:
    reader, stranger = logged_in(factories.viewer()), Client()
    # Such a page refuses the method before it asks who is there, which is quicker than showing every other page.
    forms = [(name, address) for name, address in addresses() if stranger.get(address).status_code == 405]
    assert len(forms) > 10
    before = Entry.objects.filter(via="page").count()
    # Their own things are everybody's to change, and the door is everybody's.
    own = {
        "you-settings",
        "handover-read",
        "first-steps-put-away",
        "token-make",
        "calendar-make",
        "browser-tell",
        "browser-key",
        "logout",
        "sessions-end-others",
        "login-again",
        "login-again-factor",
        "rule-dry-run",
    }
    for name, address in forms:
        if name in own:
            continue
        assert stranger.post(address).status_code == 302, name
        said = (200,) if name in A_RESULT_EACH else (302, 403, 404, 409, 422)
        assert reader.post(address, {"name": "x", "into": "1", "approval": "1"}).status_code in said, name
    assert Entry.objects.filter(via="page").count() == before


NEW = "a whole new harbour"
INVENTORY = "[]"
FORMS: list[tuple[str, dict[str, str]]] = [
    (f"/events/{EVENT}/claim/", {"comment": "mine"}),
    (f"/events/{EVENT}/give-back/", {}),
    (f"/events/{EVENT}/hold/", {"reason": "let it run"}),
    (f"/events/{EVENT}/lift/", {}),
    (f"/events/{EVENT}/approve/", {"comment": "go"}),
    ("/sets/{web}/second-person/", {"second_person": "True"}),
    ("/sets/{web}/needs/", {"needs_live": "5"}),
    ("/you/settings/", {"time_zone": "Europe/Berlin", "shortcuts": "on"}),
    ("/handover/read/", {"until": "2026-11-01T06:00:00Z"}),
    ("/you/tokens/", {"name": "deploys", "scopes": "read", "days": "7"}),
    ("/tokens/{token}/end/", {}),
    ("/you/calendars/", {"name": "Web", "service": "web"}),
    ("/you/calendars/{calendar}/end/", {}),
    ("/views/save/", {"name": "Web", "page": "sets", "query": "q=web", "shared": "on"}),
    ("/views/{view}/delete/", {}),
    ("/you/password/", {"old_password": "harbour-ada", "new_password1": NEW, "new_password2": NEW}),
    ("/people/new/", {"username": "nina", "group": "viewer"}),
    ("/people/nina/change/", {"group": "operator", "active": "on"}),
    ("/people/nina/password/", {}),
    ("/people/service/", {"username": "bot", "group": "viewer", "owner": "ada", "purpose": "deploys", "scopes": ""}),
    ("/people/bot/service/", {"owner": "ada", "purpose": "releases"}),
    ("/people/bot/tokens/", {"name": "ci", "scopes": "read", "days": "7"}),
    ("/sets/{web}/spares/", {"spares": "1"}),
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
    named["invitation"] = outside.invitation(kind="slack", team="T1", account="U1", name="ada.l")
    for number, (address, fields) in enumerate(FORMS):
        sent = {name: value.format(**named) for name, value in fields.items()}
        answer = session.post(address.format(**named), sent, headers={"X-Request-ID": f"form-{number}"})
        assert answer.status_code in (200, 302), (address, answer.content[-2000:])
        line = the_line(f"form-{number}")
        assert (factories.who(line), line.via, line.token_name) == ("ada", "page", ""), address
        if address == "/you/tokens/" and line.after:
            named["token"] = line.after["token"]
        if address == "/people/nina/password/":
            nina = User.objects.get(username="nina")
            named["session"] = str(a_session(nina).pk)
            a_session(nina)
            a_session(User.objects.get(username="ada"))
        if address == "/you/calendars/" and line.after:
            named["calendar"] = line.after["calendar"]
        if address == "/views/save/":
            named["view"] = str(SavedView.objects.get().pk)
        if address == "/sign-on/lines/":
            named["line"] = str(SignOnGrant.objects.get().pk)
        if address == "/sign-on/links/":
            named["link"] = str(SignOn.objects.get().pk)
        if address.endswith("/link/"):
            named["account"] = str(OutsideAccount.objects.get().pk)


@pytest.mark.parametrize(
    ("group", "scope", "right"),
    [
        ("viewer", "approve", "an operator"),
        ("viewer", "admin", "an admin"),
        ("operator", "admin", "an admin"),
        ("approver", "admin", "an admin"),
    ],
)
def test_every_refusal_of_a_call_names_the_missing_right(group: str, scope: str, right: str) -> None:
    who = caller(factories.person("pia", group))
    calls = [(method, route) for (method, route), needed in required_scopes().items() if needed == scope]
    assert len(calls) > 5
    for method, route in calls:
        address = (
            route.replace("<str:event_id>", EVENT).replace("<str:username>", "pia").replace("<str:prefix>", "dd_x")
        )
        address = re.sub(r"<int:\w+>", "1", address)
        said = problem(who(method.upper(), address, {}), 403, "not-permitted")["detail"]
        assert f"the right of {right}" in said, (method, route, said)


def test_a_token_without_the_scope_is_told_which(fleet: Fleet) -> None:
    said = problem(
        caller(factories.admin(), "read").post(f"events/{EVENT}/approvals/", {"comment": ""}), 403, "not-permitted"
    )
    assert "the scope `approve`" in said["detail"]
    said = problem(caller(factories.admin(), "read").post("join-tokens/", {"comment": ""}), 403, "not-permitted")
    assert "the scope `admin`" in said["detail"]


def test_somebody_scoped_to_other_sets_is_told_where_the_right_ends(fleet: Fleet) -> None:
    otto: Caller = caller(factories.operator())
    admin = in_person(factories.admin())
    admin("PATCH", "people/otto/", {"scopes": [{"kind": "name", "pattern": "work*"}]})
    for address, body in (("approvals/", {"comment": ""}), ("claims/", {}), ("holds/", {"reason": "x"})):
        said = problem(otto.post(f"events/{EVENT}/{address}", body), 403, "not-permitted")["detail"]
        assert "Your right does not cover the set web: it covers name work*." in said
    admin("PATCH", "people/otto/", {"scopes": [{"kind": "name", "pattern": "WEB"}]})
    assert otto.post(f"events/{EVENT}/claims/", {}).status_code == 201
    said = problem(otto.post(f"events/{OTHER}/claims/", {}), 403, "not-permitted")["detail"]
    assert "it covers name WEB" in said
