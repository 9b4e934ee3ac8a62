"""URLs below `/api/` that are not API calls. The gateway serves `v1/stream` without Django."""

from django.urls import path, re_path
from drf_spectacular.views import SpectacularSwaggerSplitView

from fleet.api import documentation
from fleet.api.repeats import read_only
from fleet.api.views import events

# Public, and without a database query: the page contains no data of the fleet.
docs_page = SpectacularSwaggerSplitView.as_view(
    url_name="api-schema", template_name="api/docs.html", authentication_classes=[], permission_classes=[]
)

urlpatterns = [
    path("schema/", documentation.schema_document, name="api-schema"),
    path("docs/", read_only(docs_page), name="api-docs"),
    # The slash of the page and of the document is optional.
    re_path(r"^(?!(docs|schema)$)", events.Elsewhere.as_view()),
]
