"""The timeline."""

from django.db import models
from django.db.models import Func
from django.db.models.functions import Cast, Now

from fleet.models.approvals import Approval
from fleet.models.caches import Cache, Maintenance
from fleet.models.events import ScheduledEvent
from fleet.models.machines import AvailabilitySet, Machine

# The number of the writing transaction: xid8 goes to bigint by way of text.
CURRENT_TRANSACTION = Cast(
    Cast(Func(function="pg_current_xact_id", output_field=models.TextField()), models.TextField()),
    models.BigIntegerField(),
)


class Entry(models.Model):
    """One line of a timeline. Append-only: the database refuses UPDATE and DELETE.

    `xid` is the writing transaction; streams go by (xid, id) below the snapshot's horizon, so that nothing is skipped.
    `at` is when it happened (corrected), `recorded_at` when it was written. `kind` stands in `fleet.domain.entries`.
    """

    xid = models.BigIntegerField(db_default=CURRENT_TRANSACTION, editable=False)
    at = models.DateTimeField()
    recorded_at = models.DateTimeField(db_default=Now())
    kind = models.TextField()
    event = models.ForeignKey(
        ScheduledEvent, null=True, blank=True, on_delete=models.DO_NOTHING, related_name="entries", db_index=False
    )
    availability_set = models.ForeignKey(
        AvailabilitySet, null=True, blank=True, on_delete=models.DO_NOTHING, related_name="entries", db_index=False
    )
    machine = models.ForeignKey(
        Machine, null=True, blank=True, on_delete=models.DO_NOTHING, related_name="entries", db_index=False
    )
    approval = models.ForeignKey(
        Approval, null=True, blank=True, on_delete=models.DO_NOTHING, related_name="entries", db_index=False
    )
    cache = models.ForeignKey(
        Cache, null=True, blank=True, on_delete=models.DO_NOTHING, related_name="entries", db_index=False
    )
    # No constraint: operations are computed, and one that turns out to be part of another goes; its entries stay.
    maintenance = models.ForeignKey(
        Maintenance,
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        related_name="entries",
        db_index=False,
        db_constraint=False,
    )
    # Who: a person's name, `Azure`, or a machine's; through what: `page`, `api`, `agent`, `relay`.
    actor = models.TextField(blank=True, default="")
    via = models.TextField(blank=True, default="")
    text = models.TextField()
    data = models.JSONField(default=dict)

    class Meta:
        indexes = [
            models.Index(fields=["xid", "id"], name="entry_stream"),
            models.Index(fields=["-at", "-id"], name="entry_newest"),
            models.Index(fields=["event", "at", "id"], name="entry_by_event", condition=models.Q(event__isnull=False)),
            models.Index(
                fields=["availability_set", "-at", "-id"],
                name="entry_by_set",
                condition=models.Q(availability_set__isnull=False),
            ),
            models.Index(
                fields=["machine", "-at", "-id"], name="entry_by_machine", condition=models.Q(machine__isnull=False)
            ),
            models.Index(
                fields=["cache", "-at", "-id"], name="entry_by_cache", condition=models.Q(cache__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return self.text
