"""Rows of cache maintenances and their timeline entries."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from functools import partial

from fleet.domain.actor import AZURE, DRYDOCK
from fleet.domain.caches.maintenances import (
    ACTIVE,
    Heard,
    MaintenanceStatus,
    Operation,
    due_at,
    operations_of,
    status_of,
)
from fleet.domain.caches.notifications import TYPES, NotificationType
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.shapes import from_row
from fleet.domain.timeline import EntryKind
from fleet.models import Cache, Maintenance, Notification, QuarantinedRow
from fleet.operations.locks import take_due
from fleet.operations.quarantine import Quarantine
from fleet.operations.timeline.entries import tell

KINDS: dict[NotificationType, EntryKind] = {
    NotificationType.SCHEDULED: EntryKind.MAINTENANCE_SCHEDULED,
    NotificationType.STARTING: EntryKind.MAINTENANCE_STARTING,
    NotificationType.START: EntryKind.MAINTENANCE_STARTED,
    NotificationType.FAILOVER_COMPLETE: EntryKind.MAINTENANCE_FAILED_OVER,
    NotificationType.ENDED: EntryKind.MAINTENANCE_ENDED,
    NotificationType.SCALE_COMPLETE: EntryKind.MAINTENANCE_SCALED,
}
OVERDUE = {
    MaintenanceStatus.NEVER_STARTED.value: EntryKind.MAINTENANCE_NEVER_STARTED,
    MaintenanceStatus.END_NOT_SEEN.value: EntryKind.MAINTENANCE_END_NOT_SEEN,
}


def record_notification(row: Notification, cache: Cache) -> None:
    """Write the timeline entry of a new notification."""
    kind = TYPES.get(row.type.lower()) if row.type else None
    tell(
        KINDS[kind] if kind else EntryKind.NOTIFICATION_UNKNOWN,
        AZURE,
        at=row.first_at,
        cache_id=cache.pk,
        maintenance_id=row.maintenance_id,
        host=cache.host,
        type=row.type,
        port=row.ssl_port,
        is_replica=row.is_replica,
        start_time=row.start_time,
        flags=row.flags,
        late=row.late,
    )


def _record_overdue(row: Maintenance, cache: Cache, *, at: datetime) -> None:
    """Write a timeline entry if the maintenance reached its status by a timeout: never started, or end not seen."""
    kind = OVERDUE.get(row.status)
    if kind is None:
        return
    tell(
        kind,
        DRYDOCK,
        at=at,
        cache_id=cache.pk,
        maintenance_id=row.pk,
        host=cache.host,
        expected_at=row.expected_at,
        port=row.node_port,
    )


# Maintenance computed from notifications: by news of a cache, and by what time alone changes.

# Notifications this far apart are never about the same operation.
APART = timedelta(hours=6)
# Operations of one tick.
PORTION = 100
OPEN = "status IN ({})".format(", ".join(f"'{status.value}'" for status in ACTIVE))
COMPUTED = (
    "first_at", "last_at", "began_at", "node_port", "partner_port", "expected_at", "approximate", "failover_at",
    "ended_at", "was_replica", "is_replica", "swapped",
)  # fmt: skip


def _heard(row: Notification) -> Heard:
    key = f"{row.raw_hash}.{row.pk}"
    return from_row(Heard, row, key=key, type=row.type or None, at=row.first_at, port=row.ssl_port)


def compute_operations(cache: Cache, shard: int | None, times: Collection[datetime], *, now: datetime) -> None:
    """Compute the maintenances of one shard of a cache again, around these times, and record what changed by
    timeouts.
    """
    here = Notification.objects.filter(cache=cache, shard=shard)
    rows = {row.pk: row for row in here.filter(first_at__gte=min(times) - APART, first_at__lte=max(times) + APART)}
    homes = {row.maintenance_id for row in rows.values() if row.maintenance_id is not None}
    # An operation that reaches out of the window is taken whole.
    rows |= {row.pk: row for row in here.filter(maintenance__any=homes)}
    stored = {row.pk: row for row in Maintenance.objects.filter(pk__any=homes)}
    by_heard = {_heard(row): row for row in rows.values()}
    settled: set[int] = set()
    moved: list[Notification] = []
    loose = set(rows)
    for operation in operations_of(by_heard):
        members = [by_heard[heard] for heard in operation.members]
        pk = next((m.maintenance_id for m in members if m.maintenance_id and m.maintenance_id not in settled), None)
        row = stored[pk] if pk else Maintenance(cache=cache, source=cache.source, shard=shard)
        before = row.status
        if _apply(row, operation, now=now):
            row.save()
        settled.add(row.pk)
        if row.status != before:
            _record_overdue(row, cache, at=now)
        for member in members:
            loose.discard(member.pk)
            if member.maintenance_id != row.pk:
                member.maintenance_id = row.pk
                moved.append(member)
    for pk in loose:
        if rows[pk].maintenance_id is not None:
            rows[pk].maintenance_id = None
            moved.append(rows[pk])
    Notification.objects.bulk_update(moved, ["maintenance"])
    Maintenance.objects.filter(pk__any=set(stored) - settled).delete()


def _apply(row: Maintenance, operation: Operation, *, now: datetime) -> bool:
    """Write the computed values to the row. Return whether anything changed."""
    values = {name: getattr(operation, name) for name in COMPUTED}
    values["status"] = status_of(operation, now=now).value
    values["next_check_at"] = due_at(operation, now=now)
    if operation.ended_at is None and values["status"] == MaintenanceStatus.ENDED.value:
        values["ended_at"] = operation.scaled_at
    changed = [name for name, value in values.items() if getattr(row, name) != value]
    for name in changed:
        setattr(row, name, values[name])
    return bool(changed) or row.pk is None


def advance(*, now: datetime) -> int:
    """Compute the maintenances whose timeout has ended: never started, or end not seen. Return how many were
    computed.
    """
    taken = take_due(Maintenance, now=now, most=PORTION, open_only=OPEN)
    late = QuarantinedRow.objects.filter(what=QuarantineKind.CACHE.value, next_try_at__lte=now)
    todo: dict[int, set[tuple[int | None, datetime]]] = defaultdict(set)
    rows = Maintenance.objects.filter(pk__in=taken) if taken else ()
    for row in rows:
        todo[row.cache_id].add((row.shard, row.first_at))
    # Notifications received while a cache was quarantined are processed now.
    for row_id, since in late.order_by("next_try_at").values_list("row_id", "since")[:PORTION]:
        heard = Notification.objects.filter(cache=row_id, maintenance=None, received_at__gte=since)
        held = Maintenance.objects.filter(cache=row_id, status__in=ACTIVE)
        todo[row_id] |= {*heard.values_list("shard", "first_at"), *held.values_list("shard", "first_at")}
    with Quarantine(QuarantineKind.CACHE, now=now) as apart:
        for cache_id in sorted(todo):
            apart.run(cache_id, partial(_compute, cache_id, sorted(todo[cache_id], key=str), now=now))
    return len(taken)


def _compute(cache_id: int, due: Iterable[tuple[int | None, datetime]], *, now: datetime) -> bool:
    cache = Cache.objects.select_for_update().get(pk=cache_id)
    for shard, at in due:
        compute_operations(cache, shard, [at], now=now)
    return True
