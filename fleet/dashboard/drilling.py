"""Pages of drills: beginning one, its report, stopping it. Each parses, makes one call, answers."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from fleet.dashboard.forms import DrillForm, WithdrawalForm
from fleet.dashboard.pages import missing, page, person, reader
from fleet.dashboard.views import PAGE_SIZE, asked_again, listed, set_answer
from fleet.operations import drilling
from fleet.operations.drilling import Wanted
from fleet.operations.errors import Refused
from fleet.projections import drills

STATUS = {"unknown-set": 404, "unknown-drill": 404, "not-permitted": 403, "validation": 422}


@require_safe
@reader
def drill_list(request: HttpRequest) -> HttpResponse:
    def rows() -> dict[str, Any]:
        found = drills.listing(cursor=request.GET.get("cursor"), size=PAGE_SIZE)
        return {"drills": found, "links": asked_again(request, found)}

    return listed(request, "drills.html", {"drill_rows": rows}, now=timezone.now())


@require_safe
@reader
def drill_page(request: HttpRequest, drill_id: int) -> HttpResponse:
    return drill_answer(request, drill_id)


def drill_answer(request: HttpRequest, drill_id: int, *, status: int = 200, **context: Any) -> HttpResponse:
    """The report; also the answer to a form that was refused, which explains itself on it."""
    now = timezone.now()
    found = drills.report(drill_id=drill_id, now=now)
    if found is None:
        return missing(request, "There is no such drill.")
    return page(request, "drill.html", {"drill_body": dict}, now=now, status=status, report=found, **context)


@require_POST
@reader
def begin(request: HttpRequest, set_id: int) -> HttpResponse:
    form = DrillForm(request.POST)
    try:
        if not form.is_valid():
            raise Refused("validation", " ".join(str(said) for errors in form.errors.values() for said in errors))
        drill = drilling.begin(
            set_id=set_id,
            by=person(request),
            via="page",
            now=timezone.now(),
            comment=form.cleaned_data["comment"],
            wanted=Wanted(
                event_type=form.cleaned_data["type"],
                machines=request.POST.getlist("machines"),
                notice_seconds=form.cleaned_data["notice_seconds"],
                duration_seconds=form.cleaned_data["duration_seconds"],
            ),
        )
    except Refused as refusal:
        return set_answer(
            request,
            set_id,
            status=STATUS.get(refusal.code, 409),
            refusal={"code": refusal.code, "sentence": refusal.sentence, **refusal.details},
            sent=request.POST,
        )
    messages.success(request, "The drill has begun. Decide its event as you would in earnest.")
    return redirect("drill", drill_id=drill.pk)


@require_POST
@reader
def stop(request: HttpRequest, drill_id: int) -> HttpResponse:
    form = WithdrawalForm(request.POST)
    comment = form.cleaned_data["comment"] if form.is_valid() else ""
    try:
        drilling.stop(drill_id=drill_id, by=person(request), via="page", now=timezone.now(), comment=comment)
    except Refused as refusal:
        said = {"code": refusal.code, "sentence": refusal.sentence}
        return drill_answer(request, drill_id, status=STATUS.get(refusal.code, 409), refusal=said)
    messages.success(request, "Stopped. The machines are told.")
    return redirect("drill", drill_id=drill_id)
