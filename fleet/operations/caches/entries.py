"""The timeline's lines about caches."""

from datetime import datetime

from fleet.domain.actor import AZURE, DRYDOCK
from fleet.domain.caches.maintenances import MaintenanceStatus
from fleet.domain.caches.notifications import TYPES, NotificationType
from fleet.domain.timeline import EntryKind
from fleet.models import Cache, Entry, Maintenance, Notification
from fleet.operations.timeline.entries import entry

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


def heard_entry(row: Notification, cache: Cache) -> Entry:
    """One new notification."""
    kind = TYPES.get(row.type.lower()) if row.type else None
    return entry(
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


def overdue_entry(row: Maintenance, cache: Cache, *, at: datetime) -> Entry | None:
    """What only the clock tells of an operation; None where it tells nothing."""
    kind = OVERDUE.get(row.status)
    if kind is None:
        return None
    return entry(
        kind,
        DRYDOCK,
        at=at,
        cache_id=cache.pk,
        maintenance_id=row.pk,
        host=cache.host,
        expected_at=row.expected_at,
        port=row.node_port,
    )
