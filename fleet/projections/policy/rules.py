"""Rules and no-approval windows, as people see them."""

from dataclasses import dataclass
from datetime import datetime, time

from django.db.models import Count, Max, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce, Greatest

from fleet.domain.policy.rules import Action, StandingRule, is_in_force, wording
from fleet.domain.policy.windows import window_wording
from fleet.domain.reason import Reason
from fleet.models import Approval, Hold, NoApprovalWindow, Rule
from fleet.models.facts.events import is_open_at
from fleet.models.policy import rule_of, window_of


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule with its wording and what it has decided so far. `author` is empty while nobody has taken it on."""

    id: int
    position: int
    name: str
    wording: Reason
    reason: str
    enabled: bool
    in_force: bool
    expired: bool
    action: Action
    event_types: tuple[str, ...]
    sources: tuple[str, ...]
    min_duration_seconds: int | None
    max_duration_seconds: int | None
    unknown_duration: bool
    set_pattern: str
    service: str
    resource_group: str
    weekdays: tuple[int, ...]
    from_time: time | None
    until_time: time | None
    time_zone: str
    min_notice_seconds: int | None
    max_notice_seconds: int | None
    accepts: tuple[str, ...]
    author: str
    created_at: datetime
    changed_at: datetime
    expires_at: datetime | None
    approvals: int
    holds: int
    last_decided_at: datetime | None
    server_time: datetime

    @property
    def decisions(self) -> int:
        return self.approvals + self.holds


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One no-approval window. `open`: it holds now, in the places that it names."""

    id: int
    name: str
    wording: Reason
    reason: str
    open: bool
    over: bool
    starts_at: datetime | None
    ends_at: datetime | None
    weekdays: tuple[int, ...]
    from_time: time | None
    until_time: time | None
    time_zone: str
    set_pattern: str
    service: str
    resource_group: str
    author: str
    created_at: datetime
    server_time: datetime


def _rows() -> QuerySet[Rule]:
    def of(model: type[Approval] | type[Hold], value: Count | Max) -> Subquery:
        rows = model._default_manager.filter(rule=OuterRef("pk")).order_by()
        return Subquery(rows.values("rule").annotate(value=value).values("value"))

    return (
        Rule.objects.filter(deleted_at__isnull=True)
        .select_related("author")
        .annotate(
            approved=Coalesce(of(Approval, Count("pk")), 0),
            held=Coalesce(of(Hold, Count("pk")), 0),
            last=Greatest(of(Approval, Max("decided_at")), of(Hold, Max("at"))),
        )
        .order_by("position", "pk")
    )


def _shaped(row: Rule, now: datetime) -> RuleRow:
    rule = rule_of(row)
    return RuleRow(
        id=row.pk,
        position=row.position,
        name=row.name,
        wording=wording(rule),
        reason=row.reason,
        enabled=row.enabled,
        in_force=is_in_force(rule, now=now),
        expired=row.expires_at is not None and row.expires_at <= now,
        action=Action(row.action),
        event_types=rule.event_types,
        sources=rule.sources,
        min_duration_seconds=row.min_duration_seconds,
        max_duration_seconds=row.max_duration_seconds,
        unknown_duration=row.unknown_duration,
        set_pattern=row.set_pattern,
        service=row.service,
        resource_group=row.resource_group,
        weekdays=rule.weekdays,
        from_time=row.from_time,
        until_time=row.until_time,
        time_zone=row.time_zone,
        min_notice_seconds=row.min_notice_seconds,
        max_notice_seconds=row.max_notice_seconds,
        accepts=rule.accepts,
        author=row.author.get_username() if row.author else "",
        created_at=row.created_at,
        changed_at=row.changed_at,
        expires_at=row.expires_at,
        approvals=row.approved,  # type: ignore[attr-defined]
        holds=row.held,  # type: ignore[attr-defined]
        last_decided_at=row.last,  # type: ignore[attr-defined]
        server_time=now,
    )


def listing(*, now: datetime) -> tuple[RuleRow, ...]:
    """All rules in their order. One query."""
    return tuple(_shaped(row, now) for row in _rows())


def detail(*, rule_id: int, now: datetime) -> RuleRow | None:
    """One rule; None for one that is deleted or was never there. One query."""
    row = _rows().filter(pk=rule_id).first()
    return _shaped(row, now) if row else None


def standing(*, rule_id: int) -> StandingRule | None:
    """One rule as the domain judges it. One query."""
    row = Rule.objects.filter(pk=rule_id, deleted_at__isnull=True).first()
    return rule_of(row) if row else None


def windows(*, now: datetime) -> tuple[WindowRow, ...]:
    """All no-approval windows, those that are over last. One query."""
    rows = NoApprovalWindow.objects.filter(deleted_at__isnull=True).select_related("author").order_by("pk")
    shaped = [_window(row, now) for row in rows]
    return tuple(sorted(shaped, key=lambda window: window.over))


def window(*, window_id: int, now: datetime) -> WindowRow | None:
    """One no-approval window. One query."""
    rows = NoApprovalWindow.objects.filter(pk=window_id, deleted_at__isnull=True).select_related("author")
    row = rows.first()
    return _window(row, now) if row else None


def _window(row: NoApprovalWindow, now: datetime) -> WindowRow:
    return WindowRow(
        id=row.pk,
        name=row.name,
        wording=window_wording(window_of(row)),
        reason=row.reason,
        open=is_open_at(row, now=now),
        over=row.ends_at is not None and row.ends_at <= now,
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        weekdays=tuple(row.weekdays),
        from_time=row.from_time,
        until_time=row.until_time,
        time_zone=row.time_zone,
        set_pattern=row.set_pattern,
        service=row.service,
        resource_group=row.resource_group,
        author=row.author.get_username() if row.author else "",
        created_at=row.created_at,
        server_time=now,
    )
