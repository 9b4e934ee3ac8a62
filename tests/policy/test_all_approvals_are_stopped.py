"""Emergency stop: from page, API or command line it blocks every approval, rule and wave at once."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from fleet.domain.approvals.conditions import When
from fleet.models import Approval, AvailabilitySet, Entry, Order, Rule, Stop
from fleet.operations import reconcile, waves
from fleet.operations.approvals import conditions
from fleet.operations.approvals.approve import Plan, grant
from fleet.operations.orders import queue
from fleet.operations.policy import apply, rules
from tests import factories
from tests.api.conftest import caller, problem
from tests.approvals.asking import OTHER, codes, refused, two_events
from tests.dashboard.conftest import logged_in, text_of
from tests.factories import EVENT, Fleet, acting, admin, after, announced, approver, listing, open_order, operator, who
from tests.policy.conftest import made
from tests.words import sentence

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> Fleet:
    Rule.objects.all().delete()
    return Fleet()


def stopped(fleet: Fleet, why: str = "a rule approves everything") -> Stop:
    return rules.stop_all(actor=acting(approver(), why=why), now=fleet.now)


def lifted(fleet: Fleet) -> Stop:
    return rules.lift(actor=acting(admin(), why="mended"), now=fleet.now)


def test_stop_blocks_every_approval_and_names_its_author_and_reason(fleet: Fleet) -> None:
    announced(fleet)
    stopped(fleet)
    error = refused(fleet.approve)
    assert (error.code, codes(error)) == ("stopped", ["all-stopped"])
    assert "anna stopped all approvals at" in sentence(error)
    assert "a rule approves everything" in sentence(error)
    # Not even an approver who gives a reason.
    plan = Plan(overrides={"all-stopped": "I know better"})
    actor = acting(approver("bea"))
    assert refused(lambda: grant(event_id=EVENT, actor=actor, now=fleet.now, plan=plan)).code == "stopped"
    assert not Approval.objects.exists()


def test_no_rule_decides_until_it_is_lifted(fleet: Fleet) -> None:
    made(event_types=["Freeze"])
    announced(fleet)
    stopped(fleet)
    assert apply.decide(now=fleet.now) == 0
    reconcile.advance(now=fleet.now, via="beat")
    assert not Approval.objects.exists()
    lifted(fleet)
    assert apply.decide(now=fleet.now) == 1


def test_an_order_that_no_agent_holds_is_handed_to_none(fleet: Fleet) -> None:
    announced(fleet)
    order = open_order(fleet.approve())
    assert queue.waiting_orders()
    stopped(fleet)
    assert queue.waiting_orders() == {}
    assert queue.waiting_orders(machine_ids=[order.machine_id]) == {}
    # Nor does silence make the relay ask the next machine.
    for _ in range(5):
        fleet.later(20)
        fleet.heard()
        assert not fleet.advance().woken
    assert Order.objects.count() == 1
    lifted(fleet)
    fleet.advance()
    assert queue.waiting_orders()


def test_what_waits_for_a_condition_or_a_second_person_stays(fleet: Fleet) -> None:
    event, other = two_events(fleet)
    later = fleet.approve(event.event_id, when=When.TIME, due_at=fleet.now + factories.seconds(30))
    AvailabilitySet.objects.update(second_person=True)
    proposal = fleet.approve(other.event_id)
    stopped(fleet)
    actor = acting(approver("bea"))
    assert refused(lambda: conditions.consent(approval_id=proposal.pk, actor=actor, now=fleet.now)).code == "stopped"
    AvailabilitySet.objects.update(second_person=False)
    fleet.tick(40)
    assert (after(later).state, Order.objects.count()) == ("WAITING", 0)
    lifted(fleet)
    fleet.advance()
    assert after(later).state == "RELAYING" or later.state == "GRANTED"


def test_stop_blocks_new_and_running_waves(fleet: Fleet) -> None:
    two_events(fleet)
    actor = acting(operator(), why="in turn")
    begun = waves.begin(actor=actor, events=[EVENT, OTHER], service="", overrides={}, now=fleet.now)
    stopped(fleet)
    states = list(Approval.objects.order_by("turn").values_list("state", flat=True))
    for _ in range(4):
        fleet.tick(5)
    assert list(Approval.objects.order_by("turn").values_list("state", flat=True))[1] == states[1] == "WAITING"
    assert queue.waiting_orders() == {}
    assert after(begun).state == "RUNNING"


def test_what_azure_was_asked_already_is_still_followed_to_its_end(fleet: Fleet) -> None:
    approval = factories.accepted(fleet)
    stopped(fleet)
    fleet.later(10)
    fleet.all_say(listing(status="Started", resources=("vm1", "vm2")))
    fleet.advance()
    assert after(approval).state == "CONFIRMED"


def test_approvers_stop_admins_lift_and_each_only_once(fleet: Fleet) -> None:
    assert refused(lambda: rules.stop_all(actor=acting(approver()), now=fleet.now)).code == "validation"
    assert refused(lambda: lifted(fleet)).code == "not-stopped"
    stopped(fleet)
    error = refused(lambda: stopped(fleet))
    assert (error.code, "anna stopped all approvals" in sentence(error)) == ("stopped", True)
    fleet.later(60)
    row = lifted(fleet)
    assert (row.stopped_by, row.lifted_by, row.lifted_at) == ("anna", "ada", fleet.now)
    kinds = ("approvals_stopped", "stop_lifted")
    told = [(line.kind, who(line), line.why) for line in Entry.objects.filter(kind__in=kinds).order_by("id")]
    assert told == [("approvals_stopped", "anna", "a rule approves everything"), ("stop_lifted", "ada", "mended")]
    stopped(fleet)


def test_every_page_shows_the_stop_until_it_is_lifted() -> None:
    fleet = Fleet(now=datetime.now(UTC))
    announced(fleet)
    anna, ada = logged_in(approver()), logged_in(admin())
    assert "All approvals are stopped" not in text_of(anna.get("/sets/"))
    assert anna.post("/stop/all/", {"comment": ""}).status_code == 422
    assert anna.post("/stop/all/", {"comment": "it runs wild"}, follow=True).status_code == 200
    for address in ("/", "/machines/", "/stop/", "/you/", f"/events/{EVENT}/", "/stop/banner/"):
        said = text_of(ada.get(address))
        assert "All approvals are stopped" in said and "it runs wild" in said, address
    assert "disabled" in ada.get(f"/events/{EVENT}/").content.decode()
    assert ada.post("/stop/lift/", {"comment": "over"}).status_code == 302
    assert "All approvals are stopped" not in text_of(anna.get("/sets/"))
    assert "“it runs wild”" in text_of(anna.get("/stop/"))


def test_the_api_stops_and_lifts() -> None:
    fleet = Fleet(now=datetime.now(UTC))
    announced(fleet)
    anna, ada, otto = caller(approver()), caller(admin()), caller(operator())
    body = anna.post("stop/", {"comment": "it runs wild"}).json()
    assert (body["stopped"], body["current"]["stopped_by"], body["pending"]) == (True, "anna", 0)
    problem(otto.post(f"events/{EVENT}/approvals/", {"comment": ""}), 409, "stopped")
    problem(anna.post("stop/", {"comment": "again"}), 409, "stopped")
    assert ada.post("stop/lift/", {}).json()["stopped"] is False
    assert otto.get("stop/").json()["past"][0]["lifted_by"] == "ada"
    assert otto.post(f"events/{EVENT}/approvals/", {"comment": ""}).status_code == 201


def test_the_command_line_stops_and_lifts(capsys: Any) -> None:
    call_command("stop_all_approvals", why="it runs wild")
    assert Stop.objects.get().stopped_by == "the command line"
    with pytest.raises(CommandError, match="already"):
        call_command("stop_all_approvals", why="again")
    call_command("lift_stop")
    with pytest.raises(CommandError, match="not stopped"):
        call_command("lift_stop")
