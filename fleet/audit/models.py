"""Tables of the archive: files and state. Also determines which partitions must be archived."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q

from fleet.audit.archive_format import ArchiveKind, Held, Manifest
from fleet.domain.caches.maintenances import ACTIVE
from fleet.domain.states import EventStatus
from fleet.models.driver import query
from fleet.models.partitions import ARCHIVED, ENTRIES, NOTIFICATIONS, Partition, PartitionedTable, is_needed, partitions
from fleet.models.rows import Row


class ArchiveFile(Row):
    """One file of the archive. The columns up to `previous_hash` are the fields of
    `fleet.audit.archive_format.Manifest`; `hash` is the hash of the manifest.

    `events` are the row ids of the events to which the rows refer. `dropped_at` is the time when the rows were deleted
    from the database, None while they are in both.
    """

    number = models.BigIntegerField(primary_key=True)
    kind = models.TextField()
    form = models.SmallIntegerField()
    rows = models.BigIntegerField()
    first_id = models.BigIntegerField()
    last_id = models.BigIntegerField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    first_seal = models.BigIntegerField(null=True, blank=True)
    last_seal = models.BigIntegerField(null=True, blank=True)
    # The whole manifest, with the fields that its hash covers.
    manifest = models.JSONField()
    bytes = models.BigIntegerField()
    hash = models.TextField()
    events = ArrayField(models.BigIntegerField(), default=list)
    archived_at = models.DateTimeField()
    dropped_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["kind", "first_id"], name="archive_by_id"),
            models.Index(fields=["kind", "last_seal"], name="archive_by_seal", condition=Q(last_seal__isnull=False)),
            GinIndex(fields=["events"], name="archive_by_event"),
        ]

    @property
    def parsed_manifest(self) -> Manifest:
        return Manifest.from_values(self.manifest)


class ArchiveState(Row):
    """State of archiving. The table has one row. `fault` is a code of `fleet.audit.archive_format.StoreFault`, or
    empty. `held` maps each kind of row to the code of the reason why its oldest rows cannot be archived yet.
    """

    name = models.TextField(primary_key=True)
    tried_at = models.DateTimeField()
    worked_at = models.DateTimeField(null=True, blank=True)
    fault = models.TextField(blank=True, default="")
    fault_since = models.DateTimeField(null=True, blank=True)
    held = models.JSONField(default=dict)


# Partitions that are old enough to be archived, and the reasons to retain them.


@dataclass(frozen=True, slots=True)
class ExpiringPartition:
    """A partition that is archived and dropped at the time `at` or later."""

    kind: ArchiveKind
    partition: Partition
    at: datetime

    @property
    def ids(self) -> tuple[int, int]:
        """The row ids of the first and the last row."""
        return (self.partition.first_id or 0, self.partition.last_id or 0)


def keep_days(kind: ArchiveKind) -> int | None:
    """Return the retention of a kind of rows in days, or None if it is unlimited."""
    days: int | None = settings.RETENTION_DAYS[kind.value]
    return days


def full(of: PartitionedTable) -> list[Partition]:
    """Return the partitions that receive no more rows because a later partition already has rows. The range of a
    partition alone does not show this: it is set in advance.
    """
    return [one for one in partitions(of) if one.first_id is not None][:-1]


def expiring() -> Iterator[ExpiringPartition]:
    """Yield all partitions that receive no more rows and whose kind has a limited retention, in order of expiry for
    each kind.
    """
    for kind in ArchiveKind:
        if (days := keep_days(kind)) is not None:
            for partition in full(ARCHIVED[kind]):
                if partition.newest is not None:
                    yield ExpiringPartition(kind, partition, partition.newest + timedelta(days=days))


def due(*, now: datetime) -> list[ExpiringPartition]:
    """Return the partitions whose retention has ended. This depends on the newest row, because rows that were copied
    forward are older than the others.
    """

    def is_due(one: ExpiringPartition) -> bool:
        of = ARCHIVED[one.kind]
        ((newest,),) = query(f"SELECT max({of.time}) FROM {of.table} WHERE id BETWEEN %s AND %s", *one.ids)
        return bool((newest or one.at) + timedelta(days=keep_days(one.kind) or 0) <= now)

    return [one for one in expiring() if one.at <= now and is_due(one)]


# Condition on a range of ids for each table, and the reason why such rows are still needed.
HELD: dict[PartitionedTable, tuple[Held, str, list[str]]] = {
    ENTRIES: (
        Held.OPEN_EVENT,
        "SELECT EXISTS (SELECT FROM fleet_scheduledevent AS event WHERE event.status = ANY(%s) AND EXISTS"
        " (SELECT FROM fleet_entry AS row WHERE row.event_id = event.id AND row.id BETWEEN %s AND %s))",
        [EventStatus.SCHEDULED.value, EventStatus.STARTED.value],
    ),
    NOTIFICATIONS: (
        Held.OPEN_MAINTENANCE,
        "SELECT EXISTS (SELECT FROM fleet_notification AS row JOIN fleet_maintenance AS maintenance"
        " ON maintenance.id = row.maintenance_id WHERE maintenance.status = ANY(%s) AND row.id BETWEEN %s AND %s)",
        [status.value for status in ACTIVE],
    ),
}


def hold_reason(of: PartitionedTable, first: int, last: int) -> Held | None:
    """Return the reason why the rows in this id range are still needed, or None. For tables not listed in `HELD`,
    needed rows are copied to a later partition instead.
    """
    if is_needed(of, first, last):
        return Held.UNSENT
    if of not in HELD:
        return None
    why, statement, states = HELD[of]
    return why if query(statement, states, first, last)[0][0] else None


def covered(one: ExpiringPartition) -> bool:
    """Return whether the archive contains all rows of the partition. The rows are counted again."""
    files = ArchiveFile.objects.filter(kind=one.kind.value, first_id__gte=one.ids[0], last_id__lte=one.ids[1])
    ((count,),) = query(f"SELECT count(*) FROM {ARCHIVED[one.kind].table} WHERE id BETWEEN %s AND %s", *one.ids)
    return bool(count == sum(files.values_list("rows", flat=True)))
