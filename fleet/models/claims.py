"""Local words about an event that never go to Azure: claims and holds."""

from django.conf import settings
from django.db import models

from fleet.models.events import ScheduledEvent
from fleet.models.rules import Rule


class Claim(models.Model):
    """ "I am on it." One open claim an event; it ends when given back, taken over, or with the event."""

    event = models.ForeignKey(ScheduledEvent, on_delete=models.PROTECT, related_name="claims")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    via = models.TextField()
    token_name = models.TextField(blank=True, default="")
    comment = models.TextField(blank=True, default="")
    at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["event"], condition=models.Q(ended_at__isnull=True), name="one_open_claim_per_event"
            ),
        ]

    def __str__(self) -> str:
        return f"claim {self.pk}"


class Hold(models.Model):
    """ "Do not approve, let it run." By a person or a rule, with a reason; it keeps rules away. One open an event."""

    event = models.ForeignKey(ScheduledEvent, on_delete=models.PROTECT, related_name="holds")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    rule = models.ForeignKey(Rule, null=True, blank=True, on_delete=models.PROTECT, related_name="holds")
    rule_wording = models.TextField(blank=True, default="")
    via = models.TextField()
    token_name = models.TextField(blank=True, default="")
    reason = models.TextField()
    at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["event"], condition=models.Q(ended_at__isnull=True), name="one_open_hold_per_event"
            ),
        ]

    def __str__(self) -> str:
        return f"hold {self.pk}"
