"""What Azure said, as received."""

from django.db import models

from fleet.models.machines import Machine


class DocumentBody(models.Model):
    """One body of the metadata service, kept once, by the SHA-256 of its bytes (lower case hex)."""

    hash = models.TextField(primary_key=True)
    body = models.BinaryField()
    readable = models.BooleanField()
    # What was odd about it, in words.
    flags = models.JSONField(default=list)
    first_received_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.hash


class Observation(models.Model):
    """One numbered report of a machine. Documents and reminders point to their body; other kinds keep their `data`.

    `at` is the machine's time corrected by its measured offset, `machine_at` as it was sent.
    """

    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="observations", db_index=False)
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
        db_constraint=False,
        related_name="observations",
    )
    incarnation = models.BigIntegerField(null=True, blank=True)
    data = models.JSONField(null=True, blank=True)
    # Why it could not be understood, in words; empty when it was.
    flag = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["machine", "epoch", "seq"], name="report_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.epoch}.{self.seq} of {self.machine_id}"
