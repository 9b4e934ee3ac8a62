"""Rules, dry runs, and no-approval windows."""

from typing import Any

from fleet.api.calls import Call
from fleet.api.describe import describe
from fleet.api.problems import Problem
from fleet.api.shapes.rules import (
    DryRunRequestSerializer,
    DryRunShape,
    NoApprovalWindowShape,
    RuleRequestSerializer,
    RuleShape,
    WindowRequestSerializer,
)
from fleet.domain.policy.rules import StandingRule, changed, refuse, trying_faults
from fleet.operations.policy import rules as changing
from fleet.operations.policy import rules as closing
from fleet.projections.pages import Page
from fleet.projections.policy import dry_run, rules

UNKNOWN = ("not-found", "There is no rule with this id.")
UNKNOWN_WINDOW = ("not-found", "There is no no-approval window with this id.")


def said(wanted: dict[str, Any]) -> dict[str, Any]:
    """What operations take: the fields apart from the switch and the place."""
    fields = {name: value for name, value in wanted.items() if name not in ("enabled", "position")}
    return {"fields": fields, **{name: wanted[name] for name in ("enabled", "position") if name in wanted}}


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
        row = changing.create_rule(actor=self.actor, now=self.now, **said(self.wanted))
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
        changing.change_rule(
            rule_id=rule_id, actor=self.actor, now=self.now, expected=self.expected, **said(self.wanted)
        )
        return rules.detail(rule_id=rule_id, now=self.now)

    @describe(
        "delete_rule",
        "Delete a rule; its decisions stand",
        ("Those after it move up. What it approved or left to Azure stays so."),
        needs="admin",
        matches=True,
    )
    def delete(self, rule_id: int) -> None:
        changing.delete_rule(rule_id=rule_id, actor=self.actor, now=self.now, expected=self.expected)


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
        rule = rules.standing(rule_id=wanted["id"]) if "id" in wanted else StandingRule(action="")
        if rule is None:
            raise Problem(*UNKNOWN)
        rule = changed(rule, wanted.get("rule", {}))
        refuse(trying_faults(rule, now=self.now), inside="rule.")
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
        row = closing.create_window(actor=self.actor, now=self.now, values=self.wanted)
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
        closing.delete_window(window_id=window_id, actor=self.actor, now=self.now)
