"""Routes of messages: the installation's for admins, and for everybody their own."""

from collections.abc import Mapping
from typing import Any

from fleet.api.authentication import person_of
from fleet.api.describe import describe
from fleet.api.problems import Problem
from fleet.api.shapes.messages import (
    ChangeRouteSerializer,
    MakeRouteSerializer,
    RouteDryRunShape,
    RouteShape,
    TryRouteSerializer,
)
from fleet.api.views.owners import NEEDS, ByOwner
from fleet.domain.messages.faults import trying_faults_of
from fleet.domain.messages.routes import StandingRoute, changed_route
from fleet.domain.policy.faults import refuse
from fleet.operations.messages import routes as route_changes
from fleet.projections.messages import channels, dry_run
from fleet.projections.pages import Page

NO_ROUTE = ("not-found", "There is no route with this id.")
# How a route's fields are called here, and everywhere below.
RENAMED = {"channel": "channel_id", "types": "event_types", "severity": "severities", "set": "set_pattern"}
ALWAYS: Mapping[str, Any] = {"weekdays": (), "from_time": None, "until_time": None, "time_zone": "UTC"}


def said(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A route's fields as operations take them."""
    fields = {name: value for name, value in wanted.items() if name not in ("enabled", "own", "hours")}
    named = {RENAMED.get(name, name): value for name, value in fields.items()}
    return {**named, **ALWAYS, **(wanted["hours"] or {})} if "hours" in wanted else named


class Routes(ByOwner):
    @describe(
        "list_routes",
        "Routes: the installation's in their order, and one's own",
        "Each that wants a moment tells its channel, and a channel is told once.",
        page=RouteShape,
    )
    def get(self) -> Page[channels.RouteRow]:
        return channels.page_of_routes(person=person_of(self.request), **self.place)

    @describe(
        "create_route",
        "Make a route",
        f"It is on unless the body says otherwise. Try it first. {NEEDS}",
        needs="read",
        answer=RouteShape,
        status=201,
        location="routes/{id}/",
        version="version",
        body=MakeRouteSerializer,
    )
    def post(self) -> channels.RouteRow | None:
        wanted = self.wanted
        row = route_changes.create(
            fields=said(wanted), own=wanted["own"], enabled=wanted.get("enabled", True), **self.acting
        )
        return channels.route(route_id=row.pk, person=person_of(self.request))


class Route(ByOwner):
    @describe(
        "get_route",
        "One route",
        ("What it tells, to which channel, when, and its `wording`, the whole of it in one sentence."),
        answer=RouteShape,
        version="version",
        missing=NO_ROUTE,
    )
    def get(self, route_id: int) -> channels.RouteRow | None:
        return channels.route(route_id=route_id, person=person_of(self.request))

    @describe(
        "change_route",
        "Change a route, or switch it on or off",
        f"What it sent before keeps what it said then. {NEEDS}",
        needs="read",
        answer=RouteShape,
        version="version",
        matches=True,
        body=ChangeRouteSerializer,
        missing=NO_ROUTE,
    )
    def patch(self, route_id: int) -> channels.RouteRow | None:
        route_changes.change(
            route_id=route_id, fields=said(self.wanted), enabled=self.wanted.get("enabled"), **self.deciding
        )
        return channels.route(route_id=route_id, person=person_of(self.request))

    @describe(
        "delete_route",
        "Delete a route; what it sent stays",
        NEEDS,
        needs="read",
        matches=True,
    )
    def delete(self, route_id: int) -> None:
        route_changes.delete(route_id=route_id, **self.deciding)


class RouteDryRun(ByOwner):
    @describe(
        "try_route",
        "Try a route on the stored history",
        "How many messages it would have made of the last 30 days, and when. Nothing is written.",
        # It writes nothing.
        needs="read",
        answer=RouteDryRunShape,
        body=TryRouteSerializer,
        problems=("not-found",),
    )
    def post(self) -> dry_run.RouteDryRun:
        wanted, person = self.wanted, person_of(self.request)
        own = wanted["own"]
        route: StandingRoute | None = StandingRoute()
        if "id" in wanted:
            route = channels.standing(route_id=wanted["id"], person=person)
        if route is None:
            raise Problem(*NO_ROUTE)
        route = changed_route(route, said(wanted.get("route", {})))
        refuse(trying_faults_of(route), inside="route.")
        theirs = person if own or route.owner_id is not None else None
        return dry_run.dry_run(route=route, now=self.now, person=theirs)
