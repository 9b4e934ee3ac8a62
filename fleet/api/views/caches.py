"""Caches, their maintenance, and every line heard. There is nothing to approve: these are made for programs."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from fleet.api.calls import Call, filtered, names_of, problem_answers, query_parameters
from fleet.api.problems import Problem
from fleet.api.shapes.base import values_of
from fleet.api.shapes.caches import (
    CacheSerializer,
    MaintenanceDetailSerializer,
    MaintenanceSerializer,
    NotificationSerializer,
)
from fleet.api.shapes.pages import page_of
from fleet.projections import caches, maintenances
from fleet.projections.filters import CacheFilter, MaintenanceFilter, NotificationFilter

CACHE_PARAMETERS = query_parameters(("tier", str, "One tier."), ("q", str, "Part of a host name."))
MAINTENANCE_PARAMETERS = query_parameters(
    ("cache", int, "The id of a cache."),
    ("status", str, "One status; may be repeated."),
    ("since", str, "First heard at this time or later."),
    ("until", str, "First heard before this time."),
    repeated=("status",),
)
NOTIFICATION_PARAMETERS = query_parameters(
    ("cache", int, "The id of a cache."),
    ("maintenance", int, "The id of a maintenance."),
    ("type", str, "One type, in any case."),
    ("since", str, "First heard at this time or later."),
    ("until", str, "First heard before this time."),
)


class Caches(Call):
    knows = names_of(CACHE_PARAMETERS)

    @extend_schema(
        operation_id="list_caches",
        summary="Caches by host, with their nodes and who listens",
        parameters=CACHE_PARAMETERS,
        responses={200: page_of(CacheSerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, CacheFilter(request.query_params))
        return self.paged(request, CacheSerializer, partial(caches.listing, now=self.now, caches=found))


class Cache(Call):
    @extend_schema(
        operation_id="get_cache",
        summary="One cache with its nodes and who listens",
        responses={200: CacheSerializer, **problem_answers(404)},
    )
    def get(self, request: Request, cache_id: int) -> Response:
        found = caches.detail(cache_id=cache_id, now=self.now)
        if found is None:
            raise Problem("not-found", "No cache has this id.")
        return self.shown(CacheSerializer, found.cache)


class Maintenances(Call):
    knows = names_of(MAINTENANCE_PARAMETERS)

    @extend_schema(
        operation_id="list_maintenances",
        summary="Operations on caches, newest first",
        parameters=MAINTENANCE_PARAMETERS,
        responses={200: page_of(MaintenanceSerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, MaintenanceFilter(request.query_params))
        read = partial(maintenances.listing_with_members, rows=found)
        return self.paged(request, MaintenanceSerializer, lambda **place: read(**place).map(whole))


class Maintenance(Call):
    @extend_schema(
        operation_id="get_maintenance",
        summary="One operation with its notifications",
        responses={200: MaintenanceDetailSerializer, **problem_answers(404)},
    )
    def get(self, request: Request, maintenance_id: int) -> Response:
        found = maintenances.detail(maintenance_id=maintenance_id, now=self.now)
        if found is None:
            raise Problem("not-found", "No maintenance has this id.")
        (row,) = whole([(found.maintenance, found.members)])
        return self.shown(MaintenanceDetailSerializer, {**row, "unheard": found.unheard})


class Notifications(Call):
    knows = names_of(NOTIFICATION_PARAMETERS)

    @extend_schema(
        operation_id="list_notifications",
        summary="Every line heard on a cache's channel, newest first",
        description="Copies of one line that several agents heard within a minute are one notification.",
        parameters=NOTIFICATION_PARAMETERS,
        responses={200: page_of(NotificationSerializer), **problem_answers(422)},
    )
    def get(self, request: Request) -> Response:
        found = filtered(request, NotificationFilter(request.query_params))
        return self.paged(request, NotificationSerializer, partial(maintenances.notifications, rows=found))


def whole(
    rows: Sequence[tuple[maintenances.MaintenanceRow, tuple[maintenances.NotificationRow, ...]]],
) -> list[dict[str, Any]]:
    """Operations side by side with their notifications."""
    return [{**values_of(row), "effect": row.effect, "notifications": members} for row, members in rows]
