"""Tables of approvals, claims, holds, orders, waves and signing keys."""

from django.conf import settings
from django.db import models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint

from fleet.domain.scheduling import AT_ONCE
from fleet.domain.states import LIVE_APPROVALS, OPEN_ORDERS, ApprovalState, OrderState
from fleet.domain.trace import Trace, trace_as_kept
from fleet.domain.waves import WaveState
from fleet.models.events import ScheduledEvent
from fleet.models.fields import user_column
from fleet.models.machines import Machine
from fleet.models.people import ApiToken
from fleet.models.policy import Rule
from fleet.models.rows import ChangeColumn, Row

# Conditions of constraints and indexes.
LIVE = Q(state__in=[state.value for state in LIVE_APPROVALS])
OPEN = Q(state__in=[state.value for state in OPEN_ORDERS])
NOT_ENDED = Q(ended_at__isnull=True)


class Wave(ChangeColumn):
    """Several events that are approved one after the other. The wave's approvals have the columns `wave` and `turn`.

    `state` is a `fleet.domain.waves.WaveState`. `reason` is one sentence about why the wave stopped.
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
            Index(fields=["next_check_at"], name="wave_by_next_check", condition=Q(state=WaveState.RUNNING.value))
        ]


# Decisions by people and rules: approvals, claims and holds.


class Approval(ChangeColumn):
    """Decision of a user or rule to start one event, and the progress of it.

    `via` is `page`, `api` or `rule`; `token_name` is the API token. `rule_wording` is the rule as it was when it
    decided. `when` is a `fleet.domain.approvals.conditions.When`: `due_at` is for `time` and `undo`, `wave` and `turn`
    for `turn`. `overrides` are the overridden guards (`code`, `sentence`, `reason`). `consented_*` is about the second
    person. `inferred`: the end was concluded, not reported by Azure. `reason` is a sentence about the end.
    """

    event = models.ForeignKey(ScheduledEvent, on_delete=models.PROTECT, related_name="approvals")
    state = models.TextField()
    decided_by = user_column()
    # Who answers for the service account that decided; a process of an earlier release leaves it empty.
    decided_for = user_column(db_index=False)
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
    # The values of `fleet.domain.approvals.conditions.SHOWN` at the decision; a process of an earlier release leaves it
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
    consented_by = user_column()
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
            UniqueConstraint(fields=["event"], condition=LIVE, name="one_live_approval_per_event"),
            CheckConstraint(
                condition=Q(state__in=[state.value for state in ApprovalState]), name="approval_state_known"
            ),
        ]
        indexes = [
            Index(fields=["state"], name="approval_live", condition=LIVE),
            Index(fields=["changed_at"], name="approval_by_change"),
            Index(fields=["-decided_at", "-id"], name="approval_newest"),
        ]

    @property
    def trace(self) -> Trace | None:
        """The request and trace by which all logs identify this approval; None if none was recorded."""
        return trace_as_kept(self.request_id, self.trace_id)


class EventMark(ChangeColumn):
    """Columns of claims and holds. An event has at most one open row of each."""

    via = models.TextField()
    token_name = models.TextField(blank=True, default="")
    at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True
        constraints = [UniqueConstraint(fields=["event"], condition=NOT_ENDED, name="one_open_%(class)s_per_event")]
        indexes = [Index(fields=["changed_at"], name="%(class)s_by_change")]


class Claim(EventMark):
    """A user's statement that they are handling an event.

    A claim ends when the user releases it, another user takes it over, or the event ends.
    """

    event = models.ForeignKey(ScheduledEvent, on_delete=models.PROTECT, related_name="claims")
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    comment = models.TextField(blank=True, default="")


class Hold(EventMark):
    """Decision of a user or rule to leave an event to Azure, with a reason. While it is open, no rule approves the
    event.
    """

    event = models.ForeignKey(ScheduledEvent, on_delete=models.PROTECT, related_name="holds")
    by = user_column()
    rule = models.ForeignKey(Rule, null=True, blank=True, on_delete=models.PROTECT, related_name="holds")
    rule_wording = models.TextField(blank=True, default="")
    reason = models.TextField()


# Orders on their way to a machine, and the keys that sign them.


class Order(ChangeColumn):
    """Order to one machine to approve an event at Azure. It belongs to an approval.

    `delivered_by` is how it was delivered: `celery` (task at the commit), `beat` (Celery's reconciliation), `ticker`
    (the gateway's reconciliation while Celery is unavailable), `look` (a gateway's query each second) or `report` (in
    an answer to reports).
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
            UniqueConstraint(fields=["approval"], condition=OPEN, name="one_open_order_per_approval"),
            CheckConstraint(condition=Q(state__in=[state.value for state in OrderState]), name="order_state_known"),
        ]
        indexes = [
            Index(fields=["changed_at"], name="order_by_change"),
            Index(fields=["machine"], name="order_open_by_machine", condition=OPEN),
        ]


class SigningKey(Row):
    """Ed25519 key pair that signs orders. `public_key` is base64; `private_key` is encrypted with SECRET_KEY.

    `key_id` is the start of the public key's SHA-256 in hex. `introduction` is the signature of the key `introduced_by`
    over the announcement of this key; both are empty for the first key. From `retires_at` the key signs no more;
    `retirement` is the signature of the key `retired_by` over that announcement.
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
