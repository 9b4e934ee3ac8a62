"""Taking what machines hear on the channels of caches: lines into notifications, notifications into maintenance.

Everything here happens under the lock of the cache; caches are locked last, in the order of their hosts. Notifications
and operations are computed, so what arrives late or twice ends in the same rows.
"""

import base64
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from django.db import connection, transaction
from drydock_agent import wire

from fleet.domain.caches import maintenances
from fleet.domain.caches.maintenances import ACTIVE, Heard, MaintenanceStatus, Operation
from fleet.domain.caches.notifications import NotificationType, read_notification
from fleet.domain.reason import Reason, as_json
from fleet.models import Cache, Coverage, Entry, Machine, Maintenance, Notification, PresenceRow, Reporter
from fleet.operations.caches import coverage, hooks
from fleet.operations.caches.entries import heard_entry, overdue_entry
from fleet.operations.intake.keep import AgentReport
from fleet.operations.timeline.entries import write

# Copies of one line this close to each other are one notification; after that it is news.
COPIES = timedelta(seconds=60)
# Notifications this far apart are never about the same operation.
APART = timedelta(hours=6)
Shard = tuple[int, int | None]


Line = AgentReport[wire.RedisData]


def _bytes(data: wire.RedisData) -> bytes:
    """The line as it was heard. Raises ValueError for a broken base64."""
    if data.encoding == "base64":
        return base64.b64decode(data.raw)
    return data.raw.encode("utf-8", errors="replace")


def take(
    lines: Sequence[Line],
    changes: Sequence[coverage.CoverageReport],
    hook_reports: Sequence[hooks.CacheHookReport] = (),
    *,
    now: datetime,
) -> list[Entry]:
    """Merge lines and changes of coverage, take what hooks did; the entries to write. Raises ValueError for a broken
    base64.
    """
    if not lines and not changes and not hook_reports:
        return []
    hosts = {line.data.cache for line in lines} | {change.data.cache for change in changes}
    caches = _lock_caches(hosts, now, if_known={report.data.cache for report in hook_reports})
    coverage.take_settings(changes, caches)
    speaking = {change.machine_id for change in changes} | {report.machine_id for report in hook_reports}
    names = dict(Machine.objects.filter(pk__any=speaking).values_list("pk", "resource_name"))
    new, touched = _merge(lines, caches, now)
    by_id = {cache.pk: cache for cache in caches.values()}
    written: list[Entry] = []
    for shard in sorted(touched, key=lambda shard: (shard[0], -1 if shard[1] is None else shard[1])):
        written += _compute_operations(by_id[shard[0]], shard[1], touched[shard], now=now)
    homes = dict(Notification.objects.filter(pk__any=[row.pk for row in new]).values_list("pk", "maintenance_id"))
    for row in new:
        row.maintenance_id = homes.get(row.pk)
        written.append(heard_entry(row, by_id[row.cache_id]))
    # After the notifications: whether a lost connection was announced is told by them.
    written += coverage.take(changes, caches, names)
    return written + hooks.take(hook_reports, caches, names)


def _lock_caches(hosts: Collection[str], now: datetime, *, if_known: Collection[str]) -> dict[str, Cache]:
    known = set(Cache.objects.filter(host__any=hosts).values_list("host", flat=True))
    missing = [Cache(host=host, created_at=now) for host in sorted(set(hosts) - known)]
    if missing:
        Cache.objects.bulk_create(missing, ignore_conflicts=True)
    # Also those that entries will only point to: that takes a lock of its own, in no order.
    rows = Cache.objects.select_for_update().filter(host__any={*hosts, *if_known}).order_by("host")
    return {row.host: row for row in rows}


def _merge(
    lines: Sequence[Line], caches: dict[str, Cache], now: datetime
) -> tuple[list[Notification], dict[Shard, list[datetime]]]:
    """New notifications, and the shards concerned with the times at which something changed there."""
    touched: dict[Shard, list[datetime]] = {}
    if not lines:
        return [], touched
    hashed = [(line, sha256(_bytes(line.data)).hexdigest()) for line in sorted(lines, key=lambda line: line.at)]
    known: dict[tuple[int, str], list[Notification]] = {}
    for row in Notification.objects.filter(
        cache__any=[cache.pk for cache in caches.values()],
        raw_hash__any={key for _, key in hashed},
        last_at__gte=hashed[0][0].at - COPIES,
        first_at__lte=hashed[-1][0].at + COPIES,
    ).order_by("first_at", "pk"):
        known.setdefault((row.cache_id, row.raw_hash), []).append(row)
    ids = {row.pk for rows in known.values() for row in rows}
    reporters = {(row.notification_id, row.machine_id): row for row in Reporter.objects.filter(notification__any=ids)}
    new: list[Notification] = []
    fresh: dict[tuple[int, int], Reporter] = {}
    for line, key in hashed:
        cache = caches[line.data.cache]
        rows = known.setdefault((cache.pk, key), [])
        near = [row for row in rows if row.first_at - COPIES <= line.at <= row.last_at + COPIES]
        if near:
            row = near[0]
            for other in near[1:]:
                # A late copy shows that two were one.
                rows.remove(other)
                touched.setdefault((cache.pk, other.shard), []).append(other.first_at)
                _join(row, other, new, reporters, fresh)
        else:
            row = _notification(line, key, cache, now)
            rows.append(row)
            new.append(row)
            touched.setdefault((cache.pk, row.shard), []).append(row.first_at)
        if line.at < row.first_at:
            touched.setdefault((cache.pk, row.shard), []).append(line.at)
        row.first_at, row.last_at = min(row.first_at, line.at), max(row.last_at, line.at)
        reporter = reporters.get((row.pk or 0, line.machine_id)) or fresh.get((id(row), line.machine_id))
        if reporter is None:
            fresh[id(row), line.machine_id] = Reporter(notification=row, machine_id=line.machine_id, first_at=line.at)
        else:
            reporter.copies += 1
            reporter.first_at = min(reporter.first_at, line.at)
    Notification.objects.bulk_create(new)
    kept = [row for rows in known.values() for row in rows if row.pk in ids]
    Notification.objects.bulk_update(kept, ["first_at", "last_at"])
    for reporter in fresh.values():
        reporter.notification_id = reporter.notification.pk
    Reporter.objects.bulk_create(fresh.values())
    Reporter.objects.bulk_update(reporters.values(), ["first_at", "copies"])
    return new, touched


def _join(
    row: Notification,
    other: Notification,
    new: list[Notification],
    reporters: dict[tuple[int, int], Reporter],
    fresh: dict[tuple[int, int], Reporter],
) -> None:
    row.first_at, row.last_at = min(row.first_at, other.first_at), max(row.last_at, other.last_at)
    theirs = [
        one
        for one in [*reporters.values(), *fresh.values()]
        if one.notification is other or (other.pk is not None and one.notification_id == other.pk)
    ]
    for one in theirs:
        known = reporters.get((row.pk or 0, one.machine_id)) or fresh.get((id(row), one.machine_id))
        if known is None:
            fresh[id(row), one.machine_id] = Reporter(
                notification=row, machine_id=one.machine_id, first_at=one.first_at, copies=one.copies
            )
        else:
            known.copies += one.copies
            known.first_at = min(known.first_at, one.first_at)
        fresh.pop((id(other), one.machine_id), None)
        if other.pk is not None:
            reporters.pop((other.pk, one.machine_id), None)
    # One that is not written yet needs no deleting.
    if any(one is other for one in new):
        new[:] = [one for one in new if one is not other]
    else:
        other.delete()


def _notification(line: Line, key: str, cache: Cache, now: datetime) -> Notification:
    body = _bytes(line.data)
    read = read_notification(body)
    text = body.decode("utf-8", errors="replace")
    is_text = line.data.encoding == "utf-8" or text.encode("utf-8") == body
    announces = read.kind in (NotificationType.SCHEDULED, NotificationType.STARTING)
    flags = [*read.flags, Reason("line-cut")] if line.data.cut else read.flags
    return Notification(
        cache=cache,
        source=cache.source,
        raw=text.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
        raw_base64="" if is_text and "\x00" not in text else base64.b64encode(body).decode(),
        raw_hash=key,
        first_at=line.at,
        last_at=line.at,
        received_at=now,
        type=read.type or "",
        start_time=read.start_time,
        is_replica=read.is_replica,
        ip_address=read.ip_address or "",
        ssl_port=read.ssl_port,
        non_ssl_port=read.non_ssl_port,
        shard=maintenances.shard_of(ssl_port=read.ssl_port, non_ssl_port=read.non_ssl_port, divisor=cache.divisor),
        flags=as_json(flags),
        late=announces and read.start_time is not None and now > read.start_time,
    )


def _heard(row: Notification) -> Heard:
    return Heard(
        key=f"{row.raw_hash}.{row.pk}",
        type=row.type or None,
        at=row.first_at,
        start_time=row.start_time,
        is_replica=row.is_replica,
        port=row.ssl_port,
    )


def _compute_operations(cache: Cache, shard: int | None, times: Iterable[datetime], *, now: datetime) -> list[Entry]:
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
    for operation in maintenances.operations_of(by_heard):
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
    values = {
        "status": maintenances.status_of(operation, now=now).value,
        "first_at": operation.first_at,
        "last_at": operation.last_at,
        "began_at": operation.began_at,
        **{
            name: getattr(operation, name)
            for name in ("node_port", "partner_port", "expected_at", "approximate", "failover_at", "ended_at")
        },
        "was_replica": operation.was_replica,
        "is_replica": operation.is_replica,
        "swapped": operation.swapped,
    }
    if operation.ended_at is None and values["status"] == MaintenanceStatus.ENDED.value:
        values["ended_at"] = operation.scaled_at
    changed = [name for name, value in values.items() if getattr(row, name) != value]
    for name in changed:
        setattr(row, name, values[name])
    return bool(changed) or row.pk is None


def sweep(*, now: datetime) -> int:
    """What time alone changes: ends that nobody saw, starts that never came, and who is still there. How many
    operations changed. One query and one update while no operation is open.
    """
    with connection.cursor() as cursor:
        # Rows that somebody holds are left to the next sweep.
        cursor.execute(
            f"""
            UPDATE {Coverage._meta.db_table} AS coverage SET vouched_at = chosen.last_heard_at
            FROM (SELECT open.id, presence.last_heard_at FROM {Coverage._meta.db_table} AS open
                  JOIN {PresenceRow._meta.db_table} AS presence ON presence.machine_id = open.machine_id
                  WHERE open.until IS NULL AND presence.last_heard_at > open.vouched_at + interval '10 seconds'
                  ORDER BY open.id FOR UPDATE OF open SKIP LOCKED) AS chosen
            WHERE coverage.id = chosen.id
            """
        )
    due = _due(now)
    for cache_id, shard, at in due:
        with transaction.atomic():
            cache = Cache.objects.select_for_update().get(pk=cache_id)
            write(_compute_operations(cache, shard, [at], now=now))
    return len(due)


def _due(now: datetime) -> list[tuple[int, int | None, datetime]]:
    rows = list(Maintenance.objects.filter(status__in=[status.value for status in ACTIVE]).order_by("cache", "pk"))
    if not rows:
        return []
    members: dict[int | None, list[Heard]] = {}
    for row in Notification.objects.filter(maintenance__any=[row.pk for row in rows]):
        members.setdefault(row.maintenance_id, []).append(_heard(row))
    return [
        (row.cache_id, row.shard, row.first_at)
        for row in rows
        if any(
            maintenances.status_of(operation, now=now).value != row.status
            for operation in maintenances.operations_of(members.get(row.pk, []))
        )
    ]
