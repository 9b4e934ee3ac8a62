"""Pages that arrange sets: naming a provisional one, merging two that are one. Each parses, calls one operation."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from fleet.dashboard.forms import MergeForm, SecondPersonForm, SetNameForm
from fleet.dashboard.pages import person, reader
from fleet.dashboard.views import set_answer
from fleet.operations import naming
from fleet.operations.errors import Refused

STATUS = {"not-found": 404, "not-permitted": 403, "validation": 422}


def refused(request: HttpRequest, set_id: int, refusal: Refused) -> HttpResponse:
    """The set's page with the reason and what was sent."""
    return set_answer(
        request,
        set_id,
        status=STATUS.get(refusal.code, 409),
        refusal={"code": refusal.code, "sentence": refusal.sentence, **refusal.details},
        sent=request.POST,
    )


@require_POST
@reader
def name_set(request: HttpRequest, set_id: int) -> HttpResponse:
    form = SetNameForm(request.POST)
    try:
        if not form.is_valid():
            raise Refused("validation", "A set needs a name of up to 200 characters and one of the kinds.")
        row = naming.name_set(
            set_id=set_id,
            by=person(request),
            via="page",
            now=timezone.now(),
            name=form.cleaned_data["name"],
            kind=form.cleaned_data["kind"],
            service=form.cleaned_data["service"] or None,
        )
    except Refused as refusal:
        return refused(request, set_id, refusal)
    messages.success(request, f"Named: this is “{row.name}”.")
    return redirect("set", set_id=set_id)


@require_POST
@reader
def merge_set(request: HttpRequest, set_id: int) -> HttpResponse:
    form = MergeForm(request.POST)
    try:
        if not form.is_valid():
            raise Refused("validation", "Choose the set that remains.")
        row = naming.merge_sets(
            set_id=set_id, into=form.cleaned_data["into"], by=person(request), via="page", now=timezone.now()
        )
    except Refused as refusal:
        return refused(request, set_id, refusal)
    messages.success(request, f"Merged: “{row.name}” remains.")
    return redirect("set", set_id=row.pk)


@require_POST
@reader
def ask_for_second(request: HttpRequest, set_id: int) -> HttpResponse:
    form = SecondPersonForm(request.POST)
    wanted = form.is_valid() and form.cleaned_data["second_person"]
    try:
        naming.name_set(set_id=set_id, by=person(request), via="page", now=timezone.now(), second_person=wanted)
    except Refused as refusal:
        return refused(request, set_id, refusal)
    messages.success(request, f"Approving here now takes {'always a second person' if wanted else 'one person'}.")
    return redirect("set", set_id=set_id)
