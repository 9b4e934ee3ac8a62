"""Decisions and how far they got."""

from django.conf import settings
from django.db import models

from fleet.domain.states import LIVE_APPROVALS, OPEN_ORDERS, ApprovalState, OrderState
from fleet.models.events import ScheduledEvent
from fleet.models.machines import Machine
from fleet.models.rules import Rule
from fleet.models.waves import Wave


class Approval(models.Model):
    """A person's or a rule's decision to start one event, and how far it got.

    `via` is `page`, `api` or `rule`, with the token's name in `token_name`; a rule's decision keeps the rule and its
    `rule_wording` at that time. `when` is one of `fleet.domain.conditions.When`; `due_at` belongs to `time`, `wave` and
    `turn` to `turn`. `overrides` holds the guards that were overcome, each `{"code", "sentence", "reason"}`.
    `consented_*` is the second person. `inferred` says that its end was concluded, not answered. `reason` is one
    sentence about how it ended.
    """

    event = models.ForeignKey(ScheduledEvent, on_delete=models.PROTECT, related_name="approvals")
    state = models.TextField()
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    via = models.TextField()
    token_name = models.TextField(blank=True, default="")
    comment = models.TextField(blank=True, default="")
    event_version = models.IntegerField()
    rule = models.ForeignKey(Rule, null=True, blank=True, on_delete=models.PROTECT, related_name="approvals")
    rule_wording = models.TextField(blank=True, default="")
    when = models.TextField(default="now")
    due_at = models.DateTimeField(null=True, blank=True)
    wave = models.ForeignKey(Wave, null=True, blank=True, on_delete=models.PROTECT, related_name="approvals")
    turn = models.IntegerField(null=True, blank=True)
    overrides = models.JSONField(default=list, blank=True)
    # When somebody decided; `granted_at` is when it was to go to Azure, which may be later.
    decided_at = models.DateTimeField()
    consented_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    consented_at = models.DateTimeField(null=True, blank=True)
    consent_comment = models.TextField(blank=True, default="")
    granted_at = models.DateTimeField(null=True, blank=True)
    accepted_at = models.DateTimeField(null=True, blank=True)
    accepted_by = models.ForeignKey(Machine, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    # When it reached CONFIRMED, WITHDRAWN, REFUSED, LAPSED or VOID.
    closed_at = models.DateTimeField(null=True, blank=True)
    inferred = models.BooleanField(default=False)
    reason = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["event"],
                condition=models.Q(state__in=[state.value for state in LIVE_APPROVALS]),
                name="one_live_approval_per_event",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=[state.value for state in ApprovalState]), name="approval_state_known"
            ),
        ]
        indexes = [
            models.Index(
                fields=["state"],
                name="approval_live",
                condition=models.Q(state__in=[state.value for state in LIVE_APPROVALS]),
            ),
        ]

    def __str__(self) -> str:
        return f"approval {self.pk}"


class Order(models.Model):
    """An approval on its way to one machine.

    `delivered_by` names the path that brought it there: `celery` (the task on commit), `beat` (Celery's sweep),
    `ticker`
    (the gateway's, when Celery is gone), `look` (a gateway's look each second) or `report` (in an answer to reports).
    """

    id = models.UUIDField(primary_key=True)
    approval = models.ForeignKey(Approval, on_delete=models.PROTECT, related_name="orders")
    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="orders")
    state = models.TextField()
    # The EventId as this machine reported it: that spelling goes back to Azure.
    spelled = models.TextField()
    offered_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    delivered_at = models.DateTimeField(null=True, blank=True)
    delivered_by = models.TextField(blank=True, default="")
    answered_at = models.DateTimeField(null=True, blank=True)
    outcome = models.TextField(blank=True, default="")
    azure_status = models.IntegerField(null=True, blank=True)
    azure_body = models.TextField(blank=True, default="")
    reason = models.TextField(blank=True, default="")
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["approval"],
                condition=models.Q(state__in=[state.value for state in OPEN_ORDERS]),
                name="one_open_order_per_approval",
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=[state.value for state in OrderState]), name="order_state_known"
            ),
        ]
        indexes = [
            models.Index(
                fields=["machine"],
                name="order_open_by_machine",
                condition=models.Q(state__in=[state.value for state in OPEN_ORDERS]),
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)
