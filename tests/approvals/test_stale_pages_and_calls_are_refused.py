"""Versions: pages and calls state the version of an event or rule, and the server refuses a stale one."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from fleet.domain.approvals.conditions import When
from fleet.models import Approval, Claim, Hold, Rule, Wave
from fleet.operations.policy import rules
from tests import factories
from tests.api.conftest import Caller, caller, problem
from tests.approvals.asking import OTHER
from tests.dashboard.conftest import logged_in
from tests.factories import EVENT, Fleet, acting, after, listing, seconds, the_event, the_set
from tests.policy.conftest import made

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    """Pages and API go by the real clock."""
    return Fleet(now=datetime.now(UTC))


def reported(fleet: Fleet, minutes: float = 15, **fields: Any) -> None:
    """Two events, the first of them as these fields say."""
    due = fleet.now + seconds(60 * minutes)
    fleet.all_say(
        listing(**{"resources": ["vm1"], "not_before": due, **fields}),
        listing(OTHER, resources=["vm2"], not_before=fleet.now + seconds(1200)),
    )


@pytest.fixture
def two(fleet: Fleet) -> Fleet:
    fleet.enrol_set()
    reported(fleet)
    return fleet


def proposed(fleet: Fleet) -> Approval:
    factories.change_set(set_id=the_set().pk, actor=acting(factories.admin()), now=fleet.now, second_person=True)
    approval = fleet.approve()
    assert approval.state == "PROPOSED"
    return approval


def form_values(client: Client, address: str, name: str) -> list[str]:
    """The values of this name that the forms of a page send."""
    return re.findall(rf'name="{name}" value="([^"]+)"', client.get(address).content.decode())


def anna() -> Caller:
    return caller(factories.approver())


class TestTheSecondPerson:
    def test_a_call_names_the_version(self, two: Fleet) -> None:
        approval, who = proposed(two), anna()
        stale = the_event().version
        reported(two, minutes=20)
        where = f"approvals/{approval.pk}/consents/"
        problem(who.post(where, {"expected_version": stale}), 409, "version-changed")
        problem(who.post(where, {}, if_match=f'"{stale}"'), 412, "precondition-failed")
        assert who.post(where, {}, if_match=who.get(f"events/{EVENT}/")["ETag"]).status_code == 201

    def test_an_old_page(self, two: Fleet) -> None:
        approval, client = proposed(two), logged_in(factories.approver())
        (version,) = set(form_values(client, f"/events/{EVENT}/", "expected_version"))
        assert version == str(the_event().version)
        reported(two, minutes=20)
        where = f"/approvals/{approval.pk}/consent/"
        assert client.post(where, {"expected_version": version}).status_code == 409
        assert client.post(where, {"expected_version": the_event().version}).status_code == 302


def test_the_page_and_the_api_show_why_an_approval_was_returned(two: Fleet) -> None:
    two.approve(when=When.TIME, due_at=two.now + seconds(300))
    reported(two, event_type="Reboot")
    two.later(2)
    two.advance()
    page = logged_in(factories.operator()).get(f"/events/{EVENT}/").content.decode()
    assert "data-returned" in page and 'id="approve"' in page
    told = caller(factories.viewer()).get(f"approvals/{Approval.objects.get().pk}/").json()
    assert (told["state"], told["returned"]) == ("WITHDRAWN", True)
    assert "Freeze" in told["reason"] and "Reboot" in told["reason"]


def test_one_event_and_several_at_once_are_those_that_were_shown(two: Fleet) -> None:
    client = logged_in(factories.operator())
    version = the_event().version
    several = [f"{EVENT}:{version}", f"{OTHER}:{the_event(OTHER).version}"]
    reported(two, event_type="Reboot")
    for act in ("claim", "hold"):
        answer = client.post(f"/events/{EVENT}/{act}/", {"expected_version": version, "reason": "because"})
        assert answer.status_code == 409
    for do in ("wave", "claim", "leave"):
        client.post("/bulk/", {"do": do, "event": several, "reason": "because"})
    assert not Approval.objects.exists() and not Wave.objects.exists()
    assert Claim.objects.get().event == Hold.objects.get().event == the_event(OTHER)


def test_a_wave_is_of_the_events_that_were_shown(two: Fleet) -> None:
    client, who = logged_in(factories.operator()), caller(factories.operator())
    versions = form_values(client, f"/waves/begin/?set={the_set().pk}", "version")
    assert len(versions) == 2
    reported(two, event_type="Reboot")
    sent = {"set": the_set().pk, "events": [EVENT, OTHER], "version": versions}
    assert client.post("/waves/begin/", sent).status_code == 409
    stale = dict(one.split(":") for one in versions)
    body = {"events": [EVENT, OTHER], "comment": "x", "expected_versions": {k: int(v) for k, v in stale.items()}}
    assert problem(who.post("waves/", body), 409, "version-changed")["events"][0]["event_id"] == EVENT
    assert not Wave.objects.exists()
    body["expected_versions"][EVENT] = the_event().version
    assert who.post("waves/", body).status_code == 201


def test_claims_in_bulk_carry_versions(two: Fleet) -> None:
    who = caller(factories.operator())
    stale = the_event().version
    reported(two, event_type="Reboot")
    told = who.post("bulk/claims/", {"events": [EVENT, OTHER], "expected_versions": {EVENT: stale}})
    assert [one["status"] for one in told.json()["results"]] == [409, 201]


def test_a_rule_that_was_widened_is_not_switched_on_by_an_old_page(two: Fleet) -> None:
    Rule.objects.all().delete()
    rule = made(at=two.now, event_types=["Freeze"], max_duration_seconds=8, enabled=False)
    client = logged_in(factories.admin())
    version = form_values(client, "/policy/", "version")[0]
    wider = rules.RuleRequestSerializer(data={"event_types": [], "max_duration_seconds": None})
    rules.change_rule(wider, rule_id=rule.pk, actor=acting(factories.admin()), now=two.later(1))
    for act in ("switch", "delete"):
        told = client.post(f"/rules/{rule.pk}/{act}/", {"enabled": "on", "version": version})
        assert told.status_code == 412
    assert (after(rule).enabled, rule.deleted_at) == (False, None)
    version = form_values(client, "/policy/", "version")[0]
    client.post(f"/rules/{rule.pk}/switch/", {"enabled": "on", "version": version})
    assert after(rule).enabled


class TestAReasonCoversWhatWasShown:
    """One neighbour was under way when the reason was written; by the time it is sent there are two."""

    def shown(self, fleet: Fleet, *started: str) -> None:
        fleet.all_say(
            listing(resources=["vm1"], not_before=fleet.now + seconds(900)),
            *(listing(OTHER[:-1] + n, status="Started", resources=[f"vm{n}"], not_before=None) for n in started),
        )

    def test_on_a_page(self, fleet: Fleet) -> None:
        fleet.enrol_set()
        self.shown(fleet, "4")
        client = logged_in(factories.approver())

        def form() -> dict[str, str]:
            (digest,) = set(form_values(client, f"/events/{EVENT}/", "shown-set-in-flight"))
            return {"when": "now", "reason-set-in-flight": "it is small", "shown-set-in-flight": digest}

        old = form()
        self.shown(fleet, "4", "5")
        told = client.post(f"/events/{EVENT}/approve/", old)
        assert (told.status_code, Approval.objects.exists()) == (409, False)
        assert client.post(f"/events/{EVENT}/approve/", form()).status_code == 302

    def test_in_a_call(self, fleet: Fleet) -> None:
        fleet.enrol_set()
        self.shown(fleet, "4")
        who = anna()
        (guard,) = [g for g in who.get(f"events/{EVENT}/").json()["guards"] if g["code"] == "set-in-flight"]
        shown = {"set-in-flight": guard["shown"]}
        body = {"comment": "it is small", "override": ["set-in-flight"], "shown": shown}
        self.shown(fleet, "4", "5")
        told = problem(who.post(f"events/{EVENT}/approvals/", body), 409, "guarded")
        body["shown"] = told["shown"]
        assert who.post(f"events/{EVENT}/approvals/", body).status_code == 201

    def test_at_several_events_at_once(self, fleet: Fleet) -> None:
        fleet.enrol_set()
        self.shown(fleet, "4")
        client = logged_in(factories.approver())
        digest = form_values(client, f"/bulk/?do=approve&event={EVENT}", "shown-set-in-flight")[0]
        form = {"do": "approve", "event": f"{EVENT}:{the_event().version}"}
        form |= {"reason-set-in-flight": "it is small", "shown-set-in-flight": digest}
        self.shown(fleet, "4", "5")
        client.post("/bulk/", form)
        assert not Approval.objects.exists()
        self.shown(fleet, "4")
        client.post("/bulk/", form)
        assert Approval.objects.count() == 1


def test_only_the_stop_that_was_shown_is_lifted(two: Fleet) -> None:
    client = logged_in(factories.admin())

    rules.stop_all(actor=acting(factories.approver(), why="odd answers"), now=two.now)
    old = form_values(client, "/stop/", "version")[0]
    rules.lift(actor=acting(factories.admin()), now=two.now)
    rules.stop_all(actor=acting(factories.approver(), why="an account was taken over"), now=two.later(1))
    assert client.post("/stop/lift/", {"version": old}).status_code == 412
    shown = form_values(client, "/stop/", "version")[0]
    assert client.post("/stop/lift/", {"version": shown}).status_code == 302
