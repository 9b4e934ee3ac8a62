"""URLs of the API calls: the class of each call states its own. `fleet.urls` adds those of the annexes."""

from types import ModuleType

from django.urls import URLPattern, path

from fleet.api.calls import Call
from fleet.api.views import approvals, bulk, events, machines, rules, sets, waves


def calls_of(*modules: ModuleType) -> list[URLPattern]:
    """Return the URL patterns of the calls that these modules define."""
    found = [view for module in modules for view in vars(module).values() if isinstance(view, type)]
    return [path(f"v1/{view.at}", view.as_view()) for view in found if issubclass(view, Call) and view.at]


CALLS = calls_of(approvals, bulk, events, machines, rules, sets, waves)
