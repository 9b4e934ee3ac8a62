"""Rules, dry runs, no-approval windows, and the stop of all approvals."""

from fleet.api.calls import Call
from fleet.api.schema import describe, detail_call, list_call
from fleet.api.shapes.requests import DryRunRequestSerializer, WhySerializer
from fleet.operations.policy import rules as operations
from fleet.operations.policy.rules import RuleFieldsSerializer, RuleRequestSerializer, WindowRequestSerializer
from fleet.projections.policy import dry_run, rules

UNKNOWN = ("not-found", "There is no rule with this id.")
UNKNOWN_WINDOW = ("not-found", "There is no no-approval window with this id.")


@list_call("list_rules", rules.page)
class Rules(Call):
    """Rules in their order

    The first that matches an event decides it.
    """

    @describe(
        "create_rule",
        needs="admin",
        location="rules/{id}/",
        version="changed_at",
        body=RuleRequestSerializer,
    )
    def post(self) -> rules.RuleRow | None:
        """Make a rule

        It is off, and at the end of the order, unless the body says otherwise. Try it first.
        """
        row = operations.create_rule(self.wanted, actor=self.actor, now=self.now)
        return rules.detail(rule_id=row.pk, now=self.now)


@detail_call("get_rule", rules.detail, version="changed_at", missing=UNKNOWN)
class Rule(Call):
    """One rule

    What it matches and does, its `wording`, the whole of it in one sentence, and how many events it has decided.
    """

    @describe(
        "change_rule", needs="admin", version="changed_at", matches=True, body=RuleRequestSerializer, missing=UNKNOWN
    )
    def patch(self, rule_id: int) -> rules.RuleRow | None:
        """Change a rule, switch it on or off, or move it in the order

        What is left out stays as it is. What it decided before keeps the wording of then.
        """
        operations.change_rule(self.wanted, rule_id=rule_id, actor=self.actor, now=self.now, expected=self.expected)
        return rules.detail(rule_id=rule_id, now=self.now)

    @describe("delete_rule", needs="admin", matches=True)
    def delete(self, rule_id: int) -> None:
        """Delete a rule; its decisions stand

        Those after it move up. What it approved or left to Azure stays so.
        """
        operations.delete_rule(rule_id=rule_id, actor=self.actor, now=self.now, expected=self.expected)


class RuleDryRun(Call):
    @describe("try_rule", needs="read", body=DryRunRequestSerializer, problems=("not-found",))
    def post(self) -> dry_run.DryRun:
        """Try a rule on the stored history

        Which of the newest 500 events a rule would have decided at their first sighting, beside what happened. Nothing
        is written.
        """
        wanted = self.wanted
        sent = RuleFieldsSerializer(data=wanted.get("rule", {}))
        rule = operations.tried_rule(sent, now=self.now, rule_id=wanted.get("id"), inside="rule.")
        return dry_run.dry_run(rule=rule, now=self.now, since=wanted["since"], until=wanted["until"])


@list_call("list_no_approval_windows", rules.page_of_windows)
class NoApprovalWindows(Call):
    """Hours in which nothing is approved without a reason

    Those that are over last.
    """

    @describe(
        "create_no_approval_window",
        needs="admin",
        location="no-approval-windows/{id}/",
        body=WindowRequestSerializer,
    )
    def post(self) -> rules.WindowRow | None:
        """Make a no-approval window

        Once, from `starts_at` to `ends_at`; or every week, by `weekdays` and hours.
        """
        row = operations.create_window(self.wanted, actor=self.actor, now=self.now)
        return rules.window(window_id=row.pk, now=self.now)


@detail_call("get_no_approval_window", rules.window, missing=UNKNOWN_WINDOW)
class NoApprovalWindow(Call):
    """One no-approval window

    When and where it holds, in fields and in words.
    """

    @describe("delete_no_approval_window", needs="admin")
    def delete(self, window_id: int) -> None:
        """Delete a no-approval window

        From now on it asks nobody for a reason. What was refused because of it stays refused.
        """
        operations.delete_window(window_id=window_id, actor=self.actor, now=self.now)


@detail_call("get_stop", rules.state)
class Stop(Call):
    """Whether all approvals are stopped

    Who stopped them and why, how many approvals are kept back, and the stops before.
    """

    @describe("stop_all_approvals", needs="approve", body=WhySerializer, problems=("stopped",))
    def post(self) -> rules.StopState:
        """Stop all approvals at once

        Approvers and admins may. `comment` says why and may not be empty. Until it is lifted no rule decides, no wave
        goes on, every approval is refused with `stopped`, and no order is given to an agent. What Azure was asked
        already goes on.
        """
        operations.stop_all(actor=self.commented, now=self.now)
        return rules.state()


class LiftStop(Call):
    @describe("lift_stop", needs="admin", body=WhySerializer, problems=("not-stopped",))
    def post(self) -> rules.StopState:
        """Let approvals go on

        What was decided before the stop goes on, unless NotBefore is past.
        """
        operations.lift(actor=self.commented, now=self.now)
        return rules.state()
