"""Approvals, claims, holds, orders, waves and signing keys."""

from django.conf import settings
from django.db import models

from fleet.domain.scheduling import AT_ONCE
from fleet.domain.states import LIVE_APPROVALS, OPEN_ORDERS, ApprovalState, OrderState
from fleet.domain.trace import Trace, trace_as_kept
from fleet.domain.waves import WaveState
from fleet.models.events import ScheduledEvent
from fleet.models.index_scan import ChangeColumn
from fleet.models.machines import Machine
from fleet.models.people import ApiToken
from fleet.models.policy import Rule

# Conditions of constraints and indexes.
LIVE = models.Q(state__in=[state.value for state in LIVE_APPROVALS])
OPEN = models.Q(state__in=[state.value for state in OPEN_ORDERS])
NOT_ENDED = models.Q(ended_at__isnull=True)


class Wave(ChangeColumn):
    """Several events approved one after the other; its approvals carry `wave` and `turn`.

    `state` is one of `fleet.domain.waves.WaveState`; `reason` states in one sentence why it stopped.
    """

    service = models.TextField(blank=True, default="")
    state = models.TextField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    via = models.TextField()
    token_name = models.TextField(blank=True, default="")
    comment = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    reason = models.TextField(blank=True, default="")
    # When time alone may change it; news of its events is found by them.
    next_check_at = models.DateTimeField(default=AT_ONCE, db_default=AT_ONCE)

    class Meta:
        indexes = [
            models.Index(
                fields=["next_check_at"], name="wave_by_next_check", condition=models.Q(state=WaveState.RUNNING.value)
            ),
        ]

    def __str__(self) -> str:
        return f"wave {self.pk}"


# Decisions by people and rules: approvals, claims and holds.


class Approval(ChangeColumn):
    """A person's or a rule's decision to start one event, with its progress.

    `via` is `page`, `api` or `rule`, with the token's name in `token_name`; a rule's decision keeps the rule and its
    `rule_wording` at that time. `when` is one of `fleet.domain.approvals.conditions.When`; `due_at` belongs to `time`
    and `undo`, `wave` and `turn` to `turn`. `overrides` are the overridden guards, each `{"code", "sentence",
    "reason"}`. `consented_*` is the second person. `inferred`: its end was concluded, not answered. `reason` is one
    sentence about how it ended.
    """

    event = models.ForeignKey(ScheduledEvent, on_delete=models.PROTECT, related_name="approvals")
    state = models.TextField()
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    # Who answers for the service account that decided; a process of an earlier release leaves it empty.
    decided_for = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    via = models.TextField()
    token_name = models.TextField(blank=True, default="")
    # The tokens by which the two persons decided; a process of an earlier release leaves them empty.
    token = models.ForeignKey(
        ApiToken, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    consent_token = models.ForeignKey(
        ApiToken, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", db_index=False
    )
    comment = models.TextField(blank=True, default="")
    event_version = models.IntegerField()
    # The values of `fleet.domain.approvals.recheck.SHOWN` at the decision; a process of an earlier release leaves it
    # empty.
    decided_on = models.JSONField(default=dict, blank=True, db_default={})
    rule = models.ForeignKey(Rule, null=True, blank=True, on_delete=models.PROTECT, related_name="approvals")
    rule_wording = models.TextField(blank=True, default="")
    when = models.TextField(default="now")
    due_at = models.DateTimeField(null=True, blank=True)
    wave = models.ForeignKey(Wave, null=True, blank=True, on_delete=models.PROTECT, related_name="approvals")
    turn = models.IntegerField(null=True, blank=True)
    overrides = models.JSONField(default=list, blank=True)
    # When the decision was made; `granted_at` is when it was to be sent to Azure, which may be later.
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
    # It ended as WITHDRAWN because the decision no longer held, not because a person withdrew it.
    returned = models.BooleanField(default=False, db_default=False)
    # Its trace in every log: the id of the deciding request, or one for a rule's decision, and the trace of the
    # request. Empty before 0.2.0.
    request_id = models.TextField(blank=True, default="", db_default="")
    trace_id = models.TextField(blank=True, default="", db_default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["event"], condition=LIVE, name="one_live_approval_per_event"),
            models.CheckConstraint(
                condition=models.Q(state__in=[state.value for state in ApprovalState]), name="approval_state_known"
            ),
        ]
        indexes = [
            models.Index(fields=["state"], name="approval_live", condition=LIVE),
            models.Index(fields=["changed_at"], name="approval_by_change"),
            models.Index(fields=["-decided_at", "-id"], name="approval_newest"),
        ]

    def __str__(self) -> str:
        return f"approval {self.pk}"

    @property
    def trace(self) -> Trace | None:
        """The trace by which every log finds it; None where none was recorded."""
        return trace_as_kept(self.request_id, self.trace_id)


class Claim(ChangeColumn):
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
            models.UniqueConstraint(fields=["event"], condition=NOT_ENDED, name="one_open_claim_per_event"),
        ]
        indexes = [models.Index(fields=["changed_at"], name="claim_by_change")]

    def __str__(self) -> str:
        return f"claim {self.pk}"


class Hold(ChangeColumn):
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
            models.UniqueConstraint(fields=["event"], condition=NOT_ENDED, name="one_open_hold_per_event"),
        ]
        indexes = [models.Index(fields=["changed_at"], name="hold_by_change")]

    def __str__(self) -> str:
        return f"hold {self.pk}"


# Orders on their way to a machine, and the keys that sign them.


class Order(ChangeColumn):
    """An approval on its way to one machine.

    `delivered_by` names the path of delivery: `celery` (the task on commit), `beat` (Celery's reconciliation), `ticker`
    (the gateway's, when Celery is down), `look` (a gateway's query each second) or `report` (in an answer to reports).
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
    # How often its machine asked Azure, and Azure's Retry-After; None where an agent does not report it.
    posts = models.IntegerField(null=True, blank=True)
    retry_after_seconds = models.FloatField(null=True, blank=True)
    reason = models.TextField(blank=True, default="")
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["approval"], condition=OPEN, name="one_open_order_per_approval"),
            models.CheckConstraint(
                condition=models.Q(state__in=[state.value for state in OrderState]), name="order_state_known"
            ),
        ]
        indexes = [
            models.Index(fields=["changed_at"], name="order_by_change"),
            models.Index(fields=["machine"], name="order_open_by_machine", condition=OPEN),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class SigningKey(models.Model):
    """An Ed25519 key. `public_key` is base64; `private_key` its private half, encrypted with the SECRET_KEY.

    `key_id` is the start of the SHA-256 (hex) of the public half. `introduced_by` is the key that signed the news of
    this one, with `introduction` as its signature; both are empty for the first. From `retires_at` on it does not sign:
    `retirement` is the signature of `retired_by` over that notice.
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
