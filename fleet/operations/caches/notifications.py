"""Taking what machines hear on the channels of caches: lines into notifications, notifications into maintenance.

Everything here happens under the lock of the cache; caches are locked last, in the order of their hosts. Notifications
and operations are computed, so what arrives late or twice ends in the same rows.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial

from fleet.domain.aside import What
from fleet.models import Cache, Entry, Machine, Notification
from fleet.operations.aside import Apart
from fleet.operations.caches import coverage, hooks
from fleet.operations.caches.entries import heard_entry
from fleet.operations.caches.lines import Line, merge
from fleet.operations.caches.maintenances import compute_operations
from fleet.operations.intake import backlog, bounds


def take(
    lines: Sequence[Line],
    changes: Sequence[coverage.CoverageReport],
    hook_reports: Sequence[hooks.CacheHookReport] = (),
    *,
    now: datetime,
    careful: bool = False,
) -> list[Entry]:
    """Merge lines and changes of coverage, take what hooks did; the entries to write. With `careful`, a cache whose
    operations cannot be computed is set aside. Raises ValueError for a broken base64.
    """
    if not lines and not changes and not hook_reports:
        return []
    hosts = {line.data.cache for line in lines} | {change.data.cache for change in changes}
    quarantined, written = _beyond([*changes, *lines], now)
    if quarantined:
        hosts -= quarantined
        lines = [line for line in lines if line.data.cache not in quarantined]
        changes = [change for change in changes if change.data.cache not in quarantined]
    caches = _lock_caches(hosts, now, if_known={report.data.cache for report in hook_reports})
    coverage.take_settings(changes, caches)
    speaking = {change.machine_id for change in changes} | {report.machine_id for report in hook_reports}
    names = dict(Machine.objects.filter(pk__any=speaking).values_list("pk", "resource_name"))
    new, touched = merge(lines, caches, now)
    by_id = {cache.pk: cache for cache in caches.values()}
    for shard in sorted(touched, key=lambda shard: (shard[0], -1 if shard[1] is None else shard[1])):
        computed = partial(compute_operations, by_id[shard[0]], shard[1], touched[shard], now=now)
        written += (Apart(What.CACHE, now=now).run(shard[0], computed) or []) if careful else computed()
    homes = dict(Notification.objects.filter(pk__any=[row.pk for row in new]).values_list("pk", "maintenance_id"))
    for row in new:
        row.maintenance_id = homes.get(row.pk)
        written.append(heard_entry(row, by_id[row.cache_id]))
    # After the notifications: whether a lost connection was announced is told by them.
    written += coverage.take(changes, caches, names)
    return written + hooks.take(hook_reports, caches, names)


def _beyond(reports: Sequence[Line | coverage.CoverageReport], now: datetime) -> tuple[set[str], list[Entry]]:
    """The hosts beyond the bounds of the machines that name them for the first time, and the entries to write. What is
    said of them waits until the hour is over.
    """
    named = {report.data.cache: report.machine_id for report in reports}
    known = set(Cache.objects.filter(host__any=set(named)).values_list("host", flat=True))
    missing = {host: machine_id for host, machine_id in named.items() if host not in known}
    if not missing:
        return set(), []
    hosts, told = bounds.new_caches(missing, now=now)
    waiting: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
    for report in reports:
        if report.data.cache in hosts:
            waiting[report.data.cache].add((report.machine_id, *report.position))
    for host, positions in waiting.items():
        backlog.add(What.BEYOND, host, positions, now=now)
    return hosts, told


def _lock_caches(hosts: Collection[str], now: datetime, *, if_known: Collection[str]) -> dict[str, Cache]:
    known = set(Cache.objects.filter(host__any=hosts).values_list("host", flat=True))
    missing = [Cache(host=host, created_at=now) for host in sorted(set(hosts) - known)]
    if missing:
        Cache.objects.bulk_create(missing, ignore_conflicts=True)
    # Also those that entries will only point to: that takes a lock of its own, in no order.
    rows = Cache.objects.select_for_update().filter(host__any={*hosts, *if_known}).order_by("host")
    return {row.host: row for row in rows}
