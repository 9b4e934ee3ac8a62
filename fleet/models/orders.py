"""Orders on their way to a machine, and the keys that sign them."""

from django.db import models

from fleet.domain.states import OPEN_ORDERS, OrderState
from fleet.models.approvals import Approval
from fleet.models.changes import ChangeColumn
from fleet.models.machines import Machine


class Order(ChangeColumn):
    """An approval on its way to one machine.

    `delivered_by` names the path that brought it there: `celery` (the task on commit), `beat` (Celery's reconciling),
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
    # How often its machine asked Azure, and what Azure's Retry-After said; None where an agent does not tell.
    posts = models.IntegerField(null=True, blank=True)
    retry_after_seconds = models.FloatField(null=True, blank=True)
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
            models.Index(fields=["changed_at"], name="order_by_change"),
            models.Index(
                fields=["machine"],
                name="order_open_by_machine",
                condition=models.Q(state__in=[state.value for state in OPEN_ORDERS]),
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class SigningKey(models.Model):
    """An Ed25519 key. `public_key` is base64; `private_key` its private half, encrypted with the SECRET_KEY.

    `key_id` is the start of the SHA-256 (hex) of the public half. `introduced_by` is the key that signed the news of
    this one, with `introduction` as its signature; both are empty for the first. From `retires_at` on it signs no more:
    `retirement` is the signature of `retired_by` over that news.
    """

    key_id = models.TextField(unique=True)
    public_key = models.TextField()
    private_key = models.TextField()
    made_at = models.DateTimeField()
    introduced_by = models.TextField(blank=True, default="")
    introduction = models.TextField(blank=True, default="")
    retires_at = models.DateTimeField(null=True, blank=True)
    retired_by = models.TextField(blank=True, default="")
    retirement = models.TextField(blank=True, default="")

    def __str__(self) -> str:
        return self.key_id
