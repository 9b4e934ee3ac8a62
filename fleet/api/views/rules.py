"""Rules, dry runs, no-approval windows, and the switch that stops all approvals."""

from typing import Any

from rest_framework import serializers

from fleet.api.calls import Call
from fleet.api.schema import describe
from fleet.api.shapes.base import SecondsUntil
from fleet.api.shapes.derive import shape
from fleet.api.shapes.requests import WhySerializer
from fleet.operations.inputs import RequestSerializer, Time
from fleet.operations.policy import rules as operations
from fleet.operations.policy.rules import RuleFieldsSerializer, RuleRequestSerializer, WindowRequestSerializer
from fleet.projections.pages import Page
from fleet.projections.policy import dry_run, rules

UNKNOWN = ("not-found", "There is no rule with this id.")
UNKNOWN_WINDOW = ("not-found", "There is no no-approval window with this id.")


class DryRunRequestSerializer(RequestSerializer):
    id = serializers.IntegerField(
        required=False, min_value=1, max_value=2**62, help_text="A saved rule; with `rule` it is tried as changed."
    )
    rule = RuleFieldsSerializer(required=False, help_text="A rule that is not saved, or what changes in a saved one.")
    since = Time(required=False, allow_null=True, default=None, help_text="Events first seen at or after this time.")
    until = Time(required=False, allow_null=True, default=None, help_text="Events first seen before this time.")

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if "id" not in values and "rule" not in values:
            raise serializers.ValidationError("Say which rule: the `id` of a saved one, or a `rule`.")
        return values


RuleShape = shape(
    rules.RuleRow,
    without=("rule_id", "deleted"),
    inputs=RuleRequestSerializer,
    seconds_left=SecondsUntil("expires_at", states=(), help_text="Until it expires; null when it never does."),
)
PastEventShape = shape(dry_run.PastEvent)
DryRunShape = shape(dry_run.DryRun)
NoApprovalWindowShape = shape(rules.WindowRow, name="NoApprovalWindow", inputs=WindowRequestSerializer)
StopShape = shape(rules.StopRow, name="Stop")
StopStateShape = shape(rules.StopState, properties=("stopped",))


class Rules(Call):
    @describe(
        "list_rules",
        "Rules in their order",
        "The first that matches an event decides it.",
        page=RuleShape,
    )
    def get(self) -> Page[rules.RuleRow]:
        return rules.page(now=self.now, **self.place)

    @describe(
        "create_rule",
        "Make a rule",
        "It is off, and at the end of the order, unless the body says otherwise. Try it first.",
        needs="admin",
        answer=RuleShape,
        status=201,
        location="rules/{id}/",
        version="changed_at",
        body=RuleRequestSerializer,
    )
    def post(self) -> rules.RuleRow | None:
        row = operations.create_rule(self.wanted, actor=self.actor, now=self.now)
        return rules.detail(rule_id=row.pk, now=self.now)


class Rule(Call):
    @describe(
        "get_rule",
        "One rule",
        (
            "What it matches and does, its `wording`, the whole of it in one sentence, and how many events it"
            " has decided."
        ),
        answer=RuleShape,
        version="changed_at",
        missing=UNKNOWN,
    )
    def get(self, rule_id: int) -> rules.RuleRow | None:
        return rules.detail(rule_id=rule_id, now=self.now)

    @describe(
        "change_rule",
        "Change a rule, switch it on or off, or move it in the order",
        ("What is left out stays as it is. What it decided before keeps the wording of then."),
        needs="admin",
        answer=RuleShape,
        version="changed_at",
        matches=True,
        body=RuleRequestSerializer,
        missing=UNKNOWN,
    )
    def patch(self, rule_id: int) -> rules.RuleRow | None:
        operations.change_rule(self.wanted, rule_id=rule_id, actor=self.actor, now=self.now, expected=self.expected)
        return rules.detail(rule_id=rule_id, now=self.now)

    @describe(
        "delete_rule",
        "Delete a rule; its decisions stand",
        ("Those after it move up. What it approved or left to Azure stays so."),
        needs="admin",
        matches=True,
    )
    def delete(self, rule_id: int) -> None:
        operations.delete_rule(rule_id=rule_id, actor=self.actor, now=self.now, expected=self.expected)


class RuleDryRun(Call):
    @describe(
        "try_rule",
        "Try a rule on the stored history",
        "Which of the newest 500 events a rule would have decided at their first sighting, beside what happened."
        " Nothing is written.",
        # It writes nothing.
        needs="read",
        answer=DryRunShape,
        body=DryRunRequestSerializer,
        problems=("not-found",),
    )
    def post(self) -> dry_run.DryRun:
        wanted = self.wanted
        sent = RuleFieldsSerializer(data=wanted.get("rule", {}))
        rule = operations.tried_rule(sent, now=self.now, rule_id=wanted.get("id"), inside="rule.")
        return dry_run.dry_run(rule=rule, now=self.now, since=wanted["since"], until=wanted["until"])


class NoApprovalWindows(Call):
    @describe(
        "list_no_approval_windows",
        "Hours in which nothing is approved without a reason",
        "Those that are over last.",
        page=NoApprovalWindowShape,
    )
    def get(self) -> Page[rules.WindowRow]:
        return rules.page_of_windows(now=self.now, **self.place)

    @describe(
        "create_no_approval_window",
        "Make a no-approval window",
        "Once, from `starts_at` to `ends_at`; or every week, by `weekdays` and hours.",
        needs="admin",
        answer=NoApprovalWindowShape,
        status=201,
        location="no-approval-windows/{id}/",
        body=WindowRequestSerializer,
    )
    def post(self) -> rules.WindowRow | None:
        row = operations.create_window(self.wanted, actor=self.actor, now=self.now)
        return rules.window(window_id=row.pk, now=self.now)


class NoApprovalWindow(Call):
    @describe(
        "get_no_approval_window",
        "One no-approval window",
        ("When and where it holds, in fields and in words."),
        answer=NoApprovalWindowShape,
        missing=UNKNOWN_WINDOW,
    )
    def get(self, window_id: int) -> rules.WindowRow | None:
        return rules.window(window_id=window_id, now=self.now)

    @describe(
        "delete_no_approval_window",
        "Delete a no-approval window",
        ("From now on it asks nobody for a reason. What was refused because of it stays refused."),
        needs="admin",
    )
    def delete(self, window_id: int) -> None:
        operations.delete_window(window_id=window_id, actor=self.actor, now=self.now)


class Stop(Call):
    @describe(
        "get_stop",
        "Whether all approvals are stopped",
        ("Who stopped them and why, how many approvals are kept back, and the stops before."),
        answer=StopStateShape,
    )
    def get(self) -> rules.StopState:
        return rules.state()

    @describe(
        "stop_all_approvals",
        "Stop all approvals at once",
        "Approvers and admins may. `comment` says why and may not be empty. Until it is lifted no rule decides, no"
        " wave goes on, every approval is refused with `stopped`, and no order is given to an agent. What Azure was"
        " asked already goes on.",
        needs="approve",
        answer=StopStateShape,
        body=WhySerializer,
        problems=("stopped",),
    )
    def post(self) -> rules.StopState:
        operations.stop_all(actor=self.actor.because(self.wanted["comment"]), now=self.now)
        return rules.state()


class LiftStop(Call):
    @describe(
        "lift_stop",
        "Let approvals go on",
        "What was decided before the stop goes on, unless NotBefore is past.",
        needs="admin",
        answer=StopStateShape,
        body=WhySerializer,
        problems=("not-stopped",),
    )
    def post(self) -> rules.StopState:
        operations.lift(actor=self.actor.because(self.wanted["comment"]), now=self.now)
        return rules.state()
