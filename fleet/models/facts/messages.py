"""Loading what the router judges: which routes are in force, where each leads, and who may hear of what."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q

from fleet.domain.messages.kinds import KINDS
from fleet.domain.messages.routes import MessageFacts, StandingRoute, may_be_told
from fleet.domain.shapes import like
from fleet.models.messages import Channel, Route
from fleet.models.people import know_rights_of, names_in_entries, rights_of
from fleet.models.service_accounts import ServiceAccount

POSTED = [kind.name for kind in KINDS.values() if kind.messages]


@dataclass(frozen=True, slots=True)
class RouteInForce:
    """A route with the channels to which it leads (not those that mirror what is open), and whose it is."""

    route: StandingRoute
    channels: tuple[Channel, ...]
    owner: User | None


def route_of(row: Route) -> StandingRoute:
    """One route as it stands."""
    return like(StandingRoute, row, deleted=row.deleted_at is not None, route_id=row.pk)


def routes_in_force() -> tuple[RouteInForce, ...]:
    """The routes that are switched on, in their order, each with the channels that are. Those of people who may not log
    in any more, and those that lead nowhere, are left out. Three queries, however many there are.
    """
    usable = {row.pk: row for row in Channel.objects.filter(enabled=True, deleted_at__isnull=True, kind__in=POSTED)}
    of_all = tuple(row for row in usable.values() if row.owner_id is None)
    rows = list(
        Route.objects.filter(Q(owner=None) | Q(owner__is_active=True), enabled=True, deleted_at__isnull=True)
        .select_related("owner")
        .order_by("position", "pk")
    )
    know_rights_of(row.owner for row in rows if row.owner is not None)
    found = []
    for row in rows:
        channels = of_all if row.channel_id is None else tuple(filter(None, [usable.get(row.channel_id)]))
        # Nobody is told through what belongs to somebody else.
        channels = tuple(one for one in channels if one.owner_id == row.owner_id)
        if channels:
            found.append(RouteInForce(route_of(row), channels, row.owner))
    return tuple(found)


def owners_of(numbers: Collection[int]) -> Mapping[int, int]:
    """Of service accounts the people who answer for them (row ids). One query."""
    rows = ServiceAccount.objects.filter(user__in=list(numbers), owner__isnull=False)
    return {service: owner for service, owner in rows.values_list("user", "owner") if owner is not None}


def own_channels(numbers: Collection[int]) -> Mapping[int, list[int]]:
    """By person (row ids), the channels they have alone and that are on; of nobody who may not log in. One query."""
    found: dict[int, list[int]] = defaultdict(list)
    rows = Channel.objects.filter(
        owner__in=list(numbers), owner__is_active=True, enabled=True, deleted_at__isnull=True, kind__in=POSTED
    )
    for owner, channel in rows.order_by("pk").values_list("owner", "pk"):
        found[owner].append(channel)
    return found


def may_hear(owner: User | None, facts: MessageFacts) -> bool:
    """Whether a moment may be told through a route of this owner; the installation's hear of everything."""
    return owner is None or may_be_told(
        rights_of(owner), names_in_entries(owner), facts, scoped=bool(settings.SCOPED_READING)
    )
