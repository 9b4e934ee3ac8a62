"""URLs below `/api/`: those of the API calls, which `fleet.urls` joins with those of the annexes, and all others. The
gateway serves `v1/stream` without Django.
"""

from types import ModuleType

from django.urls import URLPattern, path, re_path
from drf_spectacular.views import SpectacularSwaggerSplitView

from fleet.api import documentation
from fleet.api.calls import Call
from fleet.api.repeats import read_only
from fleet.api.views import approvals, events, machines, rules, sets, waves


def calls_of(*modules: ModuleType) -> list[URLPattern]:
    """Return the URL patterns of the calls that these modules define. The class of each call states its own."""
    found = [view for module in modules for view in vars(module).values() if isinstance(view, type)]
    return [path(f"v1/{view.at}", view.as_view()) for view in found if issubclass(view, Call) and view.at]


CALLS = calls_of(approvals, events, machines, rules, sets, waves)

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
