"""Data as received from agents: documents, reports, presence, progress of hooks."""

from django.db import models
from django.db.models import Index, Q, UniqueConstraint

from fleet.models.events import ScheduledEvent
from fleet.models.machines import Machine
from fleet.models.rows import ChangeColumn, Row


class DocumentBody(Row):
    """One distinct body of a metadata document, identified by the SHA-256 of the bytes in lower-case hex.

    `number` determines the partition; the database assigns it (0 before partitions existed). A hash is unique in each
    partition. Two processes may store the same body in two partitions, which is harmless.
    """

    hash = models.TextField(primary_key=True)
    number = models.BigIntegerField(db_default=0, editable=False)
    body = models.BinaryField()
    readable = models.BooleanField()
    # Its faults, in words.
    flags = models.JSONField(default=list)
    first_received_at = models.DateTimeField()

    class Meta:
        # The first partition has the table's former name: 0.1.0 writes there while it runs.
        db_table = "fleet_documentbody_all"
        indexes = [
            Index(fields=["number"], name="body_by_number_all"),
            Index(fields=["first_received_at"], name="body_by_age_all"),
        ]


class Observation(Row):
    """One numbered report of a machine. Documents and reminders refer to a body; other kinds have `data`.

    `at` is the machine's time corrected by clock offset, `machine_at` the time as sent. (machine, epoch, seq) is unique
    in each partition, and in the whole table because only reports after the spool's acknowledged position are new.
    """

    machine = models.ForeignKey(
        Machine, on_delete=models.PROTECT, related_name="observations", db_index=False, db_constraint=False
    )
    epoch = models.IntegerField()
    seq = models.BigIntegerField()
    kind = models.TextField()
    at = models.DateTimeField()
    machine_at = models.DateTimeField()
    received_at = models.DateTimeField()
    # No constraint in the database: the body is written in the same transaction, and the check costs a lookup a row.
    document = models.ForeignKey(
        DocumentBody,
        null=True,
        blank=True,
        on_delete=models.DO_NOTHING,
        db_index=False,
        db_constraint=False,
        related_name="observations",
    )
    incarnation = models.BigIntegerField(null=True, blank=True)
    data = models.JSONField(null=True, blank=True)
    # Why it could not be understood, in words; empty when it was.
    flag = models.TextField(blank=True, default="")

    class Meta:
        # As with bodies.
        db_table = "fleet_observation_all"


class PresenceRow(ChangeColumn):
    """The frequently updated row of a machine: last contact, last successful poll of Azure, and clock.

    `clock_offset` is by how many seconds the machine's clock is ahead of the backend's.
    """

    machine = models.OneToOneField(Machine, primary_key=True, on_delete=models.PROTECT, related_name="presence")
    last_heard_at = models.DateTimeField(null=True, blank=True)
    last_poll_at = models.DateTimeField(null=True, blank=True)
    clock_offset = models.FloatField(null=True, blank=True)
    # Its presence at the last reconciliation, as a number: a different one means that it changed. The times have no
    # index, or every contact would have to keep one.
    seen = models.SmallIntegerField(null=True, blank=True)
    # Its agent's handling of signatures of orders (`fleet.domain.orders.series`); empty until reported.
    signatures = models.TextField(blank=True, default="", db_default="")
    # As its agent stated last (`drydock_agent.wire.metadata_text`), empty until then: the problem of its last poll, and
    # the api-versions in use for scheduled events and for instance metadata.
    poll_problem = models.TextField(blank=True, default="", db_default="")
    events_version = models.TextField(blank=True, default="", db_default="")
    instance_version = models.TextField(blank=True, default="", db_default="")
    # From here on gaps in its polls are recorded (`PollGap`); before that only its reports show when it polled.
    watched_from = models.DateTimeField(null=True, blank=True)
    # Since when it reminds of a document that is not here; NULL again with its next document.
    lacking_since = models.DateTimeField(null=True, blank=True)
    # Since when its newest document is unreadable: its polls since then do not count.
    unreadable_since = models.DateTimeField(null=True, blank=True)
    # Bytes of what could not be understood in the hour that began then (`fleet.domain.intake`).
    odd_bytes = models.BigIntegerField(default=0, db_default=0)
    odd_since = models.DateTimeField(null=True, blank=True)
    # Counted against its bounds in the hour that began then (`fleet.domain.intake`).
    bounded_since = models.DateTimeField(null=True, blank=True)
    new_caches = models.IntegerField(default=0, db_default=0)
    new_statements = models.IntegerField(default=0, db_default=0)
    quarantined = models.IntegerField(default=0, db_default=0)

    class Meta:
        indexes = [Index(fields=["bounded_since"], name="presence_quarantined", condition=Q(quarantined__gt=0))]


class PollGap(Row):
    """A period longer than `fleet.domain.intake.LEAP` without a successful poll of a machine.

    A trigger inserts it when the machine's last poll time moves that far. Reports that arrive later may contain polls
    in the period.
    """

    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="poll_gaps", db_index=False)
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField()

    class Meta:
        indexes = [Index(fields=["machine", "-ends_at"], name="poll_gap_newest")]


class Spool(Row):
    """One spool of a machine: its number (epoch), and the last report in it that Drydock has acknowledged."""

    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="spools")
    spool = models.TextField()
    epoch = models.IntegerField()
    acknowledged = models.BigIntegerField(default=0)
    # The same before its last delivery: the result of a statement that locks the row and moves the position.
    acknowledged_before = models.BigIntegerField(default=0, db_default=0)
    first_seen_at = models.DateTimeField()
    # The newest spool of its machine at the last entry that this older one was used after it.
    reported_epoch = models.IntegerField(default=0, db_default=0)

    class Meta:
        constraints = [
            UniqueConstraint(fields=["machine", "spool"], name="spool_once_per_machine"),
            UniqueConstraint(fields=["machine", "epoch"], name="epoch_once_per_machine"),
        ]


class WaitingReport(Row):
    """A stored report of which a part is not processed yet, because another transaction locked the row it is about.

    `what` is a `fleet.domain.scheduling.QuarantineKind`; `about` is an EventId, a cache's host name or a machine's row
    id. There are no foreign keys, because they would lock exactly those rows.
    """

    what = models.TextField()
    about = models.TextField()
    machine_id = models.BigIntegerField()
    epoch = models.IntegerField()
    seq = models.BigIntegerField()
    since = models.DateTimeField()

    class Meta:
        constraints = [
            UniqueConstraint(fields=["what", "about", "machine_id", "epoch", "seq"], name="waiting_report_once")
        ]


class LatestDocument(Row):
    """The newest readable document of a machine, by epoch and sequence number. `at` is when it was read, corrected by
    clock offset.
    """

    machine = models.OneToOneField(Machine, primary_key=True, on_delete=models.PROTECT, related_name="latest_document")
    epoch = models.IntegerField()
    seq = models.BigIntegerField()
    document_hash = models.TextField()
    incarnation = models.BigIntegerField(null=True, blank=True)
    at = models.DateTimeField()

    class Meta:
        # The name that it had first: processes of the release before read it while a new one is rolled out.
        db_table = "fleet_head"


class Preparation(Row):
    """Progress of one machine's hooks for one event, from the machine's newest report.

    Outcomes are those of `wire.HookData`: `running`, `succeeded`, `failed`, `timed-out`, `nothing`; empty before any
    report about the phase. `…_failed_hook` is the first hook of the phase that did not succeed.
    """

    event = models.ForeignKey(ScheduledEvent, on_delete=models.PROTECT, related_name="preparations")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="preparations")
    epoch = models.IntegerField()
    seq = models.BigIntegerField()
    # When its hooks will begin, as its agent planned last; none without a plan.
    prepare_planned_at = models.DateTimeField(null=True, blank=True)
    prepare_outcome = models.TextField(blank=True, default="")
    prepare_began_at = models.DateTimeField(null=True, blank=True)
    prepare_ended_at = models.DateTimeField(null=True, blank=True)
    prepare_failed_hook = models.TextField(blank=True, default="")
    # Prepare began when the event had started already.
    late = models.BooleanField(default=False)
    recover_outcome = models.TextField(blank=True, default="")
    recover_began_at = models.DateTimeField(null=True, blank=True)
    recover_ended_at = models.DateTimeField(null=True, blank=True)
    recover_failed_hook = models.TextField(blank=True, default="")

    class Meta:
        constraints = [UniqueConstraint(fields=["event", "machine"], name="preparation_once")]
