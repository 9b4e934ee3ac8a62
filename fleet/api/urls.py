"""Addresses below `/api/`. `v1/stream` is not among them: the gateway answers it beside Django."""

from django.urls import path, re_path

from fleet.api import documentation, manual
from fleet.api.routes import CALLS
from fleet.api.views import calendar, elsewhere

urlpatterns = [
    *CALLS,
    path("schema/", documentation.schema_document, name="api-schema"),
    path("docs/", manual.docs_page, name="api-docs"),
    path("v1/calendar/<str:token>.ics", calendar.feed, name="api-calendar"),
    # People may leave out the slash of the page and of the document.
    re_path(r"^(?!(docs|schema)$)", elsewhere.Elsewhere.as_view()),
]
