"""Standing decisions: rules, and hours in which nothing is approved without a reason."""

from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Q

from fleet.domain.approvals.guards import StopFacts
from fleet.domain.policy.rules import StandingRule
from fleet.domain.policy.windows import Window
from fleet.domain.shapes import like


class Rule(models.Model):
    """A standing decision. The first in order of `position` that matches decides (`fleet.domain.policy.rules`).

    Empty lists and texts match everything. Durations and notices are seconds, both ends included. A duration of -1 or
    none is unknown: it matches where no limit is set, or where `unknown_duration` says so. `weekdays` are 0 (Monday) to
    6; hours are local times of `time_zone`, `from_time` included, `until_time` not, and may pass midnight. `accepts`
    names the guards whose reason this rule gives. A deleted rule stays for the decisions that name it.
    """

    position = models.IntegerField(default=0)
    name = models.TextField()
    # Why it exists, for the people who read its decisions.
    reason = models.TextField()
    enabled = models.BooleanField(default=False)
    # One of `fleet.domain.policy.rules.Action`.
    action = models.TextField()
    event_types = models.JSONField(default=list, blank=True)
    sources = models.JSONField(default=list, blank=True)
    min_duration_seconds = models.IntegerField(null=True, blank=True)
    max_duration_seconds = models.IntegerField(null=True, blank=True)
    unknown_duration = models.BooleanField(default=False)
    # A pattern with * and ?, without case.
    set_pattern = models.TextField(blank=True, default="")
    service = models.TextField(blank=True, default="")
    resource_group = models.TextField(blank=True, default="")
    weekdays = models.JSONField(default=list, blank=True)
    from_time = models.TimeField(null=True, blank=True)
    until_time = models.TimeField(null=True, blank=True)
    time_zone = models.TextField(default="UTC")
    min_notice_seconds = models.IntegerField(null=True, blank=True)
    max_notice_seconds = models.IntegerField(null=True, blank=True)
    accepts = models.JSONField(default=list, blank=True)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["position", "id"], name="rule_in_order", condition=models.Q(deleted_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return self.name


class NoApprovalWindow(models.Model):
    """Hours in which nothing is approved without a reason.

    Either once (`starts_at` to `ends_at`) or every week (`weekdays`, 0 is Monday, and local hours of `time_zone`, which
    may pass midnight). Empty texts match every set.
    """

    name = models.TextField()
    reason = models.TextField()
    starts_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True)
    weekdays = models.JSONField(default=list, blank=True)
    from_time = models.TimeField(null=True, blank=True)
    until_time = models.TimeField(null=True, blank=True)
    time_zone = models.TextField(default="UTC")
    set_pattern = models.TextField(blank=True, default="")
    service = models.TextField(blank=True, default="")
    resource_group = models.TextField(blank=True, default="")
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    created_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class Stop(models.Model):
    """From `stopped_at` on nothing is approved and no order goes to Azure, until an admin has lifted it.

    `stopped_by` and `lifted_by` are names as the timeline has them; `lifted_at` is NULL as long as it holds, which one
    row at most does.
    """

    stopped_at = models.DateTimeField()
    stopped_by = models.TextField()
    why = models.TextField()
    lifted_at = models.DateTimeField(null=True, blank=True)
    lifted_by = models.TextField(blank=True, default="")
    lifted_why = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["lifted_at"], nulls_distinct=False, name="one_stop_at_a_time"),
        ]

    def __str__(self) -> str:
        return f"{self.stopped_by}: {self.why}"


def stop_in_force() -> StopFacts | None:
    """Who has stopped all approvals, while that holds. Asked of Postgres wherever something would be set off."""
    found = Stop.objects.filter(lifted_at__isnull=True).first()
    return None if found is None else StopFacts(by=found.stopped_by, at=found.stopped_at, why=found.why)


def rule_of(row: Rule) -> StandingRule:
    """One rule as it stands."""
    return like(StandingRule, row, deleted=row.deleted_at is not None, rule_id=row.pk)


def rules_in_force(*, now: datetime) -> dict[int, Rule]:
    """The rules that may decide now, in their order, by their row id. One query."""
    lasting = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
    rows = Rule.objects.filter(lasting, enabled=True, deleted_at__isnull=True).order_by("position", "pk")
    return {row.pk: row for row in rows}


def window_of(row: NoApprovalWindow) -> Window:
    """One no-approval window as it was said."""
    return like(Window, row)
