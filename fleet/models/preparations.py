"""How far each machine's hooks are for an event."""

from django.db import models

from fleet.models.events import ScheduledEvent
from fleet.models.machines import Machine


class Preparation(models.Model):
    """One machine's hooks for one event that names it; the newest word by the machine's own sequence.

    Outcomes are those of `wire.HookData`: `running`, `succeeded`, `failed`, `timed-out`, `nothing`; empty before
    anything was heard of the phase. `failed_hook` names the first hook of the phase that did not succeed.
    """

    event = models.ForeignKey(ScheduledEvent, on_delete=models.PROTECT, related_name="preparations")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="preparations")
    epoch = models.IntegerField()
    seq = models.BigIntegerField()
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
        constraints = [
            models.UniqueConstraint(fields=["event", "machine"], name="preparation_once"),
        ]

    def __str__(self) -> str:
        return f"{self.event_id} on {self.machine_id}"
