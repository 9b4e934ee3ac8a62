"""All doors through which people change something, one after the other: each act is one line that says everything."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern
from drydock_agent import wire

from fleet.api.reference import needs
from fleet.dashboard.urls import urlpatterns
from fleet.models import Admission, Approval, Channel, Drill, Entry, OutsideAccount, Route, Rule, SavedView
from fleet.models.timeline import ACTING
from fleet.operations.machines import enrolment
from fleet.operations.people import outside
from tests import factories
from tests.api.conftest import Caller, caller, problem
from tests.dashboard.conftest import logged_in
from tests.factories import EVENT, Fleet
from tests.messages import messages

pytestmark = pytest.mark.django_db
OTHER = "0A1B2C3D-0000-4000-8000-00000000000A"
SAMPLES = Path(__file__).parent.parent / "samples"
RULE = {"name": "Short freezes", "reason": "Nobody notices.", "action": "hold", "event_types": ["Freeze"]}
WINDOW = {"name": "Sale", "reason": "The shop is full.", "weekdays": [4], "from_time": "18:00", "time_zone": "UTC"}
# Calls that leave another number of lines, each with its reason; tests of their own look at them.
OTHERWISE = {
    ("post", "/api/v1/rules/dry-run/"): "it looks back only",
    ("post", "/api/v1/routes/dry-run/"): "the same",
    ("post", "/api/v1/waves/"): "one line for the wave, and one for each decision in it",
    ("delete", "/api/v1/waves/<int:wave_id>/"): "the same",
}

Step = tuple[str, str, Any]


@pytest.fixture
def fleet(db: None, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A set of six with an event, a set of one with another, one without, and a machine whose set nobody stated."""
    found = Fleet(now=datetime.now(UTC))
    factories.announced(found)
    found.enrol("w1", availability_set="standalone:w1")
    found.enrol("d1", availability_set="dock")
    found.say("d1")
    found.enrol("stray", availability_set="")
    due = found.now + timedelta(minutes=15)
    found.say("w1", factories.listing(OTHER, resources=("w1",), not_before=due))
    Rule.objects.all().delete()
    # Whoever tries a channel waits for its answer, which nobody gives here.
    monkeypatch.setattr("fleet.api.views.messages.TEST_SECONDS", 0.0)
    return found


def api_steps(fleet: Fleet) -> Iterator[Step]:
    """Every writing call as (method, route, address and body); made one by one, for some need what others made."""
    web, stray = factories.the_set(), fleet.agents["stray"].machine.availability_set_id
    at = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    event = f"events/{EVENT}/"

    def newest(model: Any) -> int:
        return int(model.objects.order_by("-pk").values_list("pk", flat=True)[0])

    yield "PATCH", "sets/<int:set_id>/", (f"sets/{web.pk}/", {"service": "shop"})
    yield "POST", "sets/<int:set_id>/admissions/", (f"sets/{web.pk}/admissions/", {"until": at})
    yield "POST", "sets/<int:set_id>/merge/", (f"sets/{stray}/merge/", {"into": web.pk})
    yield "POST", "inventory/", ("inventory/", json.loads((SAMPLES / "az_vm_list.json").read_text()))
    yield "POST", "machines/<int:machine_id>/revoke/", (f"machines/{fleet.agents['vm6'].machine.pk}/revoke/", None)
    moved = f"machines/{fleet.agents['vm6'].machine.pk}/move/"
    yield "POST", "machines/<int:machine_id>/move/", (moved, {"set": web.pk, "comment": "rebuilt"})
    for name in ("vm1", "vm2"):
        asking = {"join_token": fleet.join_token, "machine_id": fleet.agents[name].machine.vm_id, "ask": name}
        enrolment.enrol(request=wire.EnrolRequest(**asking), now=fleet.now)
    one, two = Admission.objects.order_by("pk").values_list("pk", flat=True)
    yield "POST", "admissions/admit/", ("admissions/admit/", {"ids": [one]})
    yield "POST", "admissions/refuse/", ("admissions/refuse/", {"ids": [two]})
    yield "POST", "join-tokens/", ("join-tokens/", {"comment": "rack 7"})
    yield "DELETE", "join-tokens/<str:prefix>/", ("join-tokens/{made}/", None)
    yield "POST", "events/<str:event_id>/claims/", (f"{event}claims/", {"comment": "mine"})
    yield "DELETE", "events/<str:event_id>/claims/", (f"{event}claims/", None)
    yield "POST", "bulk/claims/", ("bulk/claims/", {"events": [EVENT], "comment": "mine again"})
    yield "POST", "events/<str:event_id>/holds/", (f"{event}holds/", {"reason": "let it run"})
    yield "DELETE", "events/<str:event_id>/holds/", (f"{event}holds/", None)
    yield "POST", "events/<str:event_id>/approvals/", (f"{event}approvals/", {"comment": "later", "when": at})
    yield "DELETE", "approvals/<int:approval_id>/", (f"approvals/{newest(Approval)}/", {"comment": "no"})
    yield "PATCH", "sets/<int:set_id>/", (f"sets/{web.pk}/", {"second_person": True})
    yield "POST", "events/<str:event_id>/approvals/", (f"{event}approvals/", {"comment": "with two"})
    yield "POST as anna", "approvals/<int:approval_id>/consents/", (f"approvals/{newest(Approval)}/consents/", {})
    yield "POST", "bulk/approvals/", ("bulk/approvals/", {"events": [OTHER], "comment": "and this"})
    yield "POST", "drills/", ("drills/", {"set": factories.the_set("dock").pk, "comment": "spring"})
    yield "DELETE", "drills/<int:drill_id>/", (f"drills/{newest(Drill)}/", {"comment": "enough"})
    yield "POST", "rules/", ("rules/", RULE)
    yield "PATCH", "rules/<int:rule_id>/", (f"rules/{newest(Rule)}/", {"enabled": True})
    yield "DELETE", "rules/<int:rule_id>/", (f"rules/{newest(Rule)}/", None)
    yield "POST", "no-approval-windows/", ("no-approval-windows/", WINDOW)
    yield "DELETE", "no-approval-windows/<int:window_id>/", ("no-approval-windows/{made}/", None)
    hook = {"name": "hook", "kind": "webhook", "url": "https://hooks.example.org/1"}
    yield "POST", "channels/", ("channels/", hook)
    channel = newest(Channel)
    yield "PATCH", "channels/<int:channel_id>/", (f"channels/{channel}/", {"url": "https://hooks.example.org/2"})
    yield "POST", "channels/<int:channel_id>/rotate/", (f"channels/{channel}/rotate/", None)
    yield "POST", "channels/<int:channel_id>/test/", (f"channels/{channel}/test/", None)
    yield "POST", "routes/", ("routes/", {"name": "all", "channel": channel})
    yield "PATCH", "routes/<int:route_id>/", (f"routes/{newest(Route)}/", {"service": "shop"})
    told = messages.delivered(Channel.objects.get(), fleet.now)
    yield "POST", "messages/<int:message_id>/redeliver/", (f"messages/{told.pk}/redeliver/", None)
    yield "DELETE", "routes/<int:route_id>/", (f"routes/{newest(Route)}/", None)
    yield "DELETE", "channels/<int:channel_id>/", (f"channels/{channel}/", None)
    yield "PATCH", "me/", ("me/", {"time_zone": "Europe/Berlin"})
    yield "POST", "tokens/", ("tokens/", {"name": "deploys", "scopes": ["read"]})
    yield "DELETE", "tokens/<str:prefix>/", ("tokens/{made}/", None)
    yield "POST", "people/", ("people/", {"username": "nina", "group": "viewer"})
    yield "PATCH", "people/<str:username>/", ("people/nina/", {"active": False})
    yield "POST", "people/<str:username>/password/", ("people/nina/password/", None)
    yield "POST as anna", "stop/", ("stop/", {"comment": "it runs wild"})
    yield "POST", "stop/lift/", ("stop/lift/", {"comment": "mended"})


def the_line(request_id: str) -> Entry:
    """The one act of this request."""
    found = list(Entry.objects.filter(request_id=request_id, via__in=ACTING))
    assert len(found) == 1, [(line.kind, line.text) for line in found]
    line = found[0]
    assert line.address == "127.0.0.1"
    assert line.before != line.after, line.text
    return line


def test_every_call_of_the_api_leaves_one_line(fleet: Fleet) -> None:
    callers = {"ada": caller(factories.admin()), "anna": caller(factories.approver())}
    walked, made = set(), ""
    for number, (how, route, (address, body)) in enumerate(api_steps(fleet)):
        method, _, who = how.partition(" as ")
        who = who or "ada"
        answer = callers[who](method, address.format(made=made), body, X_Request_ID=f"step-{number}")
        assert answer.status_code < 300, (how, address, answer.content)
        line = the_line(f"step-{number}")
        assert (line.actor, line.via, line.token_name) == (who, "api", "tests"), (how, address)
        if isinstance(body, dict) and (reason := body.get("comment") or body.get("reason")):
            assert reason in line.why, (how, address)
        walked.add((method.lower(), f"/api/v1/{route}"))
        said = answer.json() if answer.content else {}
        made = str(said.get("prefix") or said.get("id") or "") if isinstance(said, dict) else ""
    writing = {call for call in needs() if call[0] != "get"}
    assert writing - walked - set(OTHERWISE) == set(), "a writing call that this walk does not make yet"


def addresses() -> Iterator[tuple[str, str]]:
    """Name and an address of every page."""
    for pattern in urlpatterns:
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
    forms = [(name, address) for name, address in addresses() if reader.get(address).status_code == 405]
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
        "login-again",
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
PAGES: list[tuple[str, dict[str, str]]] = [
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
    ("/first-steps/sets/{stray}/name/", {"name": "jetty", "kind": "availability_set"}),
    ("/first-steps/token/", {}),
    ("/first-steps/put-away/", {}),
    ("/inventory/take/", {"pasted": INVENTORY, "what": "import"}),
    ("/sets/{stray}/merge/", {"into": "{web}"}),
    ("/you/accounts/{invitation}/link/", {}),
    ("/you/accounts/{account}/unlink/", {}),
]  # fmt: skip


def test_every_form_of_the_pages_leaves_one_line(fleet: Fleet) -> None:
    session = logged_in(factories.admin())
    named = {"web": str(factories.the_set().pk), "stray": str(fleet.agents["stray"].machine.availability_set_id)}
    named["invitation"] = outside.invitation(kind="slack", team="T1", account="U1", name="ada.l")
    for number, (address, fields) in enumerate(PAGES):
        sent = {name: value.format(**named) for name, value in fields.items()}
        answer = session.post(address.format(**named), sent, headers={"X-Request-ID": f"form-{number}"})
        assert answer.status_code in (200, 302), (address, answer.content[-2000:])
        line = the_line(f"form-{number}")
        assert (line.actor, line.via, line.token_name) == ("ada", "page", ""), address
        if address == "/you/tokens/" and line.after:
            named["token"] = line.after["token"]
        if address == "/you/calendars/" and line.after:
            named["calendar"] = line.after["calendar"]
        if address == "/views/save/":
            named["view"] = str(SavedView.objects.get().pk)
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
    calls = [(method, route) for (method, route), needed in needs().items() if needed == scope]
    assert len(calls) > 5
    for method, route in calls:
        address = (
            route.replace("<str:event_id>", EVENT).replace("<str:username>", "pia").replace("<str:prefix>", "dd_x")
        )
        for name in ("set_id", "machine_id", "approval_id", "rule_id", "window_id", "wave_id", "drill_id"):
            address = address.replace(f"<int:{name}>", "1")
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
    admin = caller(factories.admin())
    admin("PATCH", "people/otto/", {"scopes": [{"kind": "name", "pattern": "work*"}]})
    for address, body in (("approvals/", {"comment": ""}), ("claims/", {}), ("holds/", {"reason": "x"})):
        said = problem(otto.post(f"events/{EVENT}/{address}", body), 403, "not-permitted")["detail"]
        assert "Your right does not cover the set web: it covers name work*." in said
    admin("PATCH", "people/otto/", {"scopes": [{"kind": "name", "pattern": "WEB"}]})
    assert otto.post(f"events/{EVENT}/claims/", {}).status_code == 201
    said = problem(otto.post(f"events/{OTHER}/claims/", {}), 403, "not-permitted")["detail"]
    assert "it covers name WEB" in said
