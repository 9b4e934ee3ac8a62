"""The timeline's lines about caches."""

from datetime import UTC, datetime

from fleet.domain.entries import EntryKind
from fleet.domain.maintenance import MaintenanceStatus
from fleet.domain.notifications import TYPES, NotificationType
from fleet.models import Cache, Entry, Maintenance, Notification
from fleet.operations.entries import entry

KINDS: dict[NotificationType, tuple[EntryKind, str]] = {
    NotificationType.SCHEDULED: (EntryKind.MAINTENANCE_SCHEDULED, "maintenance is announced"),
    NotificationType.STARTING: (EntryKind.MAINTENANCE_STARTING, "maintenance begins"),
    NotificationType.START: (EntryKind.MAINTENANCE_STARTED, "the node goes within seconds"),
    NotificationType.FAILOVER_COMPLETE: (EntryKind.MAINTENANCE_FAILED_OVER, "is the primary now"),
    NotificationType.ENDED: (EntryKind.MAINTENANCE_ENDED, "maintenance ended"),
    NotificationType.SCALE_COMPLETE: (EntryKind.MAINTENANCE_SCALED, "nodes were added or removed"),
}


def clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%M:%S} UTC"


def node(port: int | None, is_replica: bool | None = None) -> str:
    """`node 15000 (primary)`; what is not stated is left out."""
    if port is None:
        return "a node that is not named"
    role = {True: " (replica)", False: " (primary)", None: ""}[is_replica]
    return f"node {port}{role}"


def heard_entry(row: Notification, cache: Cache) -> Entry:
    """One new notification."""
    kind = TYPES.get(row.type.lower()) if row.type else None
    if kind is None:
        what = f"a notification of the type “{row.type}”" if row.type else "a line that states no type"
        shown, text = EntryKind.NOTIFICATION_UNKNOWN, f"{cache.host}: {what}; it is kept as it was heard."
    else:
        shown, words = KINDS[kind]
        joint = " " if kind is NotificationType.FAILOVER_COMPLETE else ": "
        where = node(row.ssl_port, None if kind is NotificationType.FAILOVER_COMPLETE else row.is_replica)
        text = f"{cache.host}, {where}{joint}{words}"
        if row.start_time is not None:
            joint = "at" if kind in (NotificationType.ENDED, NotificationType.STARTING) else "for"
            text += f" {joint} {clock(row.start_time)}"
        if kind is NotificationType.SCHEDULED:
            text += ", perhaps up to 3 minutes earlier"
        text += "."
    if row.late:
        text += " It arrived after its start."
    return entry(
        shown,
        text.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
        at=row.first_at,
        cache_id=cache.pk,
        maintenance_id=row.maintenance_id,
        actor="Azure",
        via="agent",
        type=row.type,
        flags=row.flags,
        late=row.late,
    )


def overdue_entry(row: Maintenance, cache: Cache, *, at: datetime) -> Entry | None:
    """What only the clock tells of an operation; None where it tells nothing."""
    if row.status == MaintenanceStatus.NEVER_STARTED.value:
        due = f" at {clock(row.expected_at)}" if row.expected_at else ""
        kind, text = EntryKind.MAINTENANCE_NEVER_STARTED, f"was announced{due}, and nothing followed."
    elif row.status == MaintenanceStatus.END_NOT_SEEN.value:
        kind, text = (
            EntryKind.MAINTENANCE_END_NOT_SEEN,
            f"began, and nobody heard that it ended ({node(row.node_port)}).",
        )
    else:
        return None
    return entry(
        kind,
        f"{cache.host}: maintenance {text}",
        at=at,
        cache_id=cache.pk,
        maintenance_id=row.pk,
        actor="Drydock",
        via="relay",
    )
