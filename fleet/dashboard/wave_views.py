"""Pages of waves. Each parses, asks a projection or calls one operation, answers."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from fleet.dashboard.forms import BeginWaveForm, WithdrawalForm
from fleet.dashboard.pages import missing, page, person, reader
from fleet.dashboard.views import asked_again, listed
from fleet.operations import beginning
from fleet.operations import waves as operations
from fleet.operations.errors import Refused
from fleet.projections import waves

STATUS = {"unknown-event": 404, "unknown-wave": 404, "not-permitted": 403, "validation": 422}


@require_safe
@reader
def wave_list(request: HttpRequest) -> HttpResponse:
    now = timezone.now()

    def rows() -> dict[str, Any]:
        found = waves.listing(now=now, cursor=request.GET.get("cursor"), size=25)
        return {"waves": found, "links": asked_again(request, found)}

    return listed(request, "waves.html", {"wave_rows": rows}, now=now)


@require_safe
@reader
def wave_page(request: HttpRequest, wave_id: int) -> HttpResponse:
    return wave_answer(request, wave_id)


def wave_answer(request: HttpRequest, wave_id: int, *, status: int = 200, **context: Any) -> HttpResponse:
    """The wave's page; also the answer to a stop that was refused."""
    now = timezone.now()
    found = waves.detail(wave_id=wave_id, now=now)
    if found is None:
        return missing(request, "There is no wave of this number.")
    return page(request, "wave.html", {"wave_body": dict}, now=now, status=status, wave=found, **context)


@require_http_methods(["GET", "HEAD", "POST"])
@reader
def begin_wave(request: HttpRequest) -> HttpResponse:
    """Choose the events of a service (`?service=`) or a set (`?set=`), then begin."""
    now = timezone.now()
    asked = request.POST if request.method == "POST" else request.GET
    form = BeginWaveForm(asked)
    place = form.cleaned_data if form.is_valid() else {}
    service, set_id = str(place.get("service", "")), place.get("set")
    context: dict[str, Any] = {"service": service, "set_id": set_id, "sent": asked}
    status = 200
    if request.method == "POST":
        try:
            if not form.is_valid():
                raise Refused("validation", "The comment and the reason may have up to 2,000 characters.")
            wave = beginning.begin(
                by=person(request),
                via="page",
                comment=place["comment"],
                events=request.POST.getlist("events"),
                overrides={code: place["reason"] for code in request.POST.getlist("override") if place["reason"]},
                now=now,
            )
        except Refused as refusal:
            status = STATUS.get(refusal.code, 409)
            context["refusal"] = {"code": refusal.code, "sentence": refusal.sentence, **refusal.details}
            context["takes_reason"] = _takes_reason(refusal)
        else:
            messages.success(request, "The wave has begun.")
            return redirect("wave", wave_id=wave.pk)
    found = waves.candidates(now=now, service=service, set_id=set_id)
    chosen = set(request.POST.getlist("events")) if request.method == "POST" else {one.event_id for one in found}
    return page(request, "wave_begin.html", {}, now=now, status=status, candidates=found, chosen=chosen, **context)


def _takes_reason(refusal: Refused) -> list[dict[str, Any]]:
    """The guards, each once, that a reason would overcome at every event that was refused."""
    known: dict[str, dict[str, Any]] = {}
    for event in refusal.details.get("events", []):
        for guard in event.get("guards", []):
            if guard["needs"] == "reason" or guard["overridable"]:
                known[guard["code"]] = guard
    return list(known.values())


@require_POST
@reader
def stop_wave(request: HttpRequest, wave_id: int) -> HttpResponse:
    form = WithdrawalForm(request.POST)
    comment = form.cleaned_data["comment"] if form.is_valid() else ""
    try:
        operations.stop(wave_id=wave_id, by=person(request), via="page", reason=comment, now=timezone.now())
    except Refused as refusal:
        told = {"code": refusal.code, "sentence": refusal.sentence, **refusal.details}
        return wave_answer(request, wave_id, status=STATUS.get(refusal.code, 409), refusal=told)
    messages.success(request, "Stopped. What waited is withdrawn; what is on its way goes on.")
    return redirect("wave", wave_id=wave_id)
