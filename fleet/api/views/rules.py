"""API calls about rules, dry runs, no-approval windows, and the stop of all approvals."""

from fleet.api.calls import Call
from fleet.api.schema import describe, detail_call, list_call
from fleet.api.shapes.requests import DryRunRequestSerializer, WhySerializer
from fleet.operations.policy import rules as operations
from fleet.operations.policy.rules import RuleFieldsSerializer, RuleRequestSerializer, WindowRequestSerializer
from fleet.projections.policy import dry_run, rules

UNKNOWN = ("not-found", "There is no rule with this id.")
UNKNOWN_WINDOW = ("not-found", "There is no no-approval window with this id.")


@list_call("list_rules", rules.page)
class Rules(Call, at="rules/"):
    """List rules in their order

    The first rule that matches an event decides it.
    """

    @describe(
        "create_rule",
        needs="admin",
        location="rules/{id}/",
        version="changed_at",
        body=RuleRequestSerializer,
    )
    def post(self) -> rules.RuleRow | None:
        """Create a rule

        It is switched off and last in the order unless the body states otherwise. Try it with a dry run before you
        switch it on.
        """
        row = operations.create_rule(self.wanted, actor=self.actor, now=self.now)
        return rules.detail(rule_id=row.pk, now=self.now)


@detail_call("get_rule", rules.detail, version="changed_at", missing=UNKNOWN)
class Rule(Call, at="rules/<int:rule_id>/"):
    """Get a rule

    What it matches and does, its description in one sentence (`wording`), and the number of events that it decided.
    """

    @describe(
        "change_rule", needs="admin", version="changed_at", matches=True, body=RuleRequestSerializer, missing=UNKNOWN
    )
    def patch(self, rule_id: int) -> rules.RuleRow | None:
        """Change a rule, switch it on or off, or move it in the order

        Omitted fields stay as they are. Its earlier decisions keep the wording that it had then.
        """
        operations.change_rule(self.wanted, rule_id=rule_id, actor=self.actor, now=self.now, expected=self.expected)
        return rules.detail(rule_id=rule_id, now=self.now)

    @describe("delete_rule", needs="admin", matches=True)
    def delete(self, rule_id: int) -> None:
        """Delete a rule

        Its decisions stay in force: events that it approved or left to Azure do not change. Later rules move up.
        """
        operations.delete_rule(rule_id=rule_id, actor=self.actor, now=self.now, expected=self.expected)


class RuleDryRun(Call, at="rules/dry-run/"):
    @describe("try_rule", needs="read", body=DryRunRequestSerializer, problems=("not-found",))
    def post(self) -> dry_run.DryRun:
        """Try a rule on past events

        Which of the newest 500 events the rule would have decided at their first sighting, compared with what happened.
        Nothing is stored.
        """
        wanted = self.wanted
        sent = RuleFieldsSerializer(data=wanted.get("rule", {}))
        rule = operations.tried_rule(sent, now=self.now, rule_id=wanted.get("id"), inside="rule.")
        return dry_run.dry_run(rule=rule, now=self.now, since=wanted["since"], until=wanted["until"])


@list_call("list_no_approval_windows", rules.page_of_windows)
class NoApprovalWindows(Call, at="no-approval-windows/"):
    """List no-approval windows: hours in which an approval needs a reason

    Expired ones last.
    """

    @describe(
        "create_no_approval_window",
        needs="admin",
        location="no-approval-windows/{id}/",
        body=WindowRequestSerializer,
    )
    def post(self) -> rules.WindowRow | None:
        """Create a no-approval window

        Either once, from `starts_at` to `ends_at`, or weekly, by `weekdays` and hours.
        """
        row = operations.create_window(self.wanted, actor=self.actor, now=self.now)
        return rules.window(window_id=row.pk, now=self.now)


@detail_call("get_no_approval_window", rules.window, missing=UNKNOWN_WINDOW)
class NoApprovalWindow(Call, at="no-approval-windows/<int:window_id>/"):
    """Get a no-approval window

    When and where it applies, as fields and as a sentence.
    """

    @describe("delete_no_approval_window", needs="admin")
    def delete(self, window_id: int) -> None:
        """Delete a no-approval window

        It requires no more reasons from now on. Decisions that were refused because of it stay refused.
        """
        operations.delete_window(window_id=window_id, actor=self.actor, now=self.now)


@detail_call("get_stop", rules.state)
class Stop(Call, at="stop/"):
    """Get the state of the stop of all approvals

    Who stopped them and why, the number of approvals that wait for its end, and earlier stops.
    """

    @describe("stop_all_approvals", needs="approve", body=WhySerializer, problems=("stopped",))
    def post(self) -> rules.StopState:
        """Stop all approvals

        For approvers and administrators; `comment` is required and states the reason. Until the stop is lifted, no rule
        decides, waves pause, every approval is refused with `stopped`, and agents get no orders. Requests that Azure
        has already received continue.
        """
        operations.stop_all(actor=self.commented, now=self.now)
        return rules.state()


class LiftStop(Call, at="stop/lift/"):
    @describe("lift_stop", needs="admin", body=WhySerializer, problems=("not-stopped",))
    def post(self) -> rules.StopState:
        """Lift the stop of all approvals

        Approvals that were granted before the stop continue, unless NotBefore has passed.
        """
        operations.lift(actor=self.commented, now=self.now)
        return rules.state()
