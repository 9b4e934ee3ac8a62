"""Caches, their maintenance, and every line heard. There is nothing to approve: these are made for programs."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.calls import Call, describe, filtered, filters_of
from fleet.api.shapes.caches import (
    CacheShape,
    MaintenanceDetailShape,
    MaintenanceShape,
    NotificationShape,
)
from fleet.projections.caches import maintenances, overview
from fleet.projections.filters import CacheFilter, MaintenanceFilter, NotificationFilter

CACHE_FILTERS = filters_of(
    CacheFilter,
    {
        "tier": "One tier.",
        "q": "Part of a host name.",
    },
)
MAINTENANCE_FILTERS = filters_of(
    MaintenanceFilter,
    {
        "cache": "The id of a cache.",
        "status": "One status; may be repeated.",
        "since": "First heard at this time or later.",
        "until": "First heard before this time.",
    },
    as_text=("since", "until"),
)
NOTIFICATION_FILTERS = filters_of(
    NotificationFilter,
    {
        "cache": "The id of a cache.",
        "maintenance": "The id of a maintenance.",
        "type": "One type, in any case.",
        "since": "First heard at this time or later.",
        "until": "First heard before this time.",
    },
    as_text=("since", "until"),
)


class Caches(Call):
    @describe(
        "list_caches", "Caches by host, with their nodes and who listens", page=CacheShape, parameters=CACHE_FILTERS
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, CacheFilter(request.query_params))
        return self.paged(request, CacheShape, partial(overview.listing, now=self.now, caches=found))


class Cache(Call):
    @describe("get_cache", "One cache with its nodes and who listens", answer=CacheShape, problems=(404,))
    def get(self, request: Request, cache_id: int) -> Response:
        found = overview.detail(cache_id=cache_id, now=self.now)
        return self.shown(CacheShape, found and found.cache, "not-found", "No cache has this id.")


class Maintenances(Call):
    @describe(
        "list_maintenances", "Operations on caches, newest first", page=MaintenanceShape, parameters=MAINTENANCE_FILTERS
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, MaintenanceFilter(request.query_params))
        read = partial(maintenances.listing_with_members, rows=found)
        return self.paged(request, MaintenanceShape, lambda **place: read(**place).map(whole))


class Maintenance(Call):
    @describe("get_maintenance", "One operation with its notifications", answer=MaintenanceDetailShape, problems=(404,))
    def get(self, request: Request, maintenance_id: int) -> Response:
        found = maintenances.detail(maintenance_id=maintenance_id, now=self.now)
        return self.shown(MaintenanceDetailShape, found, "not-found", "No maintenance has this id.")


class Notifications(Call):
    @describe(
        "list_notifications",
        "Every line heard on a cache's channel, newest first",
        page=NotificationShape,
        description="Copies of one line that several agents heard within a minute are one notification.",
        parameters=NOTIFICATION_FILTERS,
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, NotificationFilter(request.query_params))
        return self.paged(request, NotificationShape, partial(maintenances.notifications, rows=found))


def whole(
    rows: Sequence[tuple[maintenances.MaintenanceRow, tuple[maintenances.NotificationRow, ...]]],
) -> list[dict[str, Any]]:
    """Operations side by side with their notifications."""
    return [{"maintenance": row, "members": members} for row, members in rows]
