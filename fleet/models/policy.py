"""Rules that decide events automatically, no-approval windows, and the stop of all approvals."""

from datetime import datetime

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Index, Q, UniqueConstraint

from fleet.domain.approvals.guards import ACCEPT_LABELS, StopFacts
from fleet.domain.event_types import TYPES
from fleet.domain.policy.hours import WEEKDAYS
from fleet.domain.policy.rules import ACTION_LABELS, SOURCES, TYPE_NAME, StandingRule
from fleet.domain.policy.windows import Window
from fleet.domain.shapes import from_row
from fleet.models.fields import Line, ListOf, user_column, validate_time_zone
from fleet.models.rows import Row

PATTERN = "{}, with `*` and `?`, without case; empty: every one."


def seconds(label: str, help_text: str) -> "models.IntegerField[int | None, int | None]":
    """Return an optional model field for a limit in seconds."""
    return models.IntegerField(label, null=True, blank=True, validators=[MinValueValidator(0)], help_text=help_text)


class HoursAndPlace(Row):
    """Columns for weekly hours and for sets to which a rule or window applies. An empty value matches everything.

    Hours are local times in `time_zone` and may pass midnight.
    """

    weekdays = ListOf(
        each=models.IntegerField(validators=[MinValueValidator(0), MaxValueValidator(6)]),
        ticks=enumerate(WEEKDAYS),
        help_text="Numbers from 0 (Monday) to 6; empty: every day.",
    )
    from_time = models.TimeField(
        "from", null=True, blank=True, help_text="Local time, included, such as `22:00`; null: from midnight."
    )
    until_time = models.TimeField(
        "until", null=True, blank=True, help_text="Local time, not included; may pass midnight; null: until midnight."
    )
    time_zone = Line(
        blank=True, default="UTC", validators=[validate_time_zone], help_text="An IANA name such as `Europe/Berlin`."
    )
    set_pattern = Line("sets named", blank=True, default="", help_text=PATTERN.format("The name of a set"))
    service = Line(blank=True, default="", help_text=PATTERN.format("A service"))
    resource_group = Line(blank=True, default="", help_text=PATTERN.format("A resource group"))

    class Meta:
        abstract = True


class Policy(HoursAndPlace):
    """Common columns of rules and no-approval windows."""

    name = Line(help_text="What people call it; the name of a rule is unique.")
    reason = Line(max_length=2000, paragraph=True, help_text="Why it exists; it is shown with each decision.")
    author = user_column()
    created_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return str(self.name)


class Rule(Policy):
    """A rule that decides events automatically. The first matching one by `position` decides
    (`fleet.domain.policy.rules`).

    Limits of duration and notice are inclusive. A missing duration or -1 is unknown: it matches if the rule has no
    limit, or if `unknown_duration` is set. A deleted rule is retained, because its decisions refer to it.
    """

    position = models.IntegerField(
        default=0,
        validators=[MinValueValidator(1), MaxValueValidator(10_000)],
        help_text="Its place in the order; 1 is tried first.",
    )
    enabled = models.BooleanField(default=False, help_text="Whether it decides anything. A new rule is off.")
    action = Line("what it does", choices=ACTION_LABELS, help_text="What it does.")
    event_types = ListOf(
        "types",
        each=Line(max_length=100, validators=[RegexValidator(f"^{TYPE_NAME.pattern}$")]),
        ticks=[(name, name) for name in TYPES],
        help_text="Empty: every type that Drydock knows. Another type is approved by a rule only if it names it"
        " exactly, as Azure spells it.",
    )
    sources = ListOf(each=Line(choices=[(name, name) for name in SOURCES]), help_text="Empty: every source.")
    min_duration_seconds = seconds("at least, in seconds", "The shortest announced duration that matches.")
    max_duration_seconds = seconds("at most, in seconds", "The longest; an unknown one (-1) is never short.")
    unknown_duration = models.BooleanField(
        "an unknown duration matches, too",
        default=False,
        help_text="Where a limit is set: an unknown duration matches, too.",
    )
    min_notice_seconds = seconds("at least, in seconds", "The least time left until NotBefore.")
    max_notice_seconds = seconds(
        "at most, in seconds", "The most time left; an event without NotBefore does not match then."
    )
    accepts = ListOf("even if", each=Line(choices=ACCEPT_LABELS), help_text="Guards whose reason this rule gives.")
    changed_at = models.DateTimeField()
    expires_at = models.DateTimeField(
        "expires (UTC)", null=True, blank=True, help_text="From then on it decides nothing; null: never."
    )

    class Meta:
        indexes = [Index(fields=["position", "id"], name="rule_in_order", condition=Q(deleted_at__isnull=True))]


class NoApprovalWindow(Policy):
    """A time in which approvals need a reason: once (`starts_at` to `ends_at`), or every week."""

    starts_at = models.DateTimeField("once, from (UTC)", null=True, blank=True, help_text="Once: when it begins.")
    ends_at = models.DateTimeField("once, until (UTC)", null=True, blank=True, help_text="Once: when it ends.")


class Stop(Row):
    """A stop of all approvals: from `stopped_at` until an administrator lifts it, no order is sent to Azure.

    `stopped_by` and `lifted_by` are names as on the timeline. `lifted_at` is NULL while the stop is in force. At most
    one stop is in force.
    """

    stopped_at = models.DateTimeField()
    stopped_by = models.TextField()
    why = models.TextField()
    lifted_at = models.DateTimeField(null=True, blank=True)
    lifted_by = models.TextField(blank=True, default="")
    lifted_why = models.TextField(blank=True, default="")

    class Meta:
        constraints = [UniqueConstraint(fields=["lifted_at"], nulls_distinct=False, name="one_stop_at_a_time")]


def stop_in_force() -> StopFacts | None:
    """Return the stop of all approvals that is in force, or None. Runs one query; call it before each approval and
    order.
    """
    found = Stop.objects.filter(lifted_at__isnull=True).first()
    return None if found is None else StopFacts(by=found.stopped_by, at=found.stopped_at, why=found.why)


def rule_of(row: Rule) -> StandingRule:
    """Return a rule from its row."""
    return from_row(StandingRule, row, deleted=row.deleted_at is not None, rule_id=row.pk)


def rules_in_force(*, now: datetime) -> dict[int, Rule]:
    """Return the rules that may decide now, by row id, in their order. Runs one query."""
    lasting = Q(expires_at__isnull=True) | Q(expires_at__gt=now)
    rows = Rule.objects.filter(lasting, enabled=True, deleted_at__isnull=True).order_by("position", "pk")
    return {row.pk: row for row in rows}


def window_of(row: NoApprovalWindow) -> Window:
    """Return a no-approval window from its row."""
    return from_row(Window, row)
