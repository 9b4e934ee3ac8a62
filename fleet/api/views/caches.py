"""Caches, their maintenance, and every line heard. There is nothing to approve: these are made for programs."""

from typing import Any

from fleet.api.calls import Call
from fleet.api.describe import describe, filters_of, ordering
from fleet.api.places import CHANGED_SINCE, MACHINES, OF_A_CACHE
from fleet.api.shapes.caches import CacheShape, MaintenanceDetailShape, MaintenanceShape, NotificationShape
from fleet.projections.caches import maintenances, overview
from fleet.projections.caches.coverage import CacheFilter, MaintenanceFilter, NotificationFilter
from fleet.projections.pages import Page

CACHE_FILTERS = filters_of(
    CacheFilter,
    {
        **OF_A_CACHE,
        "changed_since": CHANGED_SINCE,
        "tier": "One tier.",
        "q": "Part of a host name.",
    },
)
MAINTENANCE_FILTERS = filters_of(
    MaintenanceFilter,
    {
        **OF_A_CACHE,
        "changed_since": CHANGED_SINCE,
        "cache": "The id of a cache; may be repeated.",
        "status": "One status; may be repeated.",
        "since": "First heard at this time or later.",
        "until": "First heard before this time.",
    },
)
NOTIFICATION_FILTERS = filters_of(
    NotificationFilter,
    {
        **OF_A_CACHE,
        **{name: f"{text} Those that heard it." for name, text in MACHINES.items()},
        "cache": "The id of a cache; may be repeated.",
        "maintenance": "The id of a maintenance; may be repeated.",
        "type": "One type, in any case.",
        "since": "First heard at this time or later.",
        "until": "First heard before this time.",
    },
)


class Caches(Call):
    @describe(
        "list_caches",
        "Caches by host, with their nodes and who listens",
        (
            "Each with its nodes, what is known of their roles, who listens to its channel, and the maintenance"
            " that is announced or under way."
        ),
        page=CacheShape,
        parameters=[*CACHE_FILTERS, ordering("host", "service")],
    )
    def get(self) -> Page[overview.CacheRow]:
        return overview.listing(now=self.now, caches=self.filtered(CacheFilter), **self.place)


class Cache(Call):
    @describe(
        "get_cache",
        "One cache with its nodes and who listens",
        (
            "Its nodes, what is known of their roles, who listens to its channel and since when, and the"
            " maintenance that is announced or under way."
        ),
        answer=CacheShape,
        missing=("not-found", "No cache has this id."),
    )
    def get(self, cache_id: int) -> overview.CacheRow | None:
        found = overview.detail(cache_id=cache_id, now=self.now)
        return found.cache if found else None


class Maintenances(Call):
    @describe(
        "list_maintenances",
        "Operations on caches, newest first",
        ("What was announced, began and ended on caches, put together from the notifications that agents heard."),
        page=MaintenanceShape,
        parameters=[*MAINTENANCE_FILTERS, ordering("first_at")],
    )
    def get(self) -> Page[dict[str, Any]]:
        found = maintenances.listing_with_members(rows=self.filtered(MaintenanceFilter), **self.place)
        return found.map(lambda rows: [{"maintenance": row, "members": members} for row, members in rows])


class Maintenance(Call):
    @describe(
        "get_maintenance",
        "One operation with its notifications",
        (
            "The notifications that belong to it, oldest first, and in `unheard` what silence does not prove"
            " where nobody listened."
        ),
        answer=MaintenanceDetailShape,
        missing=("not-found", "No maintenance has this id."),
    )
    def get(self, maintenance_id: int) -> maintenances.MaintenanceDetail | None:
        return maintenances.detail(maintenance_id=maintenance_id, now=self.now)


class Notifications(Call):
    @describe(
        "list_notifications",
        "Every line heard on a cache's channel, newest first",
        "Copies of one line that several agents heard within a minute are one notification.",
        page=NotificationShape,
        parameters=[*NOTIFICATION_FILTERS, ordering("first_at")],
    )
    def get(self) -> Page[maintenances.NotificationRow]:
        return maintenances.notifications(rows=self.filtered(NotificationFilter), **self.place)
