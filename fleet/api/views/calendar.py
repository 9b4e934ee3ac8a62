"""Calendars of people, fetched by programs: whoever has the address reads what its person sees."""

from hashlib import sha256
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.http.response import HttpResponseBase

from fleet.api.problems import bare
from fleet.api.read_only import read_only
from fleet.domain.people import Right
from fleet.operations import clock
from fleet.operations.people import calendars
from fleet.projections import visibility
from fleet.projections.messages.calendar import dates
from fleet.projections.people import rights
from fleet.wording.calendar import ics


@read_only
def feed(request: HttpRequest, token: str) -> HttpResponseBase:
    """The calendar as it is now; 304 where the program has it so, 404 for an address that is none or has ended."""
    now = clock.now()
    found = calendars.asked_for(token=token, now=now)
    if found is None or not rights(found.user).may(Right.READ):
        return bare("not-found")
    visibility.read_as(rights(found.user), name=found.user.get_username(), number=found.user.pk)
    shown = dates(set_pattern=found.set_pattern, service=found.service, now=now)
    body = ics(found.name, shown, base_url=settings.BASE_URL, host=urlsplit(settings.BASE_URL).hostname or "drydock")
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    asked = {part.strip().removeprefix("W/") for part in request.headers.get("If-None-Match", "").split(",")}
    answer: HttpResponse = (
        HttpResponseNotModified() if etag in asked else HttpResponse(body, content_type="text/calendar; charset=utf-8")
    )
    answer["ETag"], answer["Cache-Control"] = etag, "private, no-cache"
    return answer
