"""Changed events: an approval of values that no longer match is never sent to Azure."""

from datetime import timedelta
from typing import Any

import pytest

from fleet.domain.approvals.conditions import When
from fleet.domain.reasons import read_reason
from fleet.models import ApiToken, Approval, Entry, Order, Rule
from fleet.operations import reconcile
from fleet.operations.approvals import approve, conditions
from fleet.operations.approvals.approve import Plan
from fleet.operations.orders import advance, queue
from fleet.operations.policy import rules
from fleet.projections import approvals
from tests import accounts
from tests.approvals.asking import OTHER, refused
from tests.factories import (
    EVENT,
    Fleet,
    acting,
    admin,
    after,
    announced,
    approver,
    change_set,
    listing,
    open_order,
    operator,
    seconds,
    the_event,
    the_set,
)
from tests.policy.conftest import made
from tests.words import sentence

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
    assert not_before is not None
    if fields.pop("sooner", False):
        not_before -= timedelta(minutes=5)
    if fields.pop("later", False):
        not_before += timedelta(minutes=5)
    fleet.later(1)
    fleet.all_say(listing(**{**FIRST, "not_before": not_before, **fields}))


def planned(fleet: Fleet, **plan: Any) -> Approval:
    announced(fleet, **FIRST)
    return fleet.approve(when=When.TIME, due_at=fleet.now + seconds(60), **plan)


def go(fleet: Fleet, count: float = 90) -> None:
    """Time passes, machines are heard, and reconciling runs."""
    fleet.tick(count)
    fleet.advance()


def handed_out(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> int:
    monkeypatch.setattr("fleet.operations.orders.queue.clock.now", lambda: fleet.now)
    return sum(len(orders) for orders in queue.waiting_orders().values())


@pytest.mark.parametrize("how", OTHERWISE)
def test_a_planned_approval_returns_to_people_when_the_event_changes(fleet: Fleet, how: str) -> None:
    approval = planned(fleet)
    change(fleet, **OTHERWISE[how])
    go(fleet)
    assert (after(approval).state, approval.returned) == ("WITHDRAWN", True)
    assert not Order.objects.exists()
    line = Entry.objects.get(kind="approval_withdrawn")
    assert line.data["reason"]["code"] == "decided-on-other-values"
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


def test_it_returns_before_its_time_with_the_difference_in_words(fleet: Fleet) -> None:
    approval = planned(fleet)
    change(fleet, event_type="Reboot", resources=(*BOTH, "vm3"))
    go(fleet, 2)
    assert (after(approval).state, approval.returned) == ("WITHDRAWN", True)
    told = str(read_reason(approval.reason))
    assert all(word in told for word in ("Freeze", "Reboot", "vm3"))


def test_a_change_to_and_fro_needs_a_new_decision(fleet: Fleet) -> None:
    approval = planned(fleet)
    change(fleet, event_type="Reboot")
    go(fleet, 2)
    change(fleet)
    go(fleet)
    assert after(approval).state == "WITHDRAWN"
    assert not Order.objects.exists()


def test_what_is_prepared_meanwhile_does_not_go(fleet: Fleet) -> None:
    announced(fleet, **FIRST)
    approval = fleet.approve(when=When.PREPARED)
    change(fleet, resources=("vm5",))
    go(fleet)
    assert after(approval).state == "WITHDRAWN"


def test_a_decision_of_an_earlier_release_is_compared_by_its_version(fleet: Fleet) -> None:
    approval = planned(fleet)
    Approval.objects.update(decided_on={})
    change(fleet, event_type="Reboot")
    go(fleet)
    assert after(approval).state == "WITHDRAWN"
    assert not Order.objects.exists()


class TestAfterItWasGranted:
    def granted(self, fleet: Fleet, **plan: Any) -> Approval:
        announced(fleet, **FIRST)
        approval = fleet.approve(**plan)
        assert approval.state == "GRANTED"
        return approval

    @pytest.mark.parametrize("how", SOME)
    def test_an_order_that_no_machine_has_is_taken_back(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        approval = self.granted(fleet)
        assert handed_out(monkeypatch, fleet) == 1
        change(fleet, **OTHERWISE[how])
        assert handed_out(monkeypatch, fleet) == 0
        go(fleet, 2)
        assert (after(approval).state, approval.returned) == ("WITHDRAWN", True)
        assert approval.orders.get().state == "CANCELLED"
        assert handed_out(monkeypatch, fleet) == 0

    def test_outdated_order_is_not_handed_out_even_before_it_is_withdrawn(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.granted(fleet)
        monkeypatch.setattr(advance, "advance_events", lambda *args, **kwargs: set())
        change(fleet, event_type="Reboot")
        assert Order.objects.get().state == "OFFERED"
        assert handed_out(monkeypatch, fleet) == 0

    def test_no_other_machine_is_asked_and_one_that_has_it_is_waited_for(self, fleet: Fleet) -> None:
        approval = self.granted(fleet)
        order = open_order(approval)
        advance.advance_approval(approval_id=approval.pk, now=fleet.now, via="celery")
        fleet.delivered(order)
        change(fleet, event_type="Reboot")
        go(fleet, 1)
        assert after(approval).state == "RELAYING"
        go(fleet, 60)
        assert (after(approval).state, approval.returned, approval.inferred) == ("WITHDRAWN", True, True)
        assert approval.orders.count() == 1
        assert order.machine.resource_name in sentence(read_reason(approval.reason))

    def test_what_azure_has_accepted_stays_accepted_and_is_not_asked_again(self, fleet: Fleet) -> None:
        approval = self.granted(fleet)
        order = open_order(approval)
        fleet.delivered(order)
        fleet.receipt(order)
        change(fleet, event_type="Reboot")
        go(fleet, 400)
        assert after(approval).state == "ACCEPTED"
        assert approval.orders.count() == 1

    def test_a_window_that_has_opened_counts(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
        approval = self.granted(fleet)
        window(fleet)
        assert handed_out(monkeypatch, fleet) == 0
        go(fleet, 2)
        assert (after(approval).state, approval.returned) == ("WITHDRAWN", True)

    def test_a_second_person_who_has_become_required_counts(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        approval = self.granted(fleet)
        change_set(set_id=the_set().pk, actor=acting(admin()), now=fleet.now, second_person=True)
        assert handed_out(monkeypatch, fleet) == 0
        go(fleet, 2)
        assert after(approval).state == "WITHDRAWN"

    def test_a_neighbour_that_has_started_counts(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
        approval = self.granted(fleet)
        due = the_event().not_before
        fleet.later(1)
        fleet.all_say(
            listing(**FIRST, not_before=due), listing(OTHER, status="Started", resources=("vm5",), event_type="Reboot")
        )
        assert handed_out(monkeypatch, fleet) == 0
        go(fleet, 2)
        assert after(approval).state == "WITHDRAWN"

    def test_one_that_was_approved_later_in_view_of_it_does_not_count(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fleet.enrol_set()
        due = fleet.now + seconds(900)
        fleet.all_say(listing(**FIRST, not_before=due), listing(OTHER, resources=("vm5",), not_before=due))
        first = fleet.approve()
        fleet.later(1)
        second = fleet.approve(OTHER, by=approver(), overrides={"set-in-flight": "both at once"})
        go(fleet, 2)
        assert {after(first).state, after(second).state} <= {"GRANTED", "RELAYING"}
        assert handed_out(monkeypatch, fleet) == 2


def window(fleet: Fleet, name: str = "market hours", **values: Any) -> Any:
    return rules.create_window(
        rules.WindowRequestSerializer(
            data={
                "name": name,
                "reason": "no risk now",
                "starts_at": fleet.now - seconds(1),
                "ends_at": fleet.now + seconds(3600),
                **values,
            }
        ),
        actor=acting(admin()),
        now=fleet.now,
    )


class TestOverridesCoverWhatWasShown:
    def test_one_event_under_way_does_not_cover_three(self, fleet: Fleet) -> None:
        announced(fleet, **FIRST)
        due = the_event().not_before
        own = listing(**FIRST, not_before=due)
        started = [
            listing(OTHER[:-1] + str(n), status="Started", resources=(f"vm{n + 3}",), not_before=None)
            for n in (1, 2, 3)
        ]
        fleet.all_say(own, started[0])
        approval = fleet.approve(
            by=approver(), when=When.TIME, due_at=fleet.now + seconds(60), overrides={"set-in-flight": "it is small"}
        )
        fleet.later(1)
        fleet.all_say(own, *started)
        go(fleet)
        assert after(approval).state == "WAITING"
        fleet.all_say(own, started[0])
        go(fleet, 2)
        assert after(approval).state in ("GRANTED", "RELAYING")

    def test_one_window_does_not_cover_another(self, fleet: Fleet) -> None:
        announced(fleet, **FIRST)
        first = window(fleet)
        approval = fleet.approve(
            when=When.TIME, due_at=fleet.now + seconds(60), overrides={"no-approval-window": "agreed with the desk"}
        )
        rules.delete_window(window_id=first.pk, actor=acting(admin()), now=fleet.now)
        window(fleet, "market hours")
        go(fleet)
        assert after(approval).state == "WAITING"

    def test_the_same_window_is_covered(self, fleet: Fleet) -> None:
        announced(fleet, **FIRST)
        window(fleet)
        approval = fleet.approve(
            when=When.TIME, due_at=fleet.now + seconds(60), overrides={"no-approval-window": "agreed with the desk"}
        )
        go(fleet)
        assert after(approval).state in ("GRANTED", "RELAYING")


class TestWhoDecidedMustStillBeAbleTo:
    def test_a_disabled_account(self, fleet: Fleet) -> None:
        approval = planned(fleet)
        approval.decided_by.is_active = False  # type: ignore[union-attr]
        approval.decided_by.save()  # type: ignore[union-attr]
        go(fleet)
        assert (after(approval).state, approval.returned) == ("WITHDRAWN", True)
        assert read_reason(approval.reason).code == "decider-lost-account"  # type: ignore[union-attr]

    def test_a_lost_role_also_after_it_was_granted(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
        announced(fleet, **FIRST)
        otto = operator()
        approval = fleet.approve(by=otto)
        otto.groups.clear()
        assert handed_out(monkeypatch, fleet) == 0
        go(fleet, 2)
        assert read_reason(after(approval).reason).code == "decider-lost-right"  # type: ignore[union-attr]

    def test_an_override_needs_the_role_that_it_needed(self, fleet: Fleet) -> None:
        announced(fleet, **FIRST)
        own = listing(**FIRST, not_before=the_event().not_before)
        fleet.all_say(own, listing(OTHER, status="Started", resources=("vm5",), not_before=None))
        anna = approver()
        approval = fleet.approve(
            by=anna, when=When.TIME, due_at=fleet.now + seconds(60), overrides={"set-in-flight": "it is small"}
        )
        anna.groups.set([operator("olga").groups.get()])
        go(fleet)
        assert after(approval).state == "WITHDRAWN"

    def test_a_revoked_token(self, fleet: Fleet) -> None:
        announced(fleet, **FIRST)
        otto = operator()
        token, _ = accounts.token(user=otto, name="ci", scopes=["approve"], now=fleet.now)
        approval = approve.grant(
            event_id=EVENT,
            actor=acting(otto, via="api", token_name="ci", token=token),
            now=fleet.now,
            plan=Plan(when=When.TIME, due_at=fleet.now + seconds(60)),
        )
        ApiToken.objects.update(revoked_at=fleet.now)
        go(fleet)
        assert read_reason(after(approval).reason).code == "decider-lost-token"  # type: ignore[union-attr]

    def test_the_second_person_too(self, fleet: Fleet) -> None:
        announced(fleet, **FIRST)
        change_set(set_id=the_set().pk, actor=acting(admin()), now=fleet.now, second_person=True)
        anna = approver()
        approval = fleet.approve(when=When.TIME, due_at=fleet.now + seconds(60))
        conditions.consent(approval_id=approval.pk, actor=acting(anna), now=fleet.now)
        assert after(approval).state == "WAITING"
        anna.groups.clear()
        go(fleet)
        assert after(approval).state == "WITHDRAWN"


class TestTheSecondPerson:
    def proposed(self, fleet: Fleet) -> Approval:
        announced(fleet, **FIRST)
        change_set(set_id=the_set().pk, actor=acting(admin()), now=fleet.now, second_person=True)
        return fleet.approve()

    def test_an_old_page_is_answered_with_a_conflict(self, fleet: Fleet) -> None:
        approval, seen = self.proposed(fleet), the_event().version
        change(fleet, later=True)
        anna = approver()

        def agree(version: int) -> Approval:
            return conditions.consent(
                approval_id=approval.pk, actor=acting(anna), now=fleet.now, expected_version=version
            )

        assert refused(lambda: agree(seen)).code == "version-changed"
        assert after(approval).state == "PROPOSED"
        assert agree(the_event().version).state == "GRANTED"

    @pytest.mark.parametrize("how", SOME)
    def test_consent_to_a_proposal_for_changed_values_is_refused(self, fleet: Fleet, how: str) -> None:
        approval = self.proposed(fleet)
        change(fleet, **OTHERWISE[how])
        anna = approver()
        for version in (None, the_event().version):
            error = refused(
                lambda version=version: conditions.consent(
                    approval_id=approval.pk, actor=acting(anna), now=fleet.now, expected_version=version
                )
            )
            assert error.code == "version-changed"
        go(fleet, 2)
        assert (after(approval).state, approval.returned) == ("WITHDRAWN", True)
        assert not Order.objects.exists()


class TestRulesAreAskedAgain:
    @pytest.fixture(autouse=True)
    def _no_rules(self) -> None:
        Rule.objects.all().delete()

    def waiting(self, fleet: Fleet, **fields: Any) -> tuple[Approval, Rule]:
        rule = made(action="approve_when_prepared", event_types=["Freeze"], max_duration_seconds=8, **fields)
        announced(fleet, **FIRST)
        reconcile.advance_dependents(now=fleet.now)
        return Approval.objects.get(state="WAITING"), rule

    @pytest.mark.parametrize("how", [{"event_type": "Reboot"}, {"DurationInSeconds": 900}, {"DurationInSeconds": -1}])
    def test_an_event_that_it_does_not_allow_any_more(self, fleet: Fleet, how: dict[str, Any]) -> None:
        approval, _ = self.waiting(fleet)
        change(fleet, **how)
        go(fleet, 2)
        assert (after(approval).state, approval.returned) == ("WITHDRAWN", True)
        assert Approval.objects.count() == 1

    def test_event_that_the_rule_still_allows_is_decided_again(self, fleet: Fleet) -> None:
        approval, _ = self.waiting(fleet)
        change(fleet, resources=("vm1", "vm5"))
        go(fleet, 2)
        assert after(approval).state == "WITHDRAWN"
        second = Approval.objects.exclude(pk=approval.pk).get()
        assert (second.state, second.decided_on["resources"]) == ("WAITING", ["vm1", "vm5"])

    @pytest.mark.parametrize(
        "how",
        [
            {"enabled": False},
            {"max_duration_seconds": 3},
            {"set_pattern": "db*"},
            {"action": "leave"},
        ],
    )
    def test_a_rule_that_was_disabled_or_narrowed(self, fleet: Fleet, how: dict[str, Any]) -> None:
        approval, rule = self.waiting(fleet)
        rules.change_rule(rules.RuleRequestSerializer(data=how), rule_id=rule.pk, actor=acting(admin()), now=fleet.now)
        go(fleet, 2)
        assert read_reason(after(approval).reason).code == "rule-decides-otherwise"  # type: ignore[union-attr]
        assert (approval.state, Approval.objects.count()) == ("WITHDRAWN", 1)

    def test_a_rule_that_was_deleted(self, fleet: Fleet) -> None:
        approval, rule = self.waiting(fleet)
        rules.delete_rule(rule_id=rule.pk, actor=acting(admin()), now=fleet.now)
        go(fleet, 2)
        assert after(approval).state == "WITHDRAWN"

    def test_a_rule_that_was_set_to_hold_holds(self, fleet: Fleet) -> None:
        approval, rule = self.waiting(fleet)
        rules.change_rule(
            rules.RuleRequestSerializer(data={"action": "hold"}), rule_id=rule.pk, actor=acting(admin()), now=fleet.now
        )
        go(fleet, 2)
        assert after(approval).state == "WITHDRAWN"
        assert approval.event.holds.get().rule == rule

    def test_an_order_of_a_rule_that_was_disabled_is_not_handed_out(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rule = made(event_types=["Freeze"])
        announced(fleet, **FIRST)
        reconcile.advance_dependents(now=fleet.now)
        assert handed_out(monkeypatch, fleet) == 1
        rules.change_rule(
            rules.RuleRequestSerializer(data={"enabled": False}), rule_id=rule.pk, actor=acting(admin()), now=fleet.now
        )
        assert handed_out(monkeypatch, fleet) == 0
        go(fleet, 2)
        assert Approval.objects.get().state == "WITHDRAWN"

    def test_notice_and_hours_are_those_of_the_decision(self, fleet: Fleet) -> None:
        approval, _ = self.waiting(fleet, min_notice_seconds=600)
        go(fleet, 400)
        assert after(approval).state == "WAITING"


def test_the_row_says_that_it_was_returned(fleet: Fleet) -> None:
    approval = planned(fleet)
    change(fleet, event_type="Reboot")
    go(fleet, 2)
    ((_, row),) = approvals.details([approval.pk], now=fleet.now)
    assert row.returned
    assert row.live is False
