"""Caches: what machines report about them (notifications, which machine listened when, hook results), and maintenances.

Missing notifications prove nothing without a listener.
"""

import base64
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from typing import Any

from drydock_agent import wire

from fleet.domain.actor import AZURE, DRYDOCK
from fleet.domain.actor import machine as machine_actor
from fleet.domain.caches import maintenances
from fleet.domain.caches.maintenances import MaintenanceStatus
from fleet.domain.caches.notifications import TYPES, NotificationType, read_notification
from fleet.domain.reasons import Reason, as_json
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.shapes import from_row
from fleet.domain.texts import readable, tidy
from fleet.domain.timeline import EntryKind
from fleet.models import Machine, Observation, PresenceRow, QuarantinedRow
from fleet.models.caches import Cache, Coverage, Maintenance, Notification, Reporter
from fleet.models.driver import query
from fleet.operations.intake import oddities
from fleet.operations.intake.keep import AgentReport
from fleet.operations.intake.preparations import hook_data
from fleet.operations.locks import take_due
from fleet.operations.quarantine import Quarantine
from fleet.operations.timeline.entries import tell

SUBSCRIBED, UNSUPPORTED = "subscribed", "unsupported"
CoverageReport = AgentReport[wire.CoverageData]


def _take_coverage(reports: Sequence[CoverageReport], caches: Mapping[str, Cache], names: Mapping[int, str]) -> None:
    """Process reports that a machine began or stopped listening, in the order of each machine. Older reports change
    nothing.
    """
    if not reports:
        return
    rows = Coverage.objects.filter(
        cache__any={caches[report.data.cache].pk for report in reports},
        machine__any={report.machine_id for report in reports},
        until=None,
    )
    newest = {(row.cache_id, row.machine_id): row for row in rows}
    for report in sorted(reports, key=lambda report: (report.machine_id, report.position)):
        cache = caches[report.data.cache]
        before = newest.get((cache.pk, report.machine_id))
        if before is not None and report.position <= (before.epoch, before.seq):
            continue
        state = _state(report)
        again = before is not None and before.state == state
        if before is not None and again and state != SUBSCRIBED:
            before.reason, before.vouched_at = report.data.reason, max(before.vouched_at, report.at)
            before.epoch, before.seq = report.position
            before.save()
            continue
        if before is not None:
            _close(before, report, again=again)
        newest[cache.pk, report.machine_id] = Coverage.objects.create(
            cache=cache,
            machine_id=report.machine_id,
            state=state,
            reason=report.data.reason,
            since=report.at,
            vouched_at=report.at,
            epoch=report.position[0],
            seq=report.position[1],
        )
        _record_coverage(report, cache, before, names[report.machine_id], again=again)


def _state(report: CoverageReport) -> str:
    """Return the reported state. A subscription in a cloud that never publishes counts as unsupported (0.1.0
    subscribed).
    """
    return UNSUPPORTED if report.data.cache.endswith(wire.CACHE_HOSTS_WITHOUT_NOTIFICATIONS) else report.data.state


def _close(before: Coverage, report: CoverageReport, *, again: bool) -> None:
    """End a coverage period. If the agent repeats its report (`again`), it was restarted: the period ends at the last
    contact.
    """
    last = before.vouched_at
    (epoch, seq), said = report.position, Observation.objects.filter(machine=report.machine_id)
    previous = said.filter(epoch=epoch, seq=seq - 1).values_list("at", flat=True)
    last = min(max([last, *previous]), report.at)
    # Who did not listen before did not listen in the silence either.
    # An agent reports every 300 s: one that reported nothing for longer was absent.
    silent = before.state == SUBSCRIBED and (again or report.at - last > timedelta(seconds=400))
    before.until = max(before.since, last if silent else report.at)
    before.save(update_fields=["until"])


def _record_coverage(report: CoverageReport, cache: Cache, before: Coverage | None, name: str, *, again: bool) -> None:
    state = _state(report)
    listened = before is not None and before.state == SUBSCRIBED
    details: dict[str, Any] = {}
    if state == SUBSCRIBED:
        if again:
            return
        kind = EntryKind.CACHE_LISTENED
        details["after_seconds"] = (report.at - before.since).total_seconds() if before is not None else None
    elif state == "refused":
        kind = EntryKind.CACHE_REFUSED
    elif state == UNSUPPORTED:
        kind = EntryKind.CACHE_UNSUPPORTED
    elif not listened:
        # The connection is already recorded as lost; the page gives the reason why it cannot return.
        if before is not None:
            return
        kind, details["listened"] = EntryKind.CACHE_LOST, False
    elif _announced(cache, report.at):
        kind, details["listened"] = EntryKind.CACHE_LOST, True
    else:
        kind = EntryKind.CACHE_LOST_UNANNOUNCED
    details |= {"host": cache.host, "state": state, "reason": readable(report.data.reason)}
    tell(kind, machine_actor(name), at=report.at, machine_id=report.machine_id, cache_id=cache.pk, **details)


def _announced(cache: Cache, at: datetime) -> bool:
    """Return whether a maintenance of the cache explains a lost connection at this time."""
    near = Maintenance.objects.filter(cache=cache, last_at__gte=at - timedelta(hours=3))
    for row in near.filter(first_at__lte=at + maintenances.SLACK):
        begins = row.began_at or (row.expected_at - maintenances.EARLY if row.expected_at else row.first_at)
        ends = row.ended_at or max(row.last_at, begins) + maintenances.END_NOT_SEEN_AFTER
        if begins - maintenances.SLACK <= at <= ends + maintenances.SLACK:
            return True
    return False


def vouch() -> None:
    """Set the last contact of every open coverage period to that of the machine. Runs one statement."""
    # Locked rows are left to the next run.
    query(
        f"""
        UPDATE {Coverage._meta.db_table} AS coverage SET vouched_at = chosen.last_heard_at
        FROM (SELECT open.id, presence.last_heard_at FROM {Coverage._meta.db_table} AS open
              JOIN {PresenceRow._meta.db_table} AS presence ON presence.machine_id = open.machine_id
              WHERE open.until IS NULL AND presence.last_heard_at > open.vouched_at + interval '10 seconds'
              ORDER BY open.id FOR UPDATE OF open SKIP LOCKED) AS chosen
        WHERE coverage.id = chosen.id
        """
    )


CacheHookReport = AgentReport[wire.RedisHookData]


def _record_hook(report: CacheHookReport, cache: Cache | None, name: str) -> None:
    data = report.data
    kind = EntryKind.HOOK_SUCCEEDED if data.outcome == "succeeded" else EntryKind.HOOK_FAILED
    about = {"machine_id": report.machine_id, "cache_id": cache.pk if cache else None}
    said = hook_data(data.hook, data.outcome, data.exit_status, data.seconds, data.output) | {"phase": "redis"}
    said |= {"cache": data.cache, "notification_type": tidy(data.notification_type)}
    tell(kind, machine_actor(name), at=report.at, **about, **said)


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
        shard=maintenances.shard_of(ssl_port=read.ssl_port, non_ssl_port=read.non_ssl_port, divisor=cache.divisor),
        flags=as_json(flags),
        late=announces and read.start_time is not None and now > read.start_time,
    )


# Taking what machines hear on the channels of caches: lines into notifications, notifications into maintenance.


def take_notifications(reports: Sequence[AgentReport[Any]], *, now: datetime, careful: bool) -> None:
    """Process messages, coverage changes and hook results about caches.

    With `careful`, a cache whose maintenances cannot be computed is quarantined. Raises ValueError for invalid base64.
    """
    if not reports:
        return
    kinds = (wire.RedisData, wire.CoverageData, wire.RedisHookData)
    lines, changes, hook_reports = ([one for one in reports if isinstance(one.data, kind)] for kind in kinds)
    quarantined = _beyond([*changes, *lines], now)
    lines, changes = ([one for one in part if one.data.cache not in quarantined] for part in (lines, changes))
    hosts = {one.data.cache for one in (*lines, *changes)}
    caches = _lock_caches(hosts, now, if_known={report.data.cache for report in hook_reports})
    # The settings that agents report: tier, and number of ports for each shard.
    for change in sorted(changes, key=lambda change: change.at):
        cache, divisor = caches[change.data.cache], change.data.divisor
        tier = change.data.tier or cache.tier
        if (cache.tier, cache.divisor) != (tier, divisor):
            cache.tier, cache.divisor = tier, divisor
            cache.save(update_fields=["tier", "divisor"])
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
    _take_coverage(changes, caches, names)
    for report in sorted(hook_reports, key=lambda report: report.at):
        _record_hook(report, caches.get(report.data.cache), names[report.machine_id])


def _beyond(reports: Sequence[Line | CoverageReport], now: datetime) -> set[str]:
    """Return the hosts that exceed the hourly limit of new caches of the machine that names them. Their
    reports wait.
    """
    named = {report.data.cache: report.machine_id for report in reports}
    known = set(Cache.objects.filter(host__any=set(named)).values_list("host", flat=True))
    missing = {host: machine_id for host, machine_id in named.items() if host not in known}
    if not missing:
        return set()
    hosts = oddities.new_caches(missing, now=now)
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
    Cache.objects.bulk_create(missing, ignore_conflicts=True)
    # Also those that entries will only point to: that takes a lock of its own, in no order.
    rows = Cache.objects.select_for_update().filter(host__any={*hosts, *if_known}).order_by("host")
    return {row.host: row for row in rows}


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


# Maintenance computed from notifications: by news of a cache, and by what time alone changes.

# Notifications this far apart are never about the same operation.
APART = timedelta(hours=6)
# Operations of one tick.
PORTION = 100
OPEN = "status IN ({})".format(", ".join(f"'{status.value}'" for status in maintenances.ACTIVE))
COMPUTED = (
    "first_at", "last_at", "began_at", "node_port", "partner_port", "expected_at", "approximate", "failover_at",
    "ended_at", "was_replica", "is_replica", "swapped",
)  # fmt: skip


def _heard(row: Notification) -> maintenances.Heard:
    key = f"{row.raw_hash}.{row.pk}"
    return from_row(maintenances.Heard, row, key=key, type=row.type or None, at=row.first_at, port=row.ssl_port)


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
    homed: dict[int, int] = {}
    for operation in maintenances.operations_of(by_heard):
        members = [by_heard[heard] for heard in operation.members]
        pk = next((m.maintenance_id for m in members if m.maintenance_id and m.maintenance_id not in settled), None)
        row = stored[pk] if pk else Maintenance(cache=cache, source=cache.source, shard=shard)
        before = row.status
        if _apply(row, operation, now=now):
            row.save()
        settled.add(row.pk)
        if row.status != before and row.status in OVERDUE:
            about = {"cache_id": cache.pk, "maintenance_id": row.pk, "host": cache.host, "port": row.node_port}
            tell(OVERDUE[row.status], DRYDOCK, at=now, **about, expected_at=row.expected_at)
        for member in members:
            homed[member.pk] = row.pk
    for pk, notification in rows.items():
        if notification.maintenance_id != homed.get(pk):
            notification.maintenance_id = homed.get(pk)
            moved.append(notification)
    Notification.objects.bulk_update(moved, ["maintenance"])
    Maintenance.objects.filter(pk__any=set(stored) - settled).delete()


def _apply(row: Maintenance, operation: maintenances.Operation, *, now: datetime) -> bool:
    """Write the computed values to the row. Return whether anything changed."""
    values = {name: getattr(operation, name) for name in COMPUTED}
    values["status"] = maintenances.status_of(operation, now=now).value
    values["next_check_at"] = maintenances.due_at(operation, now=now)
    if operation.ended_at is None and values["status"] == MaintenanceStatus.ENDED.value:
        values["ended_at"] = operation.scaled_at
    changed = {name: value for name, value in values.items() if getattr(row, name) != value}
    for name, value in changed.items():
        setattr(row, name, value)
    return bool(changed) or row.pk is None


def advance(*, now: datetime) -> int:
    """Compute the maintenances whose timeout has ended: never started, or end not seen. Return how many were
    computed.
    """
    taken = take_due(Maintenance, now=now, most=PORTION, open_only=OPEN)
    late = QuarantinedRow.objects.filter(what=QuarantineKind.CACHE.value, next_try_at__lte=now)
    todo: dict[int, set[tuple[int | None, datetime]]] = defaultdict(set)
    for row in Maintenance.objects.filter(pk__in=taken) if taken else ():
        todo[row.cache_id].add((row.shard, row.first_at))
    # Notifications received while a cache was quarantined are processed now.
    for row_id, since in late.order_by("next_try_at").values_list("row_id", "since")[:PORTION]:
        heard = Notification.objects.filter(cache=row_id, maintenance=None, received_at__gte=since)
        held = Maintenance.objects.filter(cache=row_id, status__in=maintenances.ACTIVE)
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
