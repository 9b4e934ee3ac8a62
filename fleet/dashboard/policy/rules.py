"""Rules: their order, the page of one, and what it would have decided about the past."""

from typing import Any

from django.contrib import messages
from django.forms import MultipleChoiceField
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from fleet.dashboard.pages import Asked, acts, done, known, page, reader, refused, shown
from fleet.dashboard.policy.forms import RuleForm, WindowForm
from fleet.domain.people import Right
from fleet.domain.policy.rules import StandingRule, changed, refuse, trying_faults
from fleet.domain.reasons import Refused
from fleet.operations.policy import rules as operations
from fleet.projections.policy import dry_run, rules
from fleet.projections.policy.rules import RuleRow


def list_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """The rules in their order, and the hours without approvals; also the answer to a form that was refused.

    Addresses of one rule or window lead here, too.
    """
    if not request.rights.may(Right.ADMINISTER):
        context["window_form"] = None
    elif "window_form" not in context:
        context["window_form"] = WindowForm()
    context |= {"rules": rules.listing(now=request.now), "windows": rules.windows(now=request.now)}
    return page(request, "policy/rules.html", **context)


rule_list = shown(list_answer)


@require_http_methods(["GET", "HEAD", "POST"])
@reader
def rule_new(request: Asked) -> HttpResponse:
    """The form of a new rule; trying it on the past saves nothing."""
    missing = request.rights.missing(Right.ADMINISTER, doing="make-rule")
    if missing:
        return list_answer(request, **refused(Refused("not-permitted", missing)))
    if request.method == "POST":
        return form_answer(request, None)
    return rule_answer(request, RuleForm(initial={"action": "approve_now", **_prefilled(request)}), None)


def _prefilled(request: Asked) -> dict[str, Any]:
    """What an address states of a new rule, such as that of a piece of advice: shown in the form, and saved by nobody
    but whoever sends it.
    """
    lists = {name for name, field in RuleForm.base_fields.items() if isinstance(field, MultipleChoiceField)}
    return {
        name: request.GET.getlist(name) if name in lists else request.GET[name]
        for name in RuleForm.base_fields
        if name in request.GET
    }


@require_http_methods(["GET", "HEAD", "POST"])
@reader
def rule_page(request: Asked, rule_id: int) -> HttpResponse:
    """One rule: its form for admins, its words for everybody, and what it would have decided."""
    found = known(rules.detail(rule_id=rule_id, now=request.now), "No rule has this number; it may have been deleted.")
    if request.method == "POST":
        return form_answer(request, found)
    context = {}
    if request.GET.get("try"):
        rule = rules.standing(rule_id=rule_id) or StandingRule()
        context["tried"] = dry_run.dry_run(rule=rule, now=request.now)
    form = RuleForm(initial={name: getattr(found, name, "") for name in RuleForm.base_fields})
    return rule_answer(request, form, found, **context)


def rule_answer(request: Asked, form: RuleForm, found: RuleRow | None, **context: Any) -> HttpResponse:
    return page(request, "policy/rule.html", form=form, rule=found, **context)


def form_answer(request: Asked, found: RuleRow | None) -> HttpResponse:
    """What the form's two buttons do: try such a rule on the past, or save it."""
    form = RuleForm(request.POST)
    if not form.is_valid():
        return rule_answer(request, form, found, status=422)
    acting: dict[str, Any] = {"actor": request.actor, "now": request.now}
    try:
        if request.POST.get("do") == "try":
            tried = dry_run.dry_run(rule=_sent(request, form, found), now=request.now)
            return rule_answer(request, form, found, tried=tried)
        if found:
            row = operations.change_rule(rule_id=found.id, fields=form.values(), expected=_seen(request), **acting)
            messages.success(request, "Saved. Earlier decisions keep the wording that they were made by.")
        else:
            row = operations.create_rule(fields=form.values(), **acting)
            messages.success(request, f"“{row.name}” has been created. It is off: try it, then switch it on.")
    except Refused as error:
        context = refused(error)
        refusal = context.pop("refusal")
        form.refuse(refusal.get("errors", [{"field": "", "message": refusal["sentence"]}]))
        return rule_answer(request, form, found, **context)
    return redirect("rule", rule_id=row.pk)


def _sent(request: Asked, form: RuleForm, found: RuleRow | None) -> StandingRule:
    """The rule of the form. It may be tried before it has a name, and after it has expired."""
    saved = rules.standing(rule_id=found.id) if found else None
    rule = changed(saved or StandingRule(), form.values())
    refuse(trying_faults(rule, now=request.now))
    return rule


@acts(list_answer)
def rule_switch(request: Asked, rule_id: int) -> HttpResponse:
    enabled = request.POST.get("enabled") == "on"
    row = operations.change_rule(
        rule_id=rule_id, actor=request.actor, now=request.now, enabled=enabled, expected=_seen(request)
    )
    return _back(request, f"“{row.name}” is {'on: it decides from now on' if row.enabled else 'off'}.", rule_id)


@acts(list_answer)
def rule_move(request: Asked, rule_id: int) -> HttpResponse:
    steps = -1 if request.POST.get("to") == "up" else 1
    row = operations.move(rule_id=rule_id, actor=request.actor, now=request.now, steps=steps, expected=_seen(request))
    return _back(request, f"“{row.name}” is number {row.position} now.", rule_id)


@acts(list_answer)
def rule_delete(request: Asked, rule_id: int) -> HttpResponse:
    row = operations.delete_rule(rule_id=rule_id, actor=request.actor, now=request.now, expected=_seen(request))
    return _back(request, f"“{row.name}” is deleted. What it decided stands.")


def _seen(request: Asked) -> list[str] | None:
    """The version of the rule on the page that was looked at."""
    return request.POST.getlist("version") or None


def _back(request: Asked, said: str, rule_id: int | None = None) -> HttpResponse:
    """Back to the list, at the rule that it was about."""
    return done(request, said, reverse("rules") + (f"#rule-{rule_id}" if rule_id else ""))
