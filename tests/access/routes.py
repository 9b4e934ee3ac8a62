"""Callable routes: Django's routing table and the gateway's. A new route enters the matrix automatically."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.urls import URLPattern, URLResolver, get_resolver

from tests.access.bodies import INSTEAD

# The tables of Django, each one file.
AREAS = ("admin", "api", "pages")
PART = re.compile(r"<(?:\w+:)?(\w+)>")
# One address for each route that is none itself.
SAMPLES = {
    "api/^(?!(docs|schema)$)": "api/v1/nothing/",
    "admin/(?P<url>.*)$": "admin/nothing/",
    "admin/^(?P<app_label>auth|fleet)/$": "admin/auth/",
}
STATIC = "static/<path:file>"
# Of Django's admin, where all models of a kind answer alike.
DOES = {"add/": "add", "<path:object_id>/history/": "history", "<path:object_id>/delete/": "delete"}
DOES |= {"<path:object_id>/change/": "change", "": "list", "<path:object_id>/": "old address"}
DOES |= {"<id>/password/": "password"}


@dataclass(frozen=True, slots=True)
class Route:
    """One line of a routing table: `area` names that table, `pattern` is the route as Django spells it."""

    area: str
    pattern: str
    methods: tuple[str, ...]

    def addresses(self, values: dict[str, Any], method: str, column: str) -> list[str]:
        """Return the addresses that this caller requests, normally one.

        A row can cover all models that the admin shows read-only. The superuser then requests every model, each other
        caller one of them.
        """
        if self.area == "admin" and self.pattern.startswith("("):
            what, _, does = self.pattern.partition(") ")
            found = models(what.strip("("))
            if column != "superuser":
                found = [found[crc32(column.encode()) % len(found)]]
            return [f"/admin/{name}/{_filled(does_of(does), _rows(name))}" for name in found]
        pattern = SAMPLES.get(self.pattern, self.pattern)
        instead = INSTEAD.get(f"{method} {self.pattern}") or INSTEAD.get(self.pattern, {})
        own = {name: values[other] for name, other in instead.items()}
        return [f"/{_filled(pattern, values | own)}"]


def _rows(name: str) -> dict[str, Any]:
    """A row of this model, which the world has or not."""
    rows: Any = apps.get_model(name.replace("/", "."))._base_manager
    if name == "auth/user":
        rows = rows.filter(username="grace")
    pk = quote(rows.order_by("pk").values_list("pk", flat=True).first() or 1)
    return {"object_id": pk, "id": pk}


def does_of(word: str) -> str:
    return next(pattern for pattern, name in DOES.items() if name == word)


def _filled(pattern: str, values: dict[str, Any]) -> str:
    def value(found: re.Match[str]) -> str:
        assert found[1] in values, f"say in tests/access/world.py what <{found[1]}> stands for, in {pattern}"
        return str(values[found[1]])

    return PART.sub(value, pattern)


def models(which: str) -> list[str]:
    """The models of Django's admin that `auth.user` names, or that `fleet.*` does, as its addresses have them."""
    known = [f"{model._meta.app_label}/{model._meta.model_name}" for model in admin.site._registry]
    app, _, name = which.partition(".")
    return sorted(one for one in known if one.startswith(f"{app}/") and name in ("*", one.partition("/")[2]))


def django_routes() -> list[Route]:
    """Each once, in the order of their names; and what lies in front of the table: files of styles and scripts."""
    found = {("pages", STATIC): Route("pages", STATIC, ("GET",))}
    for pattern, view in _walked(get_resolver()):
        route = _route(pattern, view)
        found.setdefault((route.area, route.pattern), route)
    return sorted(found.values(), key=lambda one: (one.area, one.pattern))


def routes_of(area: str) -> list[Route]:
    return [route for route in django_routes() if route.area == area]


def _walked(resolver: URLResolver, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            yield from _walked(entry, before + str(entry.pattern))
        else:
            yield before + str(entry.pattern), entry


def _route(pattern: str, view: URLPattern) -> Route:
    if pattern.startswith("api/"):
        return Route("api", pattern, _methods(view))
    if pattern.startswith("admin/"):
        return Route("admin", _row_of_admin(pattern), ("GET", "POST"))
    return Route("pages", pattern, ("GET", "POST"))


def _methods(view: URLPattern) -> tuple[str, ...]:
    """What a call of the API takes; a view that says nothing is called by reading."""
    made = getattr(view.callback, "view_class", None) or getattr(view.callback, "cls", None)
    named = [name for name in ("get", "post", "put", "patch", "delete") if hasattr(made, name)]
    return tuple(name.upper() for name in named) or ("GET",)


def _row_of_admin(pattern: str) -> str:
    """Models that the admin only shows are one row for each thing that it does."""
    app, _, rest = pattern.removeprefix("admin/").partition("/")
    model, _, does = rest.partition("/")
    if does not in DOES or app not in ("auth", "fleet") or not model:
        return pattern
    return f"({app}.{model if app == 'auth' else '*'}) {DOES[does]}"
