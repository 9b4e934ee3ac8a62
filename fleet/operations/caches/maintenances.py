"""Maintenance computed from notifications: by news of a cache, and by what time alone changes."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

from fleet.domain.aside import What
from fleet.domain.caches.maintenances import ACTIVE, Heard, MaintenanceStatus, Operation, operations_of, status_of
from fleet.domain.due import portion
from fleet.domain.shapes import like
from fleet.models import Cache, Entry, Maintenance, Notification, SetAside
from fleet.operations.aside import Apart
from fleet.operations.caches.entries import overdue_entry
from fleet.operations.timeline.entries import write

# Notifications this far apart are never about the same operation.
APART = timedelta(hours=6)
# Caches of one tick.
PORTION = 100
COMPUTED = (
    "first_at", "last_at", "began_at", "node_port", "partner_port", "expected_at", "approximate", "failover_at",
    "ended_at", "was_replica", "is_replica", "swapped",
)  # fmt: skip


def _heard(row: Notification) -> Heard:
    key = f"{row.raw_hash}.{row.pk}"
    return like(Heard, row, key=key, type=row.type or None, at=row.first_at, port=row.ssl_port)


def compute_operations(cache: Cache, shard: int | None, times: Iterable[datetime], *, now: datetime) -> list[Entry]:
    """Compute the operations on one (cache, shard) around these times anew; the entries of what only time tells."""
    moments = list(times)
    here = Notification.objects.filter(cache=cache, shard=shard)
    rows = {row.pk: row for row in here.filter(first_at__gte=min(moments) - APART, first_at__lte=max(moments) + APART)}
    homes = {row.maintenance_id for row in rows.values() if row.maintenance_id is not None}
    # An operation that reaches out of the window is taken whole.
    rows |= {row.pk: row for row in here.filter(maintenance__any=homes)}
    stored = {row.pk: row for row in Maintenance.objects.filter(pk__any=homes)}
    by_heard = {_heard(row): row for row in rows.values()}
    written: list[Entry] = []
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
            overdue = overdue_entry(row, cache, at=now)
            written += [overdue] if overdue else []
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
    return written


def _apply(row: Maintenance, operation: Operation, *, now: datetime) -> bool:
    """Whether anything changed."""
    values = {name: getattr(operation, name) for name in COMPUTED}
    values["status"] = status_of(operation, now=now).value
    if operation.ended_at is None and values["status"] == MaintenanceStatus.ENDED.value:
        values["ended_at"] = operation.scaled_at
    changed = [name for name, value in values.items() if getattr(row, name) != value]
    for name in changed:
        setattr(row, name, values[name])
    return bool(changed) or row.pk is None


def advance(*, now: datetime) -> int:
    """What time alone changes: ends that nobody saw, starts that never came. How many operations changed.

    One query while no operation is open.
    """
    active = Maintenance.objects.filter(status__in=[status.value for status in ACTIVE]).order_by("cache")
    late = SetAside.objects.filter(what=What.CACHE.value, next_try_at__lte=now)
    with Apart(What.CACHE, now=now) as apart:
        caches = {*active.values_list("cache", flat=True), *late.values_list("row_id", flat=True)}
        due = apart.look(portion(sorted(caches), most=PORTION, now=now), partial(_due, now=now))
        for cache_id in sorted({cache_id for cache_id, _, _ in due}):
            apart.run(cache_id, partial(_compute, cache_id, [one[1:] for one in due if one[0] == cache_id], now=now))
    return len(due)


def _compute(cache_id: int, due: Iterable[tuple[int | None, datetime]], *, now: datetime) -> bool:
    cache = Cache.objects.select_for_update().get(pk=cache_id)
    for shard, at in due:
        write(compute_operations(cache, shard, [at], now=now))
    return True


def _due(cache_ids: Sequence[int], *, now: datetime) -> list[tuple[int, int | None, datetime]]:
    found = _overdue(cache_ids, now)
    # What was heard while a cache was set aside is made up for.
    for row in SetAside.objects.filter(what=What.CACHE.value, row_id__in=cache_ids):
        heard = Notification.objects.filter(cache=row.row_id, maintenance=None, received_at__gte=row.since)
        found += heard.order_by("pk").values_list("cache", "shard", "first_at")
    return found


def _overdue(cache_ids: Sequence[int], now: datetime) -> list[tuple[int, int | None, datetime]]:
    rows = list(
        Maintenance.objects.filter(cache__in=cache_ids, status__in=[status.value for status in ACTIVE]).order_by(
            "cache", "pk"
        )
    )
    members: dict[int | None, list[Heard]] = {}
    for row in Notification.objects.filter(maintenance__any=[row.pk for row in rows]):
        members.setdefault(row.maintenance_id, []).append(_heard(row))
    return [
        (row.cache_id, row.shard, row.first_at)
        for row in rows
        if any(
            status_of(operation, now=now).value != row.status for operation in operations_of(members.get(row.pk, []))
        )
    ]
