"""Handing over: what changed since somebody looked, in one view that a link keeps."""

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from fleet.dashboard.forms import MomentField, Sent
from fleet.dashboard.pages import Asked, acts, done, page, shown
from fleet.operations.people import profiles
from fleet.projections.history.handover import Part, handover, span
from fleet.wording import times
from fleet.wording.history import HANDOVER

# What may be chosen with one click, in hours.
CHOICES = (8, 12, 24, 72)


class SpanForm(forms.Form):
    since = MomentField(required=False)
    until = MomentField(required=False)


class ReadForm(Sent):
    wrong = "Say until when you have read."
    until = MomentField()


def _address(since: datetime, until: datetime | None) -> str:
    values = {"since": times.iso(since)} | ({"until": times.iso(until)} if until else {})
    return f"{reverse('handover')}?{urlencode(values)}"


def answer(request: Asked, /, **context: Any) -> HttpResponse:
    """The view of two times; also the answer to a form that was refused. Without times it leads to an address that has
    them, so that whoever opens the link sees the same.
    """
    form = SpanForm(request.GET)
    form.is_valid()
    since, until = (form.cleaned_data.get(name) for name in ("since", "until"))
    begin, end = span(since=since, until=until, looked_until=request.own.looked_until, now=request.now)
    if (since is None or until is None) and not form.errors and not context:
        return redirect(_address(begin, end))
    found = handover(since=begin, until=end, now=request.now)
    return page(
        request,
        "history/handover.html",
        found=found,
        told=[(part, HANDOVER[part.name], _all_of(part, begin, end)) for part in found.parts],
        wrong=sorted(form.errors),
        choices=[(hours, _address(request.now - timedelta(hours=hours), None)) for hours in CHOICES],
        own_address=_address(request.own.looked_until, None) if request.own.looked_until else "",
        newer=_address(begin, None) if request.now - end > timedelta(minutes=1) else "",
        after=_address(end, None) if request.now - end > timedelta(minutes=1) else "",
        **context,
    )


def _all_of(part: Part, since: datetime, until: datetime) -> str:
    """Where all entries of a part stand that is too long."""
    if not part.more:
        return ""
    at = [("since", times.iso(since)), ("until", times.iso(until))]
    kinds = [("kind", kind.value) for kind in part.kinds]
    return f"{reverse('timeline') if kinds else reverse('audit')}?{urlencode([*kinds, *at])}"


handover_page = shown(answer)


@acts(answer)
def read(request: Asked) -> HttpResponse:
    """Somebody has read what changed until then; the next look begins there."""
    until = ReadForm(request.POST).values["until"]
    profiles.note_read(actor=request.actor, until=until, now=request.now)
    return done(request, "Remembered: your next look begins where this one ends.", "handover")
