"""Pages about rules and no-approval windows. Each parses, calls one operation, answers."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from fleet.dashboard.pages import missing, page, person, reader
from fleet.dashboard.rule_forms import HoursForm, RuleForm, WindowForm
from fleet.domain.rule_faults import faults
from fleet.domain.rules import Standing, changed
from fleet.operations import rules as changing
from fleet.operations import windows as closing
from fleet.operations.errors import Refused
from fleet.operations.rights import can_administer
from fleet.projections import dry_run, rules

STATUS = {"not-found": 404, "not-permitted": 403, "validation": 422}


@require_safe
@reader
def rule_list(request: HttpRequest) -> HttpResponse:
    """The rules in their order, and the hours without approvals."""
    return list_answer(request)


def list_answer(request: HttpRequest, *, status: int = 200, **context: Any) -> HttpResponse:
    now = timezone.now()
    if can_administer(request.user):
        context.setdefault("window_form", WindowForm())
    return page(
        request,
        "rules.html",
        {},
        now=now,
        status=status,
        rules=rules.listing(now=now),
        windows=rules.windows(now=now),
        **context,
    )


def refused_list(request: HttpRequest, refusal: Refused, **context: Any) -> HttpResponse:
    return list_answer(request, status=STATUS.get(refusal.code, 409), refusal={"sentence": refusal.sentence}, **context)


@require_http_methods(["GET", "HEAD", "POST"])
@reader
def rule_new(request: HttpRequest) -> HttpResponse:
    """The form of a new rule; trying it on history saves nothing."""
    if not can_administer(request.user):
        return refused_list(request, Refused("not-permitted", "Making a rule needs the right of an admin."))
    if request.method != "POST":
        return rule_answer(request, RuleForm(initial={"action": "approve_now"}), None)
    form = RuleForm(request.POST)
    if request.POST.get("do") == "try":
        return tried(request, form, None)

    def act() -> HttpResponse:
        row = changing.create(by=person(request), via="page", now=timezone.now(), fields=form.values())
        messages.success(request, f"Made: “{row.name}”. It is off: try it, then switch it on.")
        return redirect("rule", rule_id=row.pk)

    return saved(request, form, None, act)


@require_http_methods(["GET", "HEAD", "POST"])
@reader
def rule_page(request: HttpRequest, rule_id: int) -> HttpResponse:
    """One rule: its form for admins, its words for everybody, and what it would have decided."""
    now = timezone.now()
    found = rules.detail(rule_id=rule_id, now=now)
    if found is None:
        return missing(request, "There is no such rule (any more).")
    if request.method != "POST":
        initial = {name: getattr(found, name) for name in RuleForm.base_fields}
        form = RuleForm(initial=initial)
        if request.GET.get("try"):
            standing = rules.standing(rule_id=rule_id) or Standing()
            return rule_answer(request, form, found, tried=dry_run.dry_run(rule=standing, now=now))
        return rule_answer(request, form, found)
    form = RuleForm(request.POST)
    if request.POST.get("do") == "try":
        return tried(request, form, found)

    def act() -> HttpResponse:
        changing.change(rule_id=rule_id, by=person(request), via="page", now=timezone.now(), fields=form.values())
        messages.success(request, "Saved. Decisions made before keep the wording that they were made by.")
        return redirect("rule", rule_id=rule_id)

    return saved(request, form, found, act)


def rule_answer(
    request: HttpRequest, form: RuleForm, found: rules.RuleRow | None, *, status: int = 200, **context: Any
) -> HttpResponse:
    return page(request, "rule.html", {}, now=timezone.now(), status=status, form=form, rule=found, **context)


def saved(
    request: HttpRequest, form: RuleForm, found: rules.RuleRow | None, act: Callable[[], HttpResponse]
) -> HttpResponse:
    """What saving answers; the form with its faults when it was refused."""
    if not form.is_valid():
        return rule_answer(request, form, found, status=422)
    try:
        return act()
    except Refused as refusal:
        form.refuse(refusal.details.get("errors", [{"field": "", "message": refusal.sentence}]))
        return rule_answer(request, form, found, status=STATUS.get(refusal.code, 409))


def tried(request: HttpRequest, form: RuleForm, found: rules.RuleRow | None) -> HttpResponse:
    """The form as it was sent, with what such a rule would have decided."""
    now = timezone.now()
    if not form.is_valid():
        return rule_answer(request, form, found, status=422)
    saved_rule = rules.standing(rule_id=found.id) if found else None
    rule = changed(saved_rule or Standing(), form.values())
    # It may be tried before it has a name, and after it has expired.
    wrong = [one for one in faults(rule, now=now) if one[0] not in ("name", "reason", "expires_at")]
    if wrong:
        form.refuse([{"field": field, "message": sentence} for field, sentence in wrong])
        return rule_answer(request, form, found, status=422)
    return rule_answer(request, form, found, tried=dry_run.dry_run(rule=rule, now=now))


@require_POST
@reader
def rule_switch(request: HttpRequest, rule_id: int) -> HttpResponse:
    enabled = request.POST.get("enabled") == "on"

    def act() -> str:
        row = changing.change(rule_id=rule_id, by=person(request), via="page", now=timezone.now(), enabled=enabled)
        return f"“{row.name}” is {'on: it decides from now on' if row.enabled else 'off'}."

    return done(request, act, rule_id)


@require_POST
@reader
def rule_move(request: HttpRequest, rule_id: int) -> HttpResponse:
    steps = -1 if request.POST.get("to") == "up" else 1

    def act() -> str:
        row = changing.move(rule_id=rule_id, by=person(request), via="page", now=timezone.now(), steps=steps)
        return f"“{row.name}” stands at place {row.position}."

    return done(request, act, rule_id)


@require_POST
@reader
def rule_delete(request: HttpRequest, rule_id: int) -> HttpResponse:
    def act() -> str:
        row = changing.delete(rule_id=rule_id, by=person(request), via="page", now=timezone.now())
        return f"“{row.name}” is deleted. What it decided stands."

    return done(request, act)


@require_POST
@reader
def window_new(request: HttpRequest) -> HttpResponse:
    form = WindowForm(request.POST)
    if not form.is_valid():
        return refused_window(request, form, Refused("validation", "Something in the window is wrong."))
    try:
        row = closing.create(by=person(request), via="page", now=timezone.now(), values=form.values())
    except Refused as refusal:
        form.refuse(refusal.details.get("errors", []))
        return refused_window(request, form, refusal)
    messages.success(request, f"Made: “{row.name}”.")
    return redirect(f"{reverse('rules')}#windows")


def refused_window(request: HttpRequest, form: HoursForm, refusal: Refused) -> HttpResponse:
    if not can_administer(request.user):
        return refused_list(request, refusal)
    return refused_list(request, refusal, window_form=form)


@require_POST
@reader
def window_delete(request: HttpRequest, window_id: int) -> HttpResponse:
    def act() -> str:
        row = closing.delete(window_id=window_id, by=person(request), via="page", now=timezone.now())
        return f"“{row.name}” is deleted."

    return done(request, act)


def done(request: HttpRequest, act: Callable[[], str], rule_id: int | None = None) -> HttpResponse:
    """Carry out, and back to the list, at the rule that it was about."""
    try:
        messages.success(request, act())
    except Refused as refusal:
        return refused_list(request, refusal)
    return redirect(reverse("rules") + (f"#rule-{rule_id}" if rule_id else ""))
