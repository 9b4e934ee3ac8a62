"""Caches with their nodes and roles, their listeners and their current maintenance."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Unpack

from django.db.models import QuerySet

from fleet.domain.caches.maintenances import ACTIVE
from fleet.domain.reasons import Reason
from fleet.domain.shapes import from_row, grouped
from fleet.models import Cache, Maintenance, Notification
from fleet.projections.caches.coverage import ListenerRow, Span, Stretch, gaps_of, listener, stretches, with_machine
from fleet.projections.caches.maintenances import CacheRef, MaintenanceRow, maintenance_row, maintenance_rows
from fleet.projections.changes import changed_at, with_changes
from fleet.projections.pages import OrderedAt, Page, Segment, read_list
from fleet.projections.visibility import sees_set, visible

HISTORY = 20


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node of a cache, identified by its SSL port.

    `is_replica` is its role from the newest notification that states one, received at `as_of`; None if unknown.
    """

    ssl_port: Annotated[int, "With the host it names the node; nodes may share an address."]
    non_ssl_port: Annotated[int | None, "Null: not stated."]
    ip_address: Annotated[str | None, "Null: not stated."]
    shard: int | None
    is_replica: Annotated[bool | None, "Its role by the newest notification that tells; null when none does any more."]
    as_of: Annotated[datetime, "When that was heard."]


@dataclass(frozen=True, slots=True)
class CacheRow(CacheRef):
    """One cache. `service` is the cache's own service, else the one that the sets of all its listeners share."""

    tier: Annotated[str, "`basic`, `standard`, `premium`, or empty."]
    source: Annotated[str, "Whose channel it has."]
    service: Annotated[str, "That of all its listeners, where they share one; may be empty."]
    divisor: Annotated[int, "How many ports make a shard."]
    nodes: tuple[NodeRow, ...]
    coverage: Annotated[tuple[ListenerRow, ...], "Each agent's state, and since when."]
    maintenance: Annotated[MaintenanceRow | None, "What is announced or under way."]
    # Last change of the cache, its listeners and its maintenances, by the database's clock.
    changed_at: datetime

    @property
    def listening(self) -> int:
        """Return the number of machines that listen."""
        return sum(row.listening for row in self.coverage)

    @property
    def unsupported(self) -> bool:
        """Return whether the cache has no channel for maintenance notifications."""
        return any(row.state == "unsupported" for row in self.coverage)

    @property
    def tier_effect(self) -> Reason:
        """Return the usual effect of maintenance on a cache of this tier; empty for an unknown tier."""
        return Reason("tier-effect", tier=self.tier)


@dataclass(frozen=True, slots=True)
class CacheDetail:
    """One cache with its maintenances, newest first, and the machines that listened to it from `begin` to `end`."""

    cache: CacheRow
    maintenances: tuple[MaintenanceRow, ...]
    stretches: tuple[Stretch, ...]
    gaps: tuple[Span, ...]
    begin: datetime
    end: datetime
    server_time: datetime


def _nodes(cache_ids: Sequence[int]) -> dict[int, tuple[NodeRow, ...]]:
    stated = visible(Notification).filter(cache__any=cache_ids, ssl_port__isnull=False, is_replica__isnull=False)
    newest = stated.order_by("cache", "ssl_port", "-first_at").distinct("cache", "ssl_port")
    return {cache_id: _roles(rows) for cache_id, rows in grouped((row.cache_id, row) for row in newest).items()}


def _roles(rows: list[Notification]) -> tuple[NodeRow, ...]:
    # A shard has one primary: an earlier primary no longer counts as one.
    primary = {row.shard: row.first_at for row in sorted(rows, key=lambda row: row.first_at) if not row.is_replica}
    return tuple(
        from_row(
            NodeRow,
            row,
            ip_address=row.ip_address or None,
            is_replica=None if row.is_replica is False and row.first_at < primary[row.shard] else row.is_replica,
            as_of=row.first_at,
        )
        for row in rows
    )


def cache_rows(rows: Iterable[Cache], *, now: datetime) -> tuple[CacheRow, ...]:
    """Build the rows of caches. Three queries."""
    caches = list(rows)
    ids = [row.pk for row in caches]
    nodes = _nodes(ids)
    newest = list(with_machine().filter(cache__any=ids, until=None))
    coverage = grouped((row.cache_id, listener(row, now=now)) for row in newest)
    sets = [(row.cache_id, row.machine.availability_set) for row in newest]
    services = grouped({(cache_id, home.service) for cache_id, home in sets if sees_set(home.pk)})
    of_them = visible(Maintenance).filter(cache__any=ids, status__in=[status.value for status in ACTIVE])
    soonest_last = of_them.select_related("cache").order_by("expected_at", "first_at", "pk").reverse()
    active = {one.cache_id: maintenance_row(one) for one in soonest_last}
    return tuple(
        from_row(
            CacheRow,
            row,
            service=row.service or (services[row.pk][0] if len(services[row.pk]) == 1 else ""),
            nodes=nodes.get(row.pk, ()),
            coverage=tuple(coverage[row.pk]),
            maintenance=active.get(row.pk),
            changed_at=changed_at(row),
        )
        for row in caches
    )


def listing(*, now: datetime, caches: QuerySet[Cache] | None = None, **at: Unpack[OrderedAt]) -> Page[CacheRow]:
    """Return a page of caches by host. Four queries."""
    rows = with_changes(visible(Cache) if caches is None else caches)
    page = read_list(Segment(rows, "host"), **at)
    return page.map(lambda found: cache_rows(found, now=now))


def detail(*, cache_id: int, now: datetime, hours: float = 24, window: Span | None = None) -> CacheDetail | None:
    """Return one cache (row id) for the last `hours`, or for `window`; None if it does not exist. Six queries."""
    row = with_changes(visible(Cache)).filter(pk=cache_id).first()
    if row is None:
        return None
    begin, end = (window.begin, min(window.end, now)) if window else (now - timedelta(hours=hours), now)
    found = stretches(cache_id=row.pk, begin=begin, end=end, now=now)
    # Before Drydock knew the cache, no machine could listen to it.
    known = min(max(begin, row.created_at), end)
    operations = visible(Maintenance).filter(cache=row).select_related("cache").order_by("-first_at", "-pk")
    return CacheDetail(
        cache=cache_rows([row], now=now)[0],
        maintenances=maintenance_rows(operations[:HISTORY]),
        stretches=found,
        gaps=gaps_of(found, begin=known, end=end),
        begin=begin,
        end=end,
        server_time=now,
    )
