"""Views of rules, no-approval windows, and the stop of all approvals."""

from typing import Any

from django import forms
from django.http import HttpResponse
from django.urls import reverse

from fleet.dashboard.forms import commented
from fleet.dashboard.pages import Asked, action_view, done, form_view, known, page, read_view, refused
from fleet.domain.people import Right
from fleet.domain.policy.rules import StandingRule
from fleet.domain.reasons import Refused
from fleet.operations.policy import rules as operations
from fleet.operations.policy.rules import RuleForm, RuleRequestSerializer, WindowForm
from fleet.projections.policy import dry_run, rules
from fleet.projections.policy.rules import RuleRow


def list_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """Return the page of rules, in their order, and no-approval windows. It is also the response to a refused form.

    The URLs of a single rule or window show this page, too.
    """
    if not request.rights.may(Right.ADMINISTER):
        context["window_form"] = None
    elif "window_form" not in context:
        context["window_form"] = WindowForm()
    context |= {"rules": rules.listing(now=request.now), "windows": rules.windows(now=request.now)}
    return page(request, "policy/rules.html", **context)


rule_list = read_view("policy/", "rules")(list_answer)


@form_view("rules/new/", "rule-new")
def rule_new(request: Asked) -> HttpResponse:
    """Show the form of a new rule. It can be tried on past events, which saves nothing."""
    missing = request.rights.missing(Right.ADMINISTER, doing="make-rule")
    if missing:
        return list_answer(request, **refused(Refused("not-permitted", missing)))
    if request.method == "POST":
        return form_answer(request, None)
    return rule_answer(request, RuleForm(initial={"action": "approve_now", **_prefilled(request)}), None)


def _prefilled(request: Asked) -> dict[str, Any]:
    """Return the values of a new rule from the URL, such as from a link at a recommendation. They only fill in the
    form; nothing is saved.
    """
    lists = {name for name, field in RuleForm.base_fields.items() if isinstance(field, forms.MultipleChoiceField)}
    return {
        name: request.GET.getlist(name) if name in lists else request.GET[name]
        for name in RuleForm.base_fields
        if name in request.GET
    }


@form_view("rules/<int:rule_id>/", "rule")
def rule_page(request: Asked, rule_id: int) -> HttpResponse:
    """Show one rule: its form for administrators, and its wording and dry run for all users."""
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
    """Perform the action of the pressed button: try the rule on past events, or save it."""
    form = RuleForm(request.POST)
    try:
        if request.POST.get("do") == "try":
            rule = operations.tried_rule(form, now=request.now, rule_id=found.id if found else None)
            return rule_answer(request, form, found, tried=dry_run.dry_run(rule=rule, now=request.now))
        if found:
            row = operations.change_rule(
                form, rule_id=found.id, actor=request.actor, now=request.now, expected=_seen(request)
            )
            said = "Saved. Earlier decisions keep the wording that they were made by."
        else:
            row = operations.create_rule(form, actor=request.actor, now=request.now)
            said = f"“{row.name}” has been created. It is off: try it, then switch it on."
    except Refused as error:
        context = refused(error)
        form.show(context.pop("refusal"))
        return rule_answer(request, form, found, **context)
    return done(request, said, "rule", rule_id=row.pk)


@action_view("rules/<int:rule_id>/switch/", "rule-switch", list_answer)
def rule_switch(request: Asked, rule_id: int) -> HttpResponse:
    sent = RuleRequestSerializer(data={"enabled": request.POST.get("enabled") == "on"})
    row = operations.change_rule(sent, rule_id=rule_id, actor=request.actor, now=request.now, expected=_seen(request))
    return _back(request, f"“{row.name}” is {'on: it decides from now on' if row.enabled else 'off'}.", rule_id)


@action_view("rules/<int:rule_id>/move/", "rule-move", list_answer)
def rule_move(request: Asked, rule_id: int) -> HttpResponse:
    steps = -1 if request.POST.get("to") == "up" else 1
    row = operations.move(rule_id=rule_id, actor=request.actor, now=request.now, steps=steps, expected=_seen(request))
    return _back(request, f"“{row.name}” is number {row.position} now.", rule_id)


@action_view("rules/<int:rule_id>/delete/", "rule-delete", list_answer)
def rule_delete(request: Asked, rule_id: int) -> HttpResponse:
    row = operations.delete_rule(rule_id=rule_id, actor=request.actor, now=request.now, expected=_seen(request))
    return _back(request, f"“{row.name}” is deleted. What it decided stands.")


def _seen(request: Asked) -> list[str] | None:
    """Return the version of the rule that the submitted page showed; None if the form contains none."""
    return request.POST.getlist("version") or None


def _back(request: Asked, said: str, rule_id: int | None = None) -> HttpResponse:
    """Redirect to the list of rules, at this rule, with the message `said`."""
    return done(request, said, reverse("rules") + (f"#rule-{rule_id}" if rule_id else ""))


def window_answer(request: Asked, *, refusal: dict[str, Any], **context: Any) -> HttpResponse:
    """Return the rules' page with the form of the no-approval window and its errors."""
    form = WindowForm(request.POST)
    form.show(refusal)
    return list_answer(request, refusal=refusal, window_form=form, **context)


@action_view("no-approval-windows/", "window-new", window_answer)
def window_new(request: Asked) -> HttpResponse:
    row = operations.create_window(WindowForm(request.POST), actor=request.actor, now=request.now)
    return done(request, f"“{row.name}” has been created.", f"{reverse('rules')}#windows")


@action_view("no-approval-windows/<int:window_id>/delete/", "window-delete", list_answer)
def window_delete(request: Asked, window_id: int) -> HttpResponse:
    row = operations.delete_window(window_id=window_id, actor=request.actor, now=request.now)
    return done(request, f"“{row.name}” is deleted.", "rules")


def stop_answer(request: Asked, /, **context: Any) -> HttpResponse:
    return page(request, "policy/stop.html", state=rules.state(), **context)


stop_page = read_view("stop/", "stop")(stop_answer)


@read_view("stop/banner/", "stop-banner")
def banner(request: Asked) -> HttpResponse:
    """Return the banner about the stop of all approvals. The browser requests it when the event stream reports a
    change.
    """
    return page(request, "policy/stop_banner.html")


@action_view("stop/all/", "stop-all", stop_answer)
def stop_all(request: Asked) -> HttpResponse:
    operations.stop_all(actor=commented(request), now=request.now)
    return done(request, "All approvals are stopped. Approvals already sent to Azure continue.", "stop")


@action_view("stop/lift/", "stop-lift", stop_answer)
def lift(request: Asked) -> HttpResponse:
    operations.lift(actor=commented(request), now=request.now, expected=_seen(request))
    return done(request, "Approvals are allowed again.", "stop")
