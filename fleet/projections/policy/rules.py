"""Read models of rules, no-approval windows, and the stop of all approvals."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Unpack

from django.db.models import Count, F, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Greatest

from fleet.domain.policy.rules import Action, StandingRule, is_in_force, wording
from fleet.domain.policy.windows import Window, window_wording
from fleet.domain.reasons import Reason
from fleet.domain.shapes import InApi, from_row
from fleet.domain.states import ApprovalState
from fleet.domain.times import iso
from fleet.models import Approval, Hold, NoApprovalWindow, Rule, Stop
from fleet.models.facts.events import is_open_at
from fleet.models.policy import rule_of, window_of
from fleet.projections.pages import At, Page, Segment, read_list
from fleet.projections.visibility import visible


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow(StandingRule):
    """One rule with its wording and the number of its decisions. `author` is empty for a ready-made rule that no user
    has adopted yet.
    """

    id: int
    action: Action
    wording: Annotated[Reason, "The whole rule in one sentence, as it is kept with its decisions."]
    in_force: Annotated[bool, "Switched on and not expired."]
    expired: bool
    author: Annotated[str, "The author; empty for a predefined rule that no user has adopted."]
    created_at: datetime
    changed_at: datetime
    approvals: Annotated[int, "How many approvals it has decided."]
    holds: Annotated[int, "How many events it has left to Azure."]
    last_decided_at: datetime | None
    server_time: datetime

    @property
    def decisions(self) -> int:
        return self.approvals + self.holds

    @property
    def version(self) -> str:
        """Return the version of the rule in the format of the API. Forms send it back to detect changes in the
        meantime.
        """
        return iso(self.changed_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRow(Window):
    """One no-approval window, with the places in which it applies."""

    id: int
    wording: Annotated[Reason, "When and where it holds, in words."]
    open: Annotated[bool, "It holds now."]
    over: Annotated[bool, "Its end is past."]
    author: str
    created_at: datetime
    server_time: datetime


def _rows() -> QuerySet[Rule]:
    def of(model: type[Approval] | type[Hold], value: Count | Max) -> Subquery:
        rows = visible(model).filter(rule=OuterRef("pk")).order_by()
        return Subquery(rows.values("rule").annotate(value=value).values("value"))

    rows = visible(Rule).filter(deleted_at__isnull=True).select_related("author").order_by("position", "pk")
    return rows.annotate(
        approved=Coalesce(of(Approval, Count("pk")), 0),
        held=Coalesce(of(Hold, Count("pk")), 0),
        last_decided_at=Greatest(of(Approval, Max("decided_at")), of(Hold, Max("at"))),
    )


def _shaped(row: Rule, now: datetime) -> RuleRow:
    rule = rule_of(row)
    return from_row(
        RuleRow,
        row,
        wording=wording(rule),
        in_force=is_in_force(rule, now=now),
        expired=row.expires_at is not None and row.expires_at <= now,
        author=row.author.get_username() if row.author else "",
        approvals=row.approved,  # type: ignore[attr-defined]
        holds=row.held,  # type: ignore[attr-defined]
        server_time=now,
    )


def listing(*, now: datetime) -> tuple[RuleRow, ...]:
    """Return all rules in their order. One query."""
    return tuple(_shaped(row, now) for row in _rows())


def page(*, now: datetime, **at: Unpack[At]) -> Page[RuleRow]:
    """Return a page of rules in their order. One query."""
    return read_list(Segment(_rows(), "position"), **at).map(lambda rows: [_shaped(row, now) for row in rows])


def detail(*, rule_id: int, now: datetime) -> RuleRow | None:
    """Return one rule; None if it was deleted or never existed. One query."""
    row = _rows().filter(pk=rule_id).first()
    return _shaped(row, now) if row else None


def standing(*, rule_id: int) -> StandingRule | None:
    """Return one rule as the domain object that evaluates it; None if it does not exist. One query."""
    row = visible(Rule).filter(pk=rule_id, deleted_at__isnull=True).first()
    return rule_of(row) if row else None


def _windows() -> QuerySet[NoApprovalWindow]:
    return visible(NoApprovalWindow).filter(deleted_at__isnull=True).select_related("author")


def windows(*, now: datetime) -> tuple[WindowRow, ...]:
    """Return all no-approval windows, expired ones last. One query."""
    return tuple(sorted((_window(row, now) for row in _windows().order_by("pk")), key=lambda window: window.over))


def page_of_windows(*, now: datetime, **at: Unpack[At]) -> Page[WindowRow]:
    """Return a page of no-approval windows, expired ones last. Up to two queries."""
    rows = _windows()
    over = Q(ends_at__isnull=False, ends_at__lte=now)
    found = read_list(Segment(rows.exclude(over), "id"), Segment(rows.filter(over), "id"), **at)
    return found.map(lambda shown: [_window(row, now) for row in shown])


def window(*, window_id: int, now: datetime) -> WindowRow | None:
    """Return one no-approval window. One query."""
    row = _windows().filter(pk=window_id).first()
    return _window(row, now) if row else None


def _window(row: NoApprovalWindow, now: datetime) -> WindowRow:
    return from_row(
        WindowRow,
        row,
        wording=window_wording(window_of(row)),
        open=is_open_at(row, now=now),
        over=row.ends_at is not None and row.ends_at <= now,
        author=row.author.get_username() if row.author else "",
        server_time=now,
    )


# The stop of all approvals.

MOST = 20
UNASKED = (ApprovalState.PROPOSED, ApprovalState.WAITING, ApprovalState.GRANTED, ApprovalState.RELAYING)


@dataclass(frozen=True, slots=True)
class StopRow:
    """A stop of all approvals: who set it, when and why, and who lifted it. `lifted_at` is None while the stop is in
    force.
    """

    stopped_at: datetime
    stopped_by: str
    why: Annotated[str, "Why all approvals were stopped."]
    lifted_at: Annotated[datetime | None, "Null as long as it holds."]
    lifted_by: Annotated[str, "Empty as long as it holds."]
    lifted_why: str

    @property
    def version(self) -> str:
        """Return when the stop began, in the format of the API. The form that lifts the stop sends it back."""
        return iso(self.stopped_at)


@dataclass(frozen=True, slots=True)
class StopState:
    """The stop in force, the approvals that it holds back (without orders that agents already have), and earlier
    stops.
    """

    current: Annotated[StopRow | None, "The stop that holds now; null where approvals are possible."]
    pending: Annotated[int, "Approvals that Azure has not accepted: kept back while the stop holds."]
    past: Annotated[tuple[StopRow, ...], "The newest stops that were lifted."]

    @property
    def stopped(self) -> Annotated[bool, InApi.SHOWN]:
        return self.current is not None


def current() -> StopRow | None:
    """Return the stop of all approvals that is in force; None if there is none. One query."""
    found = visible(Stop).filter(lifted_at__isnull=True).first()
    return None if found is None else from_row(StopRow, found)


def state() -> StopState:
    """Return the state of the stop of all approvals. Three queries."""
    past = visible(Stop).filter(lifted_at__isnull=False).order_by(F("stopped_at").desc())[:MOST]
    pending = visible(Approval).filter(state__in=[one.value for one in UNASKED]).count()
    return StopState(current=current(), pending=pending, past=tuple(from_row(StopRow, row) for row in past))
