"""What makes an app of the pages: the worker that shows what was pushed, and what a phone's home screen is told."""

from pathlib import Path

from django.contrib.staticfiles import finders
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.templatetags.static import static
from django.views.decorators.http import require_safe


@require_safe
def service_worker(request: HttpRequest) -> HttpResponse:
    """At the root, where it may act for every page."""
    found = Path(str(finders.find("drydock/sw.js")))
    answer = HttpResponse(found.read_bytes(), content_type="text/javascript; charset=utf-8")
    answer["Cache-Control"] = "no-cache"
    return answer


@require_safe
def manifest(request: HttpRequest) -> JsonResponse:
    """Its name, where it begins and its picture."""
    icon = {"src": static("drydock/mark.svg"), "sizes": "any", "type": "image/svg+xml"}
    said = {"name": "Drydock", "short_name": "Drydock", "start_url": "/", "display": "standalone", "icons": [icon]}
    return JsonResponse(said, content_type="application/manifest+json")
