"""Rules, dry runs, and no-approval windows."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.authentication import person_of, token_name
from fleet.api.calls import Call, problem_answers
from fleet.api.problems import Problem
from fleet.api.shapes.pages import page_of
from fleet.api.shapes.rules import (
    DryRunRequestSerializer,
    DryRunSerializer,
    NoApprovalWindowSerializer,
    RuleRequestSerializer,
    RuleSerializer,
    WindowRequestSerializer,
)
from fleet.domain.rule_faults import faults
from fleet.domain.rules import Standing, changed
from fleet.operations import rules as changing
from fleet.operations import windows as closing
from fleet.projections import dry_run, rules


def said(wanted: dict[str, Any]) -> dict[str, Any]:
    """What operations take: the fields apart from the switch and the place."""
    fields = {name: value for name, value in wanted.items() if name not in ("enabled", "position")}
    return {"fields": fields, **{name: wanted[name] for name in ("enabled", "position") if name in wanted}}


class Rules(Call):
    needs = {"POST": "admin"}

    @extend_schema(
        operation_id="list_rules",
        summary="Rules in their order",
        description="All of them at once. The first that matches an event decides it.",
        responses={200: page_of(RuleSerializer), **problem_answers()},
    )
    def get(self, request: Request) -> Response:
        rows = RuleSerializer(rules.listing(now=self.now), many=True, context={"now": self.now}).data
        return Response({"next": None, "previous": None, "results": rows})

    @extend_schema(
        operation_id="create_rule",
        summary="Make a rule",
        description="It is off, and at the end of the order, unless the body says otherwise. Try it first.",
        request=RuleRequestSerializer,
        responses={201: RuleSerializer, **problem_answers(422)},
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(RuleRequestSerializer, request)
        row = changing.create(
            by=person_of(request), via="api", token_name=token_name(request), now=self.now, **said(wanted)
        )
        return shown(row.pk, self, status=201)


class Rule(Call):
    needs = {"PATCH": "admin", "DELETE": "admin"}

    @extend_schema(operation_id="get_rule", summary="One rule", responses={200: RuleSerializer, **problem_answers(404)})
    def get(self, request: Request, rule_id: int) -> Response:
        return shown(rule_id, self)

    @extend_schema(
        operation_id="change_rule",
        summary="Change a rule, switch it on or off, or move it in the order",
        request=RuleRequestSerializer,
        responses={200: RuleSerializer, **problem_answers(404, 422)},
    )
    def patch(self, request: Request, rule_id: int) -> Response:
        wanted = self.read(RuleRequestSerializer, request)
        changing.change(
            rule_id=rule_id,
            by=person_of(request),
            via="api",
            token_name=token_name(request),
            now=self.now,
            **said(wanted),
        )
        return shown(rule_id, self)

    @extend_schema(
        operation_id="delete_rule",
        summary="Delete a rule; its decisions stand",
        request=None,
        responses={204: None, **problem_answers(404)},
    )
    def delete(self, request: Request, rule_id: int) -> Response:
        changing.delete(rule_id=rule_id, by=person_of(request), via="api", token_name=token_name(request), now=self.now)
        return Response(status=204)


class RuleDryRun(Call):
    # It writes nothing.
    needs = {"POST": "read"}

    @extend_schema(
        operation_id="try_rule",
        summary="Try a rule on the stored history",
        description=(
            "Which of the newest 500 events a rule would have decided at their first sighting, beside what happened."
            " Nothing is written."
        ),
        request=DryRunRequestSerializer,
        responses={200: DryRunSerializer, **problem_answers(404, 422)},
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(DryRunRequestSerializer, request)
        rule: Standing | None = Standing(action="")
        if "id" in wanted:
            rule = rules.standing(rule_id=wanted["id"])
        if rule is None:
            raise Problem("not-found", "There is no rule of this id.")
        rule = changed(rule, wanted.get("rule", {}))
        wrong = [
            {"field": f"rule.{field}", "message": sentence}
            for field, sentence in faults(rule, now=self.now)
            # A rule may be tried before it has a name, and after it has expired.
            if field not in ("name", "reason", "expires_at")
        ]
        if wrong:
            raise Problem("validation", wrong[0]["message"], errors=wrong)
        found = dry_run.dry_run(rule=rule, now=self.now, since=wanted["since"], until=wanted["until"])
        return self.shown(DryRunSerializer, found)


class NoApprovalWindows(Call):
    needs = {"POST": "admin"}

    @extend_schema(
        operation_id="list_no_approval_windows",
        summary="Hours in which nothing is approved without a reason",
        description="All of them at once, those that are over last.",
        responses={200: page_of(NoApprovalWindowSerializer), **problem_answers()},
    )
    def get(self, request: Request) -> Response:
        found = rules.windows(now=self.now)
        rows = NoApprovalWindowSerializer(found, many=True, context={"now": self.now}).data
        return Response({"next": None, "previous": None, "results": rows})

    @extend_schema(
        operation_id="create_no_approval_window",
        summary="Make a no-approval window",
        description="Once, from `starts_at` to `ends_at`; or every week, by `weekdays` and hours.",
        request=WindowRequestSerializer,
        responses={201: NoApprovalWindowSerializer, **problem_answers(422)},
    )
    def post(self, request: Request) -> Response:
        wanted = self.read(WindowRequestSerializer, request)
        row = closing.create(
            by=person_of(request), via="api", token_name=token_name(request), now=self.now, values=wanted
        )
        return self.shown(NoApprovalWindowSerializer, rules.window(window_id=row.pk, now=self.now), status=201)


class NoApprovalWindow(Call):
    needs = {"DELETE": "admin"}

    @extend_schema(
        operation_id="get_no_approval_window",
        summary="One no-approval window",
        responses={200: NoApprovalWindowSerializer, **problem_answers(404)},
    )
    def get(self, request: Request, window_id: int) -> Response:
        found = rules.window(window_id=window_id, now=self.now)
        if found is None:
            raise Problem("not-found", "There is no no-approval window of this id.")
        return self.shown(NoApprovalWindowSerializer, found)

    @extend_schema(
        operation_id="delete_no_approval_window",
        summary="Delete a no-approval window",
        request=None,
        responses={204: None, **problem_answers(404)},
    )
    def delete(self, request: Request, window_id: int) -> Response:
        closing.delete(
            window_id=window_id, by=person_of(request), via="api", token_name=token_name(request), now=self.now
        )
        return Response(status=204)


def shown(rule_id: int, call: Call, *, status: int = 200) -> Response:
    """One rule. Raises Problem `not-found`."""
    found = rules.detail(rule_id=rule_id, now=call.now)
    if found is None:
        raise Problem("not-found", "There is no rule of this id.")
    return call.shown(RuleSerializer, found, status=status)
