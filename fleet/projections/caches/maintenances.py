"""Maintenances of caches, with the notifications that belong to them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Unpack

from django.db.models import QuerySet

from fleet.domain.caches.maintenances import ACTIVE, EARLY, NEVER_STARTED_AFTER, MaintenanceStatus
from fleet.domain.caches.notifications import TYPES, NotificationType
from fleet.domain.reasons import Reason
from fleet.domain.shapes import InApi, from_row, grouped
from fleet.models import Cache, Maintenance, Notification, Reporter
from fleet.projections.caches.coverage import Span, Stretch, gaps_of, stretches
from fleet.projections.pages import OrderedAt, Page, Segment, read_list
from fleet.projections.refs import MachineRef, SetRef, machine_ref, set_ref
from fleet.projections.visibility import visible

UNHEARD = {
    MaintenanceStatus.NEVER_STARTED: Reason("start-unheard"),
    MaintenanceStatus.END_NOT_SEEN: Reason("end-unheard"),
}


@dataclass(frozen=True, slots=True)
class CacheRef:
    id: int
    host: str

    @property
    def name(self) -> str:
        """Return the cache's own name, which is the first label of its host name."""
        return self.host.partition(".")[0]


@dataclass(frozen=True, slots=True)
class ReporterRow:
    """One machine that received a notification, the time of its first copy, and the number of copies."""

    machine: MachineRef
    first_at: datetime
    copies: int
    # The set of the machine.
    set: SetRef


@dataclass(frozen=True, slots=True)
class NotificationRow:
    """One received notification. None means that the notification does not state the value."""

    id: int
    cache: CacheRef
    source: str
    type: Annotated[str | None, "The documented name, else the line's own word."]
    start_time: Annotated[datetime | None, "Null: not stated."]
    is_replica: Annotated[bool | None, "Null: not stated."]
    ip_address: Annotated[str | None, "Null: not stated."]
    ssl_port: Annotated[int | None, "Null: not stated."]
    non_ssl_port: Annotated[int | None, "Null: not stated."]
    shard: int | None
    raw: Annotated[str, "The line as it was heard."]
    raw_base64: Annotated[str, "Its bytes, where they are no text; else empty."]
    flags: Annotated[tuple[Reason | str, ...], "What could not be read, in words."]
    late: Annotated[bool, "It arrived after the start that it announces."]
    first_at: Annotated[datetime, "When the first machine heard it."]
    last_at: Annotated[datetime, "When the last one did."]
    received_at: Annotated[datetime, "When it was here."]
    maintenance_id: int | None
    reported_by: tuple[ReporterRow, ...]
    tier: Annotated[str, InApi.OMITTED]

    @property
    def kind(self) -> NotificationType | None:
        return TYPES.get(self.type.lower()) if self.type else None

    @property
    def label(self) -> Reason:
        return Reason("notification-label", type=self.type)

    @property
    def meaning(self) -> Annotated[Reason, "What it means for a program that uses the cache."]:
        """Return the meaning of the notification for a program that uses the cache."""
        return Reason("notification-meaning", type=self.type, tier=self.tier, is_replica=self.is_replica)


@dataclass(frozen=True, slots=True)
class MaintenanceRow:
    """One maintenance. `earliest_at` is the earliest time at which the node may become unavailable. `shard` and ports
    are None if no notification states them.
    """

    id: int
    cache: CacheRef
    tier: Annotated[str, "`basic`, `standard`, `premium`, or empty."]
    source: Annotated[str, "Whose channel it was heard on."]
    shard: int | None
    status: MaintenanceStatus
    first_at: Annotated[datetime, "When its first notification was heard."]
    last_at: Annotated[datetime, "When its last one was."]
    node_port: Annotated[int | None, "The SSL port of the node that it is about."]
    partner_port: Annotated[int | None, "The SSL port of the node that was promoted."]
    expected_at: Annotated[datetime | None, "The stated start; Starting counts over Scheduled."]
    earliest_at: Annotated[datetime | None, "When the node may go: three minutes before an approximate start."]
    approximate: Annotated[bool, "Only Scheduled stated the start."]
    began_at: Annotated[datetime | None, "When the node went, as far as it is known."]
    failover_at: datetime | None
    ended_at: datetime | None
    was_replica: Annotated[bool | None, "The node's role before."]
    is_replica: Annotated[bool | None, "The node's role after."]
    swapped: Annotated[bool, "A primary was hit: its replica is the primary now."]
    # Last change, by the database's clock.
    changed_at: datetime

    @property
    def active(self) -> bool:
        return self.status in ACTIVE

    @property
    def seconds(self) -> float | None:
        """Return the seconds from the loss of the node to the end of the maintenance; None if one of them is
        unknown.
        """
        if self.began_at is None or self.ended_at is None or self.ended_at < self.began_at:
            return None
        return (self.ended_at - self.began_at).total_seconds()

    @property
    def effect(self) -> Annotated[Reason, "What it does to the cache, in one sentence."]:
        """Return the effect on the cache as a sentence, by the cache's tier and the node's role."""
        return Reason("maintenance-effect", tier=self.tier, was_replica=self.was_replica)


@dataclass(frozen=True, slots=True)
class MaintenanceDetail:
    """A maintenance with its notifications, oldest first, and the machines that listened from `begin` to `end`.

    `unheard` explains which notifications may be missing for times without a listener; empty if there are none.
    """

    maintenance: Annotated[MaintenanceRow, InApi.FLATTENED]
    members: Annotated[tuple[NotificationRow, ...], InApi.OMITTED]
    stretches: Annotated[tuple[Stretch, ...], InApi.OMITTED]
    gaps: Annotated[tuple[Span, ...], InApi.OMITTED]
    begin: Annotated[datetime, InApi.OMITTED]
    end: Annotated[datetime, InApi.OMITTED]
    unheard: Annotated[
        Reason | str, "Why missing notifications are not conclusive: no agent listened. Empty otherwise."
    ]
    server_time: datetime


def cache_ref(row: Cache) -> CacheRef:
    return CacheRef(id=row.pk, host=row.host)


def maintenance_row(row: Maintenance) -> MaintenanceRow:
    """Build the row of a maintenance that was loaded with its cache. No query."""
    early = EARLY if row.approximate else timedelta(0)
    return from_row(
        MaintenanceRow,
        row,
        cache=cache_ref(row.cache),
        tier=row.cache.tier,
        earliest_at=row.expected_at - early if row.expected_at else None,
    )


def maintenance_rows(rows: Iterable[Maintenance]) -> tuple[MaintenanceRow, ...]:
    return tuple(maintenance_row(row) for row in rows)


def _reporter(row: Reporter) -> ReporterRow:
    home = set_ref(row.machine.availability_set)
    return from_row(ReporterRow, row, machine=machine_ref(row.machine), set=home)


def notification_rows(rows: Sequence[Notification]) -> tuple[NotificationRow, ...]:
    """Return the rows of notifications, whose `cache` must be loaded. Runs one query, for the reporting machines."""
    heard = visible(Reporter).filter(notification__any=[row.pk for row in rows]).order_by("first_at", "pk")
    found = heard.select_related("machine__availability_set").defer("machine__compute")
    reporters = grouped((one.notification_id, _reporter(one)) for one in found)
    return tuple(
        from_row(
            NotificationRow,
            row,
            cache=cache_ref(row.cache),
            type=row.type or None,
            ip_address=row.ip_address or None,
            reported_by=tuple(reporters[row.pk]),
            tier=row.cache.tier,
        )
        for row in rows
    )


def active() -> tuple[MaintenanceRow, ...]:
    """Return up to 20 announced or current maintenances, the soonest first. One query."""
    rows = visible(Maintenance).filter(status__in=[status.value for status in ACTIVE]).select_related("cache")
    return maintenance_rows(rows.order_by("expected_at", "first_at", "pk")[:20])


def listing(*, rows: QuerySet[Maintenance] | None = None, **at: Unpack[OrderedAt]) -> Page[MaintenanceRow]:
    """Return a page of maintenances, newest first. One query."""
    found = (visible(Maintenance) if rows is None else rows).select_related("cache")
    return read_list(Segment(found, "first_at", descending=True), **at).map(maintenance_rows)


def listing_with_members(
    *, rows: QuerySet[Maintenance] | None = None, **at: Unpack[OrderedAt]
) -> Page[tuple[MaintenanceRow, tuple[NotificationRow, ...]]]:
    """Return a page of maintenances, newest first, each with its notifications, oldest first. Three queries."""
    page = listing(rows=rows, **at)
    found = visible(Notification).filter(maintenance__any=[row.id for row in page.results]).select_related("cache")
    rows_of = notification_rows(list(found.order_by("first_at", "pk")))
    members = grouped((member.maintenance_id, member) for member in rows_of)
    return page.map(lambda shown: [(row, tuple(members[row.id])) for row in shown])


def notifications(*, rows: QuerySet[Notification] | None = None, **at: Unpack[OrderedAt]) -> Page[NotificationRow]:
    """Return a page of notifications, newest first. Two queries."""
    found = (visible(Notification) if rows is None else rows).select_related("cache")
    return read_list(Segment(found, "first_at", descending=True), **at).map(notification_rows)


def of_cache(*, cache_id: int, size: int) -> tuple[NotificationRow, ...]:
    """Return the newest notifications of one cache. Two queries."""
    rows = visible(Notification).filter(cache=cache_id).select_related("cache").order_by("-first_at", "-pk")
    return notification_rows(list(rows[:size]))


def detail(*, maintenance_id: int, now: datetime) -> MaintenanceDetail | None:
    """Return one maintenance by row id with its details; None if it does not exist. Four queries."""
    row = visible(Maintenance).select_related("cache").filter(pk=maintenance_id).first()
    if row is None:
        return None
    shown = maintenance_row(row)
    found = visible(Notification).filter(maintenance=row).select_related("cache").order_by("first_at", "pk")
    members = notification_rows(list(found))
    end = now if shown.active else min(now, max(_over(shown), *(member.first_at for member in members), row.last_at))
    begin = row.first_at
    air = max((end - begin) * 0.05, timedelta(seconds=20))
    begin, end = begin - air, min(now, end + air)
    heard = stretches(cache_id=row.cache_id, begin=begin, end=end, now=now)
    gaps = gaps_of(heard, begin=begin, end=end)
    return MaintenanceDetail(
        maintenance=shown,
        members=members,
        stretches=heard,
        gaps=gaps,
        begin=begin,
        end=end,
        unheard=UNHEARD.get(shown.status, "") if gaps else "",
        server_time=now,
    )


def _over(row: MaintenanceRow) -> datetime:
    """Return when an ended maintenance was over, or the best estimate."""
    if row.ended_at is not None:
        return row.ended_at
    if row.status is MaintenanceStatus.NEVER_STARTED and row.expected_at is not None:
        return row.expected_at + NEVER_STARTED_AFTER
    return row.last_at
