"""Availability sets, and caches with their maintenance and notifications. Notifications are for programs and need no
approval.
"""

from typing import Any

from fleet.api.calls import Call, filtered
from fleet.api.schema import describe, detail_call, filters_of, list_call, ordering
from fleet.api.shapes.answers import MaintenanceShape
from fleet.api.shapes.requests import AdmissionRuleSerializer, MergeSetSerializer
from fleet.operations.machines import admissions
from fleet.operations.sets import changes
from fleet.operations.sets.changes import NameSetSerializer
from fleet.projections import sets
from fleet.projections.caches import maintenances, overview
from fleet.projections.caches.coverage import CacheFilter, MaintenanceFilter, NotificationFilter
from fleet.projections.filters import SetFilter
from fleet.projections.pages import Page

# The places of a cache are those of its listeners.
OF_LISTENERS = "Caches to which a machine there listens."


@list_call("list_caches", overview.listing, CacheFilter, "caches", note=OF_LISTENERS, orders=("host", "service"))
class Caches(Call):
    """Caches by host, with their nodes and who listens

    Each with its nodes, what is known of their roles, who listens to its channel, and the maintenance that is
    announced or under way.
    """


class Cache(Call):
    @describe("get_cache", missing=("not-found", "No cache has this id."))
    def get(self, cache_id: int) -> overview.CacheRow | None:
        """One cache with its nodes and who listens

        Its nodes, what is known of their roles, who listens to its channel and since when, and the maintenance that is
        announced or under way.
        """
        detail = overview.detail(cache_id=cache_id, now=self.now)
        return detail.cache if detail else None


class Maintenances(Call):
    @describe(
        "list_maintenances",
        page=MaintenanceShape,
        parameters=[*filters_of(MaintenanceFilter, note=OF_LISTENERS), ordering("first_at")],
    )
    def get(self) -> Page[dict[str, Any]]:
        """Operations on caches, newest first

        What was announced, began and ended on caches, put together from the notifications that agents heard.
        """
        page = maintenances.listing_with_members(rows=self.filtered(MaintenanceFilter), **self.place)
        return page.map(lambda rows: [{"maintenance": row, "members": members} for row, members in rows])


@detail_call("get_maintenance", maintenances.detail, missing=("not-found", "No maintenance has this id."))
class Maintenance(Call):
    """One operation with its notifications

    The notifications that belong to it, oldest first, and in `unheard` what silence does not prove where nobody
    listened.
    """


@list_call(
    "list_notifications",
    maintenances.notifications,
    NotificationFilter,
    "rows",
    note=OF_LISTENERS,
    orders=("first_at",),
)
class Notifications(Call):
    """Every line heard on a cache's channel, newest first

    Copies of one line that several agents heard within a minute are one notification.
    """


# Availability sets: read them, name a provisional one, and merge two.

# With twenty machines each, they are less than 100 kB.
SETS_A_PAGE = 6
UNKNOWN = ("not-found", "No set has this id.")
SET_FILTERS = filters_of(SetFilter)
IN_NUMBERS = next(parameter for parameter in SET_FILTERS if parameter.name == "machines")


class Sets(Call):
    @describe("list_sets", page_size=SETS_A_PAGE, parameters=[*SET_FILTERS, ordering("name", "service")])
    def get(self) -> Page[sets.SetRow]:
        """Availability sets by name

        Each with its machines, how present they are, and its open events. Sets that were merged into another are not
        listed. Machines stand in their set, so a page holds few sets if nothing is said; with `machines=false` fifty
        fit into 100 kB.
        """
        filters = SetFilter(self.request.query_params, now=self.now)
        page = sets.listing(now=self.now, sets=filtered(self.request, filters), **self.place)
        return page.map(lambda rows: [*map(sets.in_numbers, rows)]) if filters.in_numbers else page


class SetCall(Call):
    def row(self, set_id: int) -> sets.SetRow | None:
        """Return the set, or the one that it was merged into."""
        detail = sets.detail(set_id=set_id, now=self.now)
        return detail.set if detail else None


class Set(SetCall):
    @describe("get_set", missing=UNKNOWN, parameters=[IN_NUMBERS])
    def get(self, set_id: int) -> sets.SetRow | None:
        """One availability set with its machines and open events

        The id of a set that was merged answers with the set that remains. Of a set of more than 500 machines the first
        500 by name stand in it, and `omitted` counts the others: `GET machines/?set=` gives all of them.
        """
        row = self.row(set_id)
        in_numbers = self.request.query_params.get("machines", "").lower() == "false"
        return sets.in_numbers(row) if row and in_numbers else row

    @describe("name_set", needs="admin", body=NameSetSerializer, missing=UNKNOWN, problems=("set-exists", "guarded"))
    def patch(self, set_id: int) -> sets.SetRow | None:
        """Name a provisional set, say its service, how many live machines it needs, or that it takes a second person

        What is left out stays as it is. Only a provisional set takes a name; the others have that of Azure. What
        lowers a requirement takes the session of a person who has just proved who they are, and no token; where the
        set takes two persons it waits in `warnings` until another administrator wants the same.
        """
        changes.change_set(self.wanted, set_id=set_id, actor=self.actor, now=self.now)
        return self.row(set_id)


class AdmissionRule(SetCall):
    @describe("set_admission_rule", needs="admin", body=AdmissionRuleSerializer, missing=UNKNOWN)
    def post(self, set_id: int) -> sets.SetRow | None:
        """Admit machines of this set that come back without their credential, for some time

        Only by a join token that confines to this set, and never a revoked machine or one that is live.
        """
        admissions.set_rule(set_id=set_id, until=self.wanted["until"], actor=self.commented, now=self.now)
        return self.row(set_id)


class MergeSet(SetCall):
    @describe("merge_set", needs="admin", body=MergeSetSerializer, missing=UNKNOWN)
    def post(self, set_id: int) -> sets.SetRow | None:
        """Merge this set into another one: they are one at Azure

        Machines, events and inventory move; no entry is lost. It cannot be undone.
        """
        changes.merge_sets(set_id=set_id, into=self.wanted["into"], actor=self.actor, now=self.now)
        return self.row(self.wanted["into"])
