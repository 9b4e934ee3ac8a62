"""Rules, dry runs, and no-approval windows."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import actor_of
from fleet.api.calls import Call, describe
from fleet.api.problems import Problem
from fleet.api.shapes.derive import page_of
from fleet.api.shapes.rules import (
    DryRunRequestSerializer,
    DryRunShape,
    NoApprovalWindowShape,
    RuleRequestSerializer,
    RuleShape,
    WindowRequestSerializer,
)
from fleet.domain.policy.faults import refuse, trying_faults
from fleet.domain.policy.rules import StandingRule, changed
from fleet.operations.policy import rules as changing
from fleet.operations.policy import windows as closing
from fleet.projections.policy import dry_run, rules


def said(wanted: dict[str, Any]) -> dict[str, Any]:
    """What operations take: the fields apart from the switch and the place."""
    fields = {name: value for name, value in wanted.items() if name not in ("enabled", "position")}
    return {"fields": fields, **{name: wanted[name] for name in ("enabled", "position") if name in wanted}}


class Rules(Call):
    needs = {"POST": "admin"}

    @describe(
        "list_rules",
        "Rules in their order",
        answer=page_of(RuleShape),
        description="All of them at once. The first that matches an event decides it.",
    )
    def get(self, request: Request) -> Response:
        return self.all_of(RuleShape, rules.listing(now=self.now))

    @describe(
        "create_rule",
        "Make a rule",
        answer=RuleShape,
        status=201,
        body=RuleRequestSerializer,
        problems=(422,),
        description="It is off, and at the end of the order, unless the body says otherwise. Try it first.",
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(RuleRequestSerializer, request)
        row = changing.create(actor=actor_of(request), now=self.now, **said(wanted))
        return shown(row.pk, self, status=201)


class Rule(Call):
    needs = {"PATCH": "admin", "DELETE": "admin"}

    @describe("get_rule", "One rule", answer=RuleShape, problems=(404,))
    def get(self, request: Request, rule_id: int) -> Response:
        return shown(rule_id, self)

    @describe(
        "change_rule",
        "Change a rule, switch it on or off, or move it in the order",
        answer=RuleShape,
        body=RuleRequestSerializer,
        problems=(404, 422),
    )
    def patch(self, request: Request, rule_id: int) -> Response:
        wanted = self.read(RuleRequestSerializer, request)
        changing.change(
            rule_id=rule_id,
            actor=actor_of(request),
            now=self.now,
            **said(wanted),
        )
        return shown(rule_id, self)

    @describe("delete_rule", "Delete a rule; its decisions stand", status=204, problems=(404,))
    def delete(self, request: Request, rule_id: int) -> Response:
        changing.delete(rule_id=rule_id, actor=actor_of(request), now=self.now)
        return Response(status=204)


class RuleDryRun(Call):
    # It writes nothing.
    needs = {"POST": "read"}

    @describe(
        "try_rule",
        "Try a rule on the stored history",
        answer=DryRunShape,
        body=DryRunRequestSerializer,
        problems=(404, 422),
        description=(
            "Which of the newest 500 events a rule would have decided at their first sighting, beside what happened."
            " Nothing is written."
        ),
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(DryRunRequestSerializer, request)
        rule = rules.standing(rule_id=wanted["id"]) if "id" in wanted else StandingRule(action="")
        if rule is None:
            raise Problem("not-found", "There is no rule of this id.")
        rule = changed(rule, wanted.get("rule", {}))
        refuse(trying_faults(rule, now=self.now), inside="rule.")
        found = dry_run.dry_run(rule=rule, now=self.now, since=wanted["since"], until=wanted["until"])
        return self.shown(DryRunShape, found)


class NoApprovalWindows(Call):
    needs = {"POST": "admin"}

    @describe(
        "list_no_approval_windows",
        "Hours in which nothing is approved without a reason",
        answer=page_of(NoApprovalWindowShape),
        description="All of them at once, those that are over last.",
    )
    def get(self, request: Request) -> Response:
        return self.all_of(NoApprovalWindowShape, rules.windows(now=self.now))

    @describe(
        "create_no_approval_window",
        "Make a no-approval window",
        answer=NoApprovalWindowShape,
        status=201,
        body=WindowRequestSerializer,
        problems=(422,),
        description="Once, from `starts_at` to `ends_at`; or every week, by `weekdays` and hours.",
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(WindowRequestSerializer, request)
        row = closing.create(actor=actor_of(request), now=self.now, values=wanted)
        return self.shown(NoApprovalWindowShape, rules.window(window_id=row.pk, now=self.now), status=201)


class NoApprovalWindow(Call):
    needs = {"DELETE": "admin"}

    @describe("get_no_approval_window", "One no-approval window", answer=NoApprovalWindowShape, problems=(404,))
    def get(self, request: Request, window_id: int) -> Response:
        found = rules.window(window_id=window_id, now=self.now)
        return self.shown(NoApprovalWindowShape, found, "not-found", "There is no no-approval window of this id.")

    @describe("delete_no_approval_window", "Delete a no-approval window", status=204, problems=(404,))
    def delete(self, request: Request, window_id: int) -> Response:
        closing.delete(window_id=window_id, actor=actor_of(request), now=self.now)
        return Response(status=204)


def shown(rule_id: int, call: Call, *, status: int = 200) -> Response:
    """One rule. Raises Problem `not-found`."""
    found = rules.detail(rule_id=rule_id, now=call.now)
    return call.shown(RuleShape, found, "not-found", "There is no rule of this id.", status=status)
