"""API calls about availability sets, and about caches with their maintenances and notifications."""

from typing import Any

from fleet.api.calls import Call, filtered
from fleet.api.schema import describe, detail_call, filters_of, list_call, ordering
from fleet.api.shapes.answers import MaintenanceShape
from fleet.api.shapes.requests import AdmissionRuleSerializer, MergeSetSerializer
from fleet.operations.machines import admissions
from fleet.operations.sets import changes
from fleet.operations.sets.changes import NameSetSerializer, ServiceSerializer
from fleet.projections import sets
from fleet.projections.caches import maintenances, overview
from fleet.projections.caches.coverage import CacheFilter, MaintenanceFilter, NotificationFilter
from fleet.projections.desk import service as services
from fleet.projections.filters import SetFilter
from fleet.projections.pages import Page

# The places of a cache are those of its listeners.
OF_LISTENERS = "Caches to which a machine there listens."


@list_call("list_caches", overview.listing, CacheFilter, "caches", note=OF_LISTENERS, orders=("host", "service"))
class Caches(Call, at="caches/"):
    """List caches by host

    Each with its nodes and their known roles, the agents that listen to its channel, and an announced or current
    maintenance.
    """


class Cache(Call, at="caches/<int:cache_id>/"):
    @describe("get_cache", missing=("not-found", "No cache has this id."))
    def get(self, cache_id: int) -> overview.CacheRow | None:
        """Get a cache

        Its nodes and their known roles, the agents that listen to its channel and since when, and an announced or
        current maintenance.
        """
        detail = overview.detail(cache_id=cache_id, now=self.now)
        return detail.cache if detail else None


class Maintenances(Call, at="maintenances/"):
    @describe(
        "list_maintenances",
        page=MaintenanceShape,
        parameters=[*filters_of(MaintenanceFilter, note=OF_LISTENERS), ordering("first_at")],
    )
    def get(self) -> Page[dict[str, Any]]:
        """List maintenance operations on caches, newest first

        Each is put together from the notifications that agents received on the cache's channel.
        """
        page = maintenances.listing_with_members(rows=self.filtered(MaintenanceFilter), **self.place)
        return page.map(lambda rows: [{"maintenance": row, "members": members} for row, members in rows])


@detail_call("get_maintenance", maintenances.detail, missing=("not-found", "No maintenance has this id."))
class Maintenance(Call, at="maintenances/<int:maintenance_id>/"):
    """Get a maintenance operation with its notifications

    Its notifications, oldest first. `unheard` lists times without a listening agent, for which missing notifications
    prove nothing.
    """


@list_call(
    "list_notifications",
    maintenances.notifications,
    NotificationFilter,
    "rows",
    note=OF_LISTENERS,
    orders=("first_at",),
)
class Notifications(Call, at="notifications/"):
    """List notifications received on channels of caches, newest first

    Copies of one line that several agents received within a minute count as one notification.
    """


# Availability sets: read them, name a provisional one, and merge two.

UNKNOWN = ("not-found", "No set has this id.")
NO_SERVICE = ("not-found", "No set and no cache belongs to this service.")
SET_FILTERS = filters_of(SetFilter)


class Sets(Call, at="sets/"):
    # With twenty machines each, six sets are less than 100 kB.
    @describe("list_sets", page_size=6, parameters=[*SET_FILTERS, ordering("name", "service")])
    def get(self) -> Page[sets.SetRow]:
        """List availability sets by name

        Each with its machines, their presence, and its open events. Sets that were merged into another one are omitted.
        With `machines=false` the answer has counts instead of machines, and about fifty sets fit into 100 kB.
        """
        filters = SetFilter(self.request.query_params, now=self.now)
        page = sets.listing(now=self.now, sets=filtered(self.request, filters), **self.place)
        return page.map(lambda rows: [*map(sets.in_numbers, rows)]) if filters.in_numbers else page


class SetCall(Call):
    def row(self, set_id: int) -> sets.SetRow | None:
        """Return the set, or the one that it was merged into."""
        detail = sets.detail(set_id=set_id, now=self.now)
        return detail.set if detail else None


class Set(SetCall, at="sets/<int:set_id>/"):
    @describe("get_set", missing=UNKNOWN, parameters=[each for each in SET_FILTERS if each.name == "machines"])
    def get(self, set_id: int) -> sets.SetRow | None:
        """Get an availability set with its machines and open events

        The id of a merged set returns the set into which it was merged. A set of more than 500 machines lists the first
        500 by name, and `omitted` counts the others: `GET machines/?set=` lists all.
        """
        row = self.row(set_id)
        in_numbers = self.request.query_params.get("machines", "").lower() == "false"
        return sets.in_numbers(row) if row and in_numbers else row

    @describe("name_set", needs="admin", body=NameSetSerializer, missing=UNKNOWN, problems=("set-exists", "guarded"))
    def patch(self, set_id: int) -> sets.SetRow | None:
        """Change a set: name, service, required live machines, second person

        Omitted fields stay as they are. Only a provisional set can be named; the others have their name in Azure. To
        lower a requirement, use the session of a user who has just re-authenticated, not a token. If the set requires a
        second person, the change waits in `warnings` until another administrator sends the same change.
        """
        changes.change_set(self.wanted, set_id=set_id, actor=self.actor, now=self.now)
        return self.row(set_id)


@detail_call("get_service", services.settings_of, missing=NO_SERVICE)
class Service(Call, at="services/<path:service>/"):
    """Get the settings of a service

    The runbook applies to events of its sets that have none of their own.
    """

    @describe("change_service", needs="admin", body=ServiceSerializer, missing=NO_SERVICE)
    def patch(self, service: str) -> services.ServiceSettings | None:
        """Change the settings of a service: its runbook

        Every event page of the service links to the runbook, unless the set has its own.
        """
        changes.change_service(self.wanted, service=service, actor=self.actor, now=self.now)
        return services.settings_of(service=service)


class AdmissionRule(SetCall, at="sets/<int:set_id>/admissions/"):
    @describe("set_admission_rule", needs="admin", body=AdmissionRuleSerializer, missing=UNKNOWN)
    def post(self, set_id: int) -> sets.SetRow | None:
        """Admit returning machines of this set without their credential, for a limited time

        Only with a join token for this set, and never a machine that is revoked or live.
        """
        admissions.set_rule(set_id=set_id, until=self.wanted["until"], actor=self.commented, now=self.now)
        return self.row(set_id)


class MergeSet(SetCall, at="sets/<int:set_id>/merge/"):
    @describe("merge_set", needs="admin", body=MergeSetSerializer, missing=UNKNOWN)
    def post(self, set_id: int) -> sets.SetRow | None:
        """Merge this set into another one that is the same set in Azure

        Machines, events and inventory move to the other set; no entry is lost. This cannot be undone.
        """
        changes.merge_sets(set_id=set_id, into=self.wanted["into"], actor=self.actor, now=self.now)
        return self.row(self.wanted["into"])
