"""Drills: rehearsals with real agents. Azure is not involved."""

from django.conf import settings
from django.db import models
from django.db.models import Index, Q, UniqueConstraint

from fleet.domain.scheduling import AT_ONCE
from fleet.models.events import ScheduledEvent
from fleet.models.machines import Machine
from fleet.models.rows import ChangeColumn, Row


class Drill(ChangeColumn):
    """One drill of a set. `event` is a row with `drill` set, which has the rehearsed event's facts.

    `outcome` is a `fleet.domain.drills.Outcome`, empty while the drill runs; `reason` is the same as a sentence. A
    drill always ends at `ends_by` at the latest.
    """

    event = models.OneToOneField(ScheduledEvent, on_delete=models.PROTECT, related_name="rehearsed_as")
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    via = models.TextField()
    token_name = models.TextField(blank=True, default="")
    comment = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()
    ends_by = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    outcome = models.TextField(blank=True, default="")
    reason = models.TextField(blank=True, default="")
    # When time alone may change it; news of its event and its set is found by them.
    next_check_at = models.DateTimeField(default=AT_ONCE, db_default=AT_ONCE)

    class Meta:
        indexes = [
            Index(fields=["next_check_at"], name="drill_by_next_check", condition=Q(closed_at__isnull=True)),
            Index(fields=["-created_at", "-id"], name="drill_newest"),
        ]


class Rehearsal(Row):
    """One machine's part in a drill. The machine's reports about the rehearsed event are a sighting.

    `left_out`: why the machine does not take part, as the end of a sentence that begins with the name; empty if it
    does. `gone_reason`: the agent's reason for ending. (`epoch`, `seq`): the machine's newest report.
    """

    drill = models.ForeignKey(Drill, on_delete=models.PROTECT, related_name="rehearsals")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="rehearsals")
    left_out = models.TextField(blank=True, default="")
    gone_reason = models.TextField(blank=True, default="")
    epoch = models.IntegerField(default=0)
    seq = models.BigIntegerField(default=0)

    class Meta:
        constraints = [UniqueConstraint(fields=["drill", "machine"], name="rehearsal_once")]


class Instruction(Row):
    """One order of a drill to one machine, delivered like the order of an approval.

    `what` is `rehearse`, `start` or `cancel`; `data` are further fields. The order is offered to the machine until
    `closed_at`, when it was answered or no longer needed. `outcome` and `reason` are from the machine's receipt.
    """

    id = models.UUIDField(primary_key=True)
    rehearsal = models.ForeignKey(Rehearsal, on_delete=models.PROTECT, related_name="instructions")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="+", db_index=False)
    what = models.TextField()
    data = models.JSONField(default=dict)
    written_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    delivered_at = models.DateTimeField(null=True, blank=True)
    delivered_by = models.TextField(blank=True, default="")
    answered_at = models.DateTimeField(null=True, blank=True)
    outcome = models.TextField(blank=True, default="")
    reason = models.TextField(blank=True, default="")
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [UniqueConstraint(fields=["rehearsal", "what"], name="instruction_once")]
        indexes = [Index(fields=["machine"], name="instruction_waiting", condition=Q(closed_at__isnull=True))]
