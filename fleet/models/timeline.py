"""The timeline: its entries, and the seals that make changes to it detectable."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection, models
from django.db.models import Func, Index, Q
from django.db.models.functions import Cast, Now

from fleet.domain.history import MILESTONES
from fleet.domain.timeline import FIRST_ERA, EntryKind, Place
from fleet.models.approvals import Approval
from fleet.models.caches import Cache, Maintenance
from fleet.models.driver import query
from fleet.models.events import ScheduledEvent
from fleet.models.index_scan import IndexScanRows
from fleet.models.machines import AvailabilitySet, Machine
from fleet.models.rows import Row

# The number of the writing transaction: xid8 goes to bigint by way of text.
CURRENT_TRANSACTION = Cast(
    Cast(Func(function="pg_current_xact_id", output_field=models.TextField()), models.TextField()),
    models.BigIntegerField(),
)
# The oldest transaction that may still write.
HORIZON = Cast(
    Cast(Func(Func(function="pg_current_snapshot"), function="pg_snapshot_xmin"), models.TextField()),
    models.BigIntegerField(),
)


# Through what people and rules act.
ACTING = ("page", "api", "rule", "command", "slack", "pagerduty")


# Nothing that an entry names is deleted, and a constraint would lock its table when a partition is dropped.
UNBOUND: Any = {"blank": True, "on_delete": models.DO_NOTHING, "db_index": False, "db_constraint": False}


class Entry(Row):
    """One entry of the timeline. It is append-only: the database refuses UPDATE and DELETE.

    The database fills in `xid`, the number of the writing transaction, and `era`: after a restore, transaction numbers
    begin again in a new era. Readers follow (era, xid, id) up to the oldest running transaction, so that they skip no
    entry. `begin_era` raises the default of the column `era` for all processes, so no migration may set that default
    again. `at` is when it happened (corrected by clock offset), `recorded_at` when it was written. `kind` is a
    `fleet.domain.timeline.EntryKind`.
    """

    # Its log line while it is written; no column.
    line: dict[str, Any] | None = None
    era = models.SmallIntegerField(db_default=FIRST_ERA, editable=False)
    xid = models.BigIntegerField(db_default=CURRENT_TRANSACTION, editable=False)
    at = models.DateTimeField()
    recorded_at = models.DateTimeField(db_default=Now())
    kind = models.TextField()
    event = models.ForeignKey(ScheduledEvent, null=True, related_name="entries", **UNBOUND)
    availability_set = models.ForeignKey(AvailabilitySet, null=True, related_name="entries", **UNBOUND)
    machine = models.ForeignKey(Machine, null=True, related_name="entries", **UNBOUND)
    approval = models.ForeignKey(Approval, null=True, related_name="entries", **UNBOUND)
    cache = models.ForeignKey(Cache, null=True, related_name="entries", **UNBOUND)
    # No constraint: operations are computed, and one that becomes part of another is deleted; its entries remain.
    maintenance = models.ForeignKey(Maintenance, null=True, related_name="entries", **UNBOUND)
    # Who: a person's name, a rule's (`rule: …`), `Azure`, `Drydock`, or a machine's.
    actor = models.TextField(blank=True, default="")
    # Through what: `page`, `api`, `slack`, `pagerduty`, `rule`, `command`, `agent`, `relay`.
    via = models.TextField(blank=True, default="")
    token_name = models.TextField(blank=True, default="", db_default="")
    text = models.TextField()
    # Why, in the actor's own words.
    why = models.TextField(blank=True, default="", db_default="")
    # The change by a person or a rule, by field; None where there was none.
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    # The request behind it; empty where there was none.
    request_id = models.TextField(blank=True, default="", db_default="")
    address = models.TextField(blank=True, default="", db_default="")
    data = models.JSONField(default=dict)

    objects = IndexScanRows.as_manager()

    class Meta:
        indexes = [
            Index(fields=["era", "xid", "id"], name="entry_place"),
            Index(fields=["-at", "-id"], name="entry_newest"),
            Index(fields=["event", "at", "id"], name="entry_by_event", condition=Q(event__isnull=False)),
            Index(
                fields=["availability_set", "-at", "-id"],
                name="entry_by_set",
                condition=Q(availability_set__isnull=False),
            ),
            Index(fields=["machine", "-at", "-id"], name="entry_by_machine", condition=Q(machine__isnull=False)),
            Index(fields=["cache", "-at", "-id"], name="entry_by_cache", condition=Q(cache__isnull=False)),
            # What overviews show: in a storm each of thousands of events is seen by twenty machines more.
            Index(fields=["-at", "-id"], name="entry_told", condition=~Q(kind=EntryKind.EVENT_SIGHTED.value)),
            # A query for rare entries, such as one kind, does not scan all others.
            Index(fields=["kind", "-at", "-id"], name="entry_by_kind"),
            # The steps of events and caches, without reports and notifications.
            Index(fields=["-at", "-id"], name="entry_of_milestones", condition=Q(kind__in=MILESTONES)),
            # What people and rules did: few lines among many.
            Index(fields=["actor", "-at", "-id"], name="entry_acts_by_actor", condition=Q(via__in=ACTING)),
            Index(fields=["-at", "-id"], name="entry_acts", condition=Q(via__in=ACTING)),
            Index(fields=["via", "-at", "-id"], name="entry_acts_by_via", condition=Q(via__in=ACTING)),
        ]


class Seal(Row):
    """A seal: one link of the hash chain over the timeline. It is append-only.

    It covers the `rows` entries after the previous seal, up to and including (`last_era`, `last_xid`, `last_id`).
    `hash` is the SHA-256 in hex of the previous hash and these entries, as `fleet.domain.timeline.Chain` computes it.
    """

    number = models.BigIntegerField(primary_key=True)
    sealed_at = models.DateTimeField()
    last_era = models.SmallIntegerField(default=FIRST_ERA, db_default=FIRST_ERA)
    last_xid = models.BigIntegerField()
    last_id = models.BigIntegerField()
    rows = models.BigIntegerField()
    previous_hash = models.TextField()
    hash = models.TextField()

    @property
    def place(self) -> Place:
        """(era, xid, id) of the last entry that the seal covers."""
        return (self.last_era, self.last_xid, self.last_id)


# Every column of an entry, with how its value becomes text.
IDS = ("event_id", "availability_set_id", "machine_id", "approval_id", "cache_id", "maintenance_id")
COLUMNS: dict[str, str] = {
    **dict.fromkeys(("era", "xid", "id"), "{}::text"),
    **dict.fromkeys(("at", "recorded_at"), "extract(epoch from {})::text"),
    "kind": "{}",
    **dict.fromkeys(IDS, "{}::text"),
    **dict.fromkeys(("actor", "via", "token_name", "text", "why"), "{}"),
    **dict.fromkeys(("before", "after"), "{}::text"),
    **dict.fromkeys(("request_id", "address"), "{}"),
    "data": "{}::text",
}
# Within SQL: the newest era, and whether a row can no longer be preceded by another. All rows of a past era are
# present: a new era begins only while no process writes.
NEWEST_ERA = f"(SELECT coalesce(max(era), {FIRST_ERA}) FROM fleet_entry)"
SETTLED = f"(era, xid) < ({NEWEST_ERA}, pg_snapshot_xmin(pg_current_snapshot())::text::bigint)"


def _selected(era: int) -> str:
    left_out = ("era",) if era == FIRST_ERA else ()
    return ", ".join(how.format(f'entry."{name}"') for name, how in COLUMNS.items() if name not in left_out)


@dataclass(frozen=True, slots=True)
class Numbering:
    """The newest era, the highest transaction number in its entries (0: none), and this server's next transaction
    number.
    """

    era: int
    newest: int
    next: int

    @property
    def missing(self) -> bool:
        """Whether entries have transaction numbers that this server has not reached: it was restored, without a new
        era.
        """
        return self.newest >= self.next


def numbering() -> Numbering:
    """Return the newest era and the transaction numbers of entries and server. Runs one query."""
    ((era, newest, following),) = query(
        f"""
        SELECT era.newest,
               coalesce((SELECT max(xid) FROM {Entry._meta.db_table} WHERE era = era.newest), 0),
               -- No snapshot speaks of the transaction that took it.
               greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
                        coalesce(pg_current_xact_id_if_assigned()::text::bigint + 1, 0))
        FROM (SELECT {NEWEST_ERA}) AS era (newest)
        """
    )
    return Numbering(int(era), int(newest), int(following))


@contextmanager
def lines_between(after: Place | None, until: Place) -> Iterator[Iterator[bytes]]:
    """Yield the entries after `after` (None: from the first) up to and including `until`, as the bytes that a seal
    hashes.

    The bytes are streamed in blocks.
    """
    place = "(entry.era, entry.xid, entry.id)"
    # A row without an era is in no seal.
    behind = f"entry.era >= {FIRST_ERA}" if after is None else "{} > ({:d}, {:d}, {:d})".format(place, *after)
    statement = (
        f"COPY (SELECT {_selected(until[0])} FROM {Entry._meta.db_table} AS entry"
        f" WHERE {behind} AND {place} <= ({until[0]:d}, {until[1]:d}, {until[2]:d}) ORDER BY {place}) TO STDOUT"
    )
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        yield (bytes(block) for block in copy)
