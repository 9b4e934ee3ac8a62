"""Processing of cache notifications, coverage changes and hook results from machines."""

import base64
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256

from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.caches.maintenances import shard_of
from fleet.domain.caches.notifications import NotificationType, read_notification
from fleet.domain.reasons import Reason, as_json
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.texts import readable, tidy
from fleet.domain.timeline import EntryKind
from fleet.models import Cache, Machine, Notification, Reporter
from fleet.operations.caches import coverage
from fleet.operations.caches.maintenances import compute_operations, record_notification
from fleet.operations.intake import bounds, oddities
from fleet.operations.intake.keep import AgentReport
from fleet.operations.intake.preparations import hook_data
from fleet.operations.quarantine import Quarantine
from fleet.operations.timeline.entries import tell

CacheHookReport = AgentReport[wire.RedisHookData]


def _record_hook(report: CacheHookReport, cache: Cache | None, name: str) -> None:
    data = report.data
    tell(
        EntryKind.HOOK_SUCCEEDED if data.outcome == "succeeded" else EntryKind.HOOK_FAILED,
        machine_actor(name),
        at=report.at,
        machine_id=report.machine_id,
        cache_id=cache.pk if cache else None,
        **hook_data(data.hook, data.outcome, data.exit_status, data.seconds, data.output),
        phase="redis",
        cache=data.cache,
        notification_type=tidy(data.notification_type),
    )


# Merging the lines that machines hear on the channels of caches: one notification, however many heard it.

# Copies of one line this close to each other are one notification; after that it is news.
COPIES = timedelta(seconds=60)
Shard = tuple[int, int | None]


Line = AgentReport[wire.RedisData]


def _bytes(data: wire.RedisData) -> bytes:
    """Return the message as the agent received it. Raises ValueError for invalid base64."""
    if data.encoding == "base64":
        return base64.b64decode(data.raw)
    return data.raw.encode("utf-8", errors="replace")


def merge(
    lines: Sequence[Line], caches: dict[str, Cache], now: datetime
) -> tuple[list[Notification], dict[Shard, list[datetime]]]:
    """Store messages, merging copies from several machines. Return new notifications, and times of change by shard."""
    touched: dict[Shard, list[datetime]] = defaultdict(list)
    if not lines:
        return [], touched
    hashed = [(line, sha256(_bytes(line.data)).hexdigest()) for line in sorted(lines, key=lambda line: line.at)]
    known: dict[tuple[int, str], list[Notification]] = defaultdict(list)
    for row in Notification.objects.filter(
        cache__any=[cache.pk for cache in caches.values()],
        raw_hash__any={key for _, key in hashed},
        last_at__gte=hashed[0][0].at - COPIES,
        first_at__lte=hashed[-1][0].at + COPIES,
    ).order_by("first_at", "pk"):
        known[row.cache_id, row.raw_hash].append(row)
    stored = {row.pk: row for rows in known.values() for row in rows}
    # By machine (row id) for each notification, which has no key before it is stored.
    reporters: dict[int, dict[int, Reporter]] = defaultdict(dict)
    for reporter in Reporter.objects.filter(notification__any=stored):
        reporters[id(stored[reporter.notification_id])][reporter.machine_id] = reporter
    new: list[Notification] = []
    for line, key in hashed:
        cache = caches[line.data.cache]
        rows = known[cache.pk, key]
        near = [row for row in rows if row.first_at - COPIES <= line.at <= row.last_at + COPIES]
        row = near[0] if near else _notification(line, key, cache, now)
        if not near:
            rows.append(row)
            new.append(row)
            touched[cache.pk, row.shard].append(row.first_at)
        for other in near[1:]:
            # A late copy shows that two were one.
            rows.remove(other)
            touched[cache.pk, other.shard].append(other.first_at)
            row.first_at, row.last_at = min(row.first_at, other.first_at), max(row.last_at, other.last_at)
            for reporter in reporters.pop(id(other), {}).values():
                _count(reporters[id(row)], row, reporter.machine_id, reporter.first_at, reporter.copies)
            # One that is not stored yet needs no deleting.
            new = [one for one in new if one is not other]
            if other.pk is not None:
                other.delete()
        if line.at < row.first_at:
            touched[cache.pk, row.shard].append(line.at)
        row.first_at, row.last_at = min(row.first_at, line.at), max(row.last_at, line.at)
        _count(reporters[id(row)], row, line.machine_id, line.at)
    Notification.objects.bulk_create(new)
    # A deleted one has no key any more.
    Notification.objects.bulk_update([row for row in stored.values() if row.pk is not None], ["first_at", "last_at"])
    copies = [reporter for by_machine in reporters.values() for reporter in by_machine.values()]
    Reporter.objects.bulk_create([reporter for reporter in copies if reporter.pk is None])
    Reporter.objects.bulk_update([reporter for reporter in copies if reporter.pk is not None], ["first_at", "copies"])
    return new, touched


def _count(
    reporters: dict[int, Reporter], row: Notification, machine_id: int, first_at: datetime, copies: int = 1
) -> None:
    """Count copies of a notification that one machine received."""
    known = reporters.get(machine_id)
    if known is None:
        reporters[machine_id] = Reporter(notification=row, machine_id=machine_id, first_at=first_at, copies=copies)
    else:
        known.copies += copies
        known.first_at = min(known.first_at, first_at)


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
        raw=readable(text),
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
        shard=shard_of(ssl_port=read.ssl_port, non_ssl_port=read.non_ssl_port, divisor=cache.divisor),
        flags=as_json(flags),
        late=announces and read.start_time is not None and now > read.start_time,
    )


# Taking what machines hear on the channels of caches: lines into notifications, notifications into maintenance.


def take_notifications(
    lines: Sequence[Line],
    changes: Sequence[coverage.CoverageReport],
    hook_reports: Sequence[CacheHookReport] = (),
    *,
    now: datetime,
    careful: bool = False,
) -> None:
    """Process messages, coverage changes and hook results about caches.

    With `careful`, a cache whose maintenances cannot be computed is quarantined. Raises ValueError for invalid base64.
    """
    if not lines and not changes and not hook_reports:
        return
    hosts = {line.data.cache for line in lines} | {change.data.cache for change in changes}
    quarantined = _beyond([*changes, *lines], now)
    if quarantined:
        hosts -= quarantined
        lines = [line for line in lines if line.data.cache not in quarantined]
        changes = [change for change in changes if change.data.cache not in quarantined]
    caches = _lock_caches(hosts, now, if_known={report.data.cache for report in hook_reports})
    coverage.take_settings(changes, caches)
    speaking = {change.machine_id for change in changes} | {report.machine_id for report in hook_reports}
    names = dict(Machine.every.filter(pk__any=speaking).values_list("pk", "resource_name"))
    new, touched = merge(lines, caches, now)
    by_id = {cache.pk: cache for cache in caches.values()}
    for shard in sorted(touched, key=lambda shard: (shard[0], -1 if shard[1] is None else shard[1])):
        computed = partial(compute_operations, by_id[shard[0]], shard[1], touched[shard], now=now)
        if careful:
            Quarantine(QuarantineKind.CACHE, now=now).run(shard[0], computed)
        else:
            computed()
    homes = dict(Notification.objects.filter(pk__any=[row.pk for row in new]).values_list("pk", "maintenance_id"))
    for row in new:
        row.maintenance_id = homes.get(row.pk)
        record_notification(row, by_id[row.cache_id])
    # Taken after the notifications, which state whether a lost connection was announced.
    coverage.take(changes, caches, names)
    for report in sorted(hook_reports, key=lambda report: report.at):
        _record_hook(report, caches.get(report.data.cache), names[report.machine_id])


def _beyond(reports: Sequence[Line | coverage.CoverageReport], now: datetime) -> set[str]:
    """Return the hosts that exceed the hourly limit of new caches of the machine that names them. Their
    reports wait.
    """
    named = {report.data.cache: report.machine_id for report in reports}
    known = set(Cache.objects.filter(host__any=set(named)).values_list("host", flat=True))
    missing = {host: machine_id for host, machine_id in named.items() if host not in known}
    if not missing:
        return set()
    hosts = bounds.new_caches(missing, now=now)
    waiting: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
    for report in reports:
        if report.data.cache in hosts:
            waiting[report.data.cache].add((report.machine_id, *report.position))
    for host, positions in waiting.items():
        oddities.add(QuarantineKind.BEYOND, host, positions, now=now)
    return hosts


def _lock_caches(hosts: Collection[str], now: datetime, *, if_known: Collection[str]) -> dict[str, Cache]:
    known = set(Cache.objects.filter(host__any=hosts).values_list("host", flat=True))
    missing = [Cache(host=host, created_at=now) for host in sorted(set(hosts) - known)]
    if missing:
        Cache.objects.bulk_create(missing, ignore_conflicts=True)
    # Also those that entries will only point to: that takes a lock of its own, in no order.
    rows = Cache.objects.select_for_update().filter(host__any={*hosts, *if_known}).order_by("host")
    return {row.host: row for row in rows}
