"""Changed events: an approval of values that no longer match is never sent to Azure."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet.domain.approvals.conditions import When
from fleet.domain.reasons import read_reason
from fleet.models import ApiToken, Approval, Entry, Order, Rule, ScheduledEvent
from fleet.operations import reconcile
from fleet.operations.approvals import approve, conditions
from fleet.operations.approvals.approve import Plan
from fleet.operations.orders import advance, queue
from fleet.operations.policy import rules
from fleet.projections import approvals
from tests import accounts, factories
from tests.approvals.asking import OTHER, refused
from tests.factories import Fleet, acting, admin, after, announced, approver, listing, operator, seconds, the_event
from tests.policy.conftest import change_rule, made
from tests.words import code_of, sentence

pytestmark = pytest.mark.django_db

BOTH = ("vm1", "vm2")
# What Azure states of the event at first.
FIRST: dict[str, Any] = {"event_type": "Freeze", "resources": BOTH}
# Each of them makes another event of it.
OTHERWISE: dict[str, dict[str, Any]] = {
    "type": {"event_type": "Reboot"},
    "one machine more": {"resources": (*BOTH, "vm3")},
    "one machine less": {"resources": ("vm1",)},
    "another machine": {"resources": ("vm1", "vm5")},
    "longer": {"DurationInSeconds": 900},
    "shorter": {"DurationInSeconds": 1},
    "of unknown length": {"DurationInSeconds": -1},
    "source": {"EventSource": "User"},
    "sooner": {"sooner": True},
}
# The comparison is the same wherever it is asked for.
SOME = ("type", "another machine", "sooner")
HARMLESS: dict[str, dict[str, Any]] = {
    "description": {"Description": "Another text."},
    "later": {"later": True},
    "order and case of names": {"resources": ("VM2", "vm1")},
}


def change(fleet: Fleet, **fields: Any) -> None:
    """Every machine reports the event, changed in this way."""
    not_before = the_event().not_before
    if fields.pop("sooner", False):
        not_before -= timedelta(minutes=5)
    if fields.pop("later", False):
        not_before += timedelta(minutes=5)
    fleet.later(1)
    fleet.all_say(listing(**{**FIRST, "not_before": not_before, **fields}))


def approve_later(fleet: Fleet, **plan: Any) -> Approval:
    """An approval that is dispatched a minute from now."""
    return fleet.approve(when=When.TIME, due_at=fleet.now + seconds(60), **plan)


def planned(fleet: Fleet, **plan: Any) -> Approval:
    announced(fleet, **FIRST)
    return approve_later(fleet, **plan)


def require_second_person(fleet: Fleet) -> None:
    factories.change_set(set_id=factories.the_set().pk, actor=acting(admin()), now=fleet.now, second_person=True)


def go(fleet: Fleet, count: float = 90) -> None:
    """Time passes, machines are heard, and reconciling runs."""
    fleet.tick(count)
    fleet.advance()


def lost(approval: Approval) -> str:
    """The code of the reason why an approval was withdrawn; empty if it was not."""
    is_withdrawn = after(approval).state == "WITHDRAWN" and approval.returned
    return code_of(read_reason(approval.reason)) if is_withdrawn else ""


@pytest.fixture
def handed_out(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many orders gateways hand out now."""
    monkeypatch.setattr("fleet.operations.orders.queue.clock.now", lambda: fleet.now)
    return lambda: sum(len(orders) for orders in queue.waiting_orders().values())


@pytest.mark.parametrize("how", OTHERWISE)
def test_a_planned_approval_returns_to_people_when_the_event_changes(fleet: Fleet, how: str) -> None:
    approval = planned(fleet)
    change(fleet, **OTHERWISE[how])
    go(fleet)
    assert lost(approval) == "decided-on-other-values" and not Order.objects.exists()
    assert Entry.objects.get(kind="approval_withdrawn").data["reason"]["code"] == "decided-on-other-values"
    # People decide again, on the event's current values.
    second = fleet.approve(by=approver(), overrides={"lost-for-good": "no"}, expected_version=the_event().version)
    assert second.state in ("GRANTED", "PROPOSED")


@pytest.mark.parametrize("how", HARMLESS)
def test_harmless_changes_do_not_stop_it(fleet: Fleet, how: str) -> None:
    approval = planned(fleet)
    change(fleet, **HARMLESS[how])
    go(fleet)
    assert after(approval).state in ("GRANTED", "RELAYING")
    assert approval.orders.count() == 1


def test_it_returns_before_its_time_with_the_difference_even_if_the_event_changes_back(fleet: Fleet) -> None:
    approval = planned(fleet)
    change(fleet, event_type="Reboot", resources=(*BOTH, "vm3"))
    go(fleet, 2)
    assert lost(approval)
    difference = str(read_reason(approval.reason))
    assert all(word in difference for word in ("Freeze", "Reboot", "vm3"))
    ((_, row),) = approvals.details([approval.pk], now=fleet.now)
    assert (row.returned, row.live) == (True, False)
    change(fleet)
    go(fleet)
    assert lost(approval) and not Order.objects.exists()


@pytest.mark.parametrize(("when", "release"), [(When.PREPARED, "this"), (When.TIME, "an earlier one")])
def test_what_waits_for_its_moment_is_compared(fleet: Fleet, event: ScheduledEvent, when: When, release: str) -> None:
    """A decision of an earlier release is compared by the event's version."""
    approval = fleet.approve(when=when, due_at=fleet.now + seconds(60))
    if release != "this":
        Approval.objects.update(decided_on={})
    change(fleet, event_type="Reboot")
    go(fleet)
    assert lost(approval) and not Order.objects.exists()


@pytest.mark.parametrize("how", SOME)
def test_an_order_that_no_machine_has_is_handed_out_no_more_and_taken_back(
    fleet: Fleet, approval: Approval, handed_out: Callable[[], int], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    assert handed_out() == 1
    with monkeypatch.context() as patch:
        # Before it is withdrawn.
        patch.setattr(advance, "advance_events", lambda *args, **kwargs: set())
        change(fleet, **OTHERWISE[how])
    assert (Order.objects.get().state, handed_out()) == ("OFFERED", 0)
    go(fleet, 2)
    assert lost(approval)
    assert (approval.orders.get().state, handed_out()) == ("CANCELLED", 0)


def test_no_other_machine_is_asked_and_one_that_has_it_is_waited_for(fleet: Fleet, approval: Approval) -> None:
    order = factories.open_order(approval)
    advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
    fleet.delivered(order)
    change(fleet, event_type="Reboot")
    go(fleet, 1)
    assert after(approval).state == "RELAYING"
    go(fleet, 60)
    assert lost(approval) and approval.inferred
    assert approval.orders.count() == 1
    assert order.machine.resource_name in sentence(read_reason(approval.reason))


def test_what_azure_has_accepted_stays_accepted_and_is_not_asked_again(fleet: Fleet, approval: Approval) -> None:
    order = factories.open_order(approval)
    fleet.delivered(order)
    fleet.receipt(order)
    change(fleet, event_type="Reboot")
    go(fleet, 400)
    assert after(approval).state == "ACCEPTED"
    assert approval.orders.count() == 1


def start_neighbour(fleet: Fleet) -> None:
    """Another event of the set has started."""
    own = listing(**FIRST, not_before=the_event().not_before)
    fleet.all_say(own, listing(OTHER, status="Started", resources=("vm5",), not_before=None))


def window(fleet: Fleet) -> Any:
    hours = {"starts_at": fleet.now - seconds(1), "ends_at": fleet.now + seconds(3600)}
    sent = rules.WindowRequestSerializer(data={"name": "market hours", "reason": "no risk now", **hours})
    return rules.create_window(sent, actor=acting(admin()), now=fleet.now)


@pytest.mark.parametrize("appear", [window, require_second_person, start_neighbour])
def test_a_guard_that_appears_counts(
    fleet: Fleet, approval: Approval, handed_out: Callable[[], int], appear: Callable[[Fleet], None]
) -> None:
    fleet.later(1)
    appear(fleet)
    assert handed_out() == 0
    go(fleet, 2)
    assert lost(approval)


def test_one_that_was_approved_later_in_view_of_it_does_not_count(fleet: Fleet, handed_out: Callable[[], int]) -> None:
    fleet.enrol_set()
    due = fleet.now + seconds(900)
    fleet.all_say(listing(**FIRST, not_before=due), listing(OTHER, resources=("vm5",), not_before=due))
    first = fleet.approve()
    fleet.later(1)
    second = fleet.approve(OTHER, by=approver(), overrides={"set-in-flight": "both at once"})
    go(fleet, 2)
    assert {after(first).state, after(second).state} <= {"GRANTED", "RELAYING"}
    assert handed_out() == 2


def test_a_reason_for_one_event_under_way_does_not_cover_three(fleet: Fleet, event: ScheduledEvent) -> None:
    own = listing(**FIRST, not_before=the_event().not_before)
    started = [
        listing(OTHER[:-1] + str(n), status="Started", resources=(f"vm{n + 3}",), not_before=None) for n in (1, 2, 3)
    ]
    fleet.all_say(own, started[0])
    approval = approve_later(fleet, by=approver(), overrides={"set-in-flight": "it is small"})
    fleet.later(1)
    fleet.all_say(own, *started)
    go(fleet)
    assert after(approval).state == "WAITING"
    fleet.all_say(own, started[0])
    go(fleet, 2)
    assert after(approval).state in ("GRANTED", "RELAYING")


@pytest.mark.parametrize("is_same", [True, False])
def test_a_reason_for_one_window_covers_no_other(fleet: Fleet, event: ScheduledEvent, is_same: bool) -> None:
    first = window(fleet)
    approval = approve_later(fleet, overrides={"no-approval-window": "agreed with the desk"})
    if not is_same:
        rules.delete_window(window_id=first.pk, actor=acting(admin()), now=fleet.now)
        window(fleet)
    go(fleet)
    assert after(approval).state in (("GRANTED", "RELAYING") if is_same else ("WAITING",))


def test_a_disabled_account_decides_no_more(fleet: Fleet) -> None:
    approval = planned(fleet)
    User.objects.filter(username="otto").update(is_active=False)
    go(fleet)
    assert lost(approval) == "decider-lost-account"


def test_a_lost_role_counts_also_after_it_was_granted(
    fleet: Fleet, approval: Approval, handed_out: Callable[[], int]
) -> None:
    operator().groups.clear()
    assert handed_out() == 0
    go(fleet, 2)
    assert lost(approval) == "decider-lost-right"


def test_an_override_needs_the_role_that_it_needed(fleet: Fleet, event: ScheduledEvent) -> None:
    start_neighbour(fleet)
    anna = approver()
    approval = approve_later(fleet, by=anna, overrides={"set-in-flight": "it is small"})
    anna.groups.set([operator("olga").groups.get()])
    go(fleet)
    assert lost(approval)


def test_a_revoked_token_decides_no_more(fleet: Fleet, event: ScheduledEvent) -> None:
    otto = operator()
    token, _ = accounts.token(user=otto, name="ci", scopes=["approve"], now=fleet.now)
    actor = acting(otto, via="api", token_name="ci", token=token)
    plan = Plan(when=When.TIME, due_at=fleet.now + seconds(60))
    approval = approve.grant(event_id=factories.EVENT, actor=actor, now=fleet.now, plan=plan)
    ApiToken.objects.update(revoked_at=fleet.now)
    go(fleet)
    assert lost(approval) == "decider-lost-token"


def test_the_second_person_must_still_be_able_to_decide(fleet: Fleet, event: ScheduledEvent) -> None:
    require_second_person(fleet)
    anna = approver()
    approval = approve_later(fleet)
    conditions.consent(approval_id=approval.pk, actor=acting(anna), now=fleet.now)
    assert after(approval).state == "WAITING"
    anna.groups.clear()
    go(fleet)
    assert lost(approval)


@pytest.mark.parametrize("how", SOME)
def test_consent_to_a_proposal_for_changed_values_is_refused(fleet: Fleet, how: str) -> None:
    announced(fleet, **FIRST)
    require_second_person(fleet)
    approval, actor = fleet.approve(), acting(approver())
    change(fleet, **OTHERWISE[how])
    agree = partial(conditions.consent, approval_id=approval.pk, actor=actor, now=fleet.now)
    for version in (None, the_event().version):
        assert refused(partial(agree, expected_version=version)).code == "version-changed"
    go(fleet, 2)
    assert lost(approval) and not Order.objects.exists()


def decided_by_rule(fleet: Fleet, action: str = "approve_when_prepared", **fields: Any) -> tuple[Approval, Rule]:
    """An approval by the only rule, for short freezes."""
    Rule.objects.all().delete()
    rule = made(action=action, event_types=["Freeze"], max_duration_seconds=8, **fields)
    announced(fleet, **FIRST)
    reconcile.advance_dependents(now=fleet.now)
    return Approval.objects.get(), rule


@pytest.mark.parametrize("how", [{"event_type": "Reboot"}, {"DurationInSeconds": 900}, {"DurationInSeconds": -1}])
def test_a_rule_decides_no_event_that_it_does_not_allow_any_more(fleet: Fleet, how: dict[str, Any]) -> None:
    approval, _ = decided_by_rule(fleet)
    change(fleet, **how)
    go(fleet, 2)
    assert lost(approval)
    assert Approval.objects.count() == 1


def test_event_that_the_rule_still_allows_is_decided_again(fleet: Fleet) -> None:
    approval, _ = decided_by_rule(fleet)
    change(fleet, resources=("vm1", "vm5"))
    go(fleet, 2)
    assert lost(approval)
    second = Approval.objects.exclude(pk=approval.pk).get()
    assert (second.state, second.decided_on["resources"]) == ("WAITING", ["vm1", "vm5"])


NARROWED = ({"enabled": False}, {"max_duration_seconds": 3}, {"set_pattern": "db*"}, {"action": "leave"})


@pytest.mark.parametrize("how", [*NARROWED, {"action": "hold"}, None])
def test_a_rule_that_was_disabled_narrowed_or_deleted_decides_no_more(fleet: Fleet, how: dict[str, Any] | None) -> None:
    approval, rule = decided_by_rule(fleet)
    if how is None:
        rules.delete_rule(rule_id=rule.pk, actor=acting(admin()), now=fleet.now)
    else:
        change_rule(rule, at=fleet.now, **how)
    go(fleet, 2)
    assert lost(approval) == "rule-decides-otherwise"
    assert Approval.objects.count() == 1
    assert approval.event.holds.filter(rule=rule).exists() == (how == {"action": "hold"})


def test_an_order_of_a_rule_that_was_disabled_is_not_handed_out(fleet: Fleet, handed_out: Callable[[], int]) -> None:
    _, rule = decided_by_rule(fleet, "approve_now")
    assert handed_out() == 1
    change_rule(rule, at=fleet.now, enabled=False)
    assert handed_out() == 0


def test_notice_and_hours_are_those_of_the_decision(fleet: Fleet) -> None:
    approval, _ = decided_by_rule(fleet, min_notice_seconds=600)
    go(fleet, 400)
    assert after(approval).state == "WAITING"
