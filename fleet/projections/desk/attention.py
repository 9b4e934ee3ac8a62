"""Who is on an event, and who wants it to run by itself: claims and holds, and what still needs a decision."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, Value

from fleet.domain.events.types import ADVICE_TYPES
from fleet.domain.reason import Reason
from fleet.domain.shapes import like
from fleet.domain.states import LIVE_APPROVALS, ApprovalState, EventStatus
from fleet.models import Approval, Claim, Hold
from fleet.models.facts.events import decider, hold_reason, name_of
from fleet.projections.sight import seen

# A proposal needs somebody still: the second person.
DECIDED = tuple(state for state in LIVE_APPROVALS if state is not ApprovalState.PROPOSED)


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """ "I am on it." """

    by: str
    at: datetime
    comment: str


@dataclass(frozen=True, slots=True)
class HoldRow:
    """ "Do not approve, let it run." `by_rule`: a rule said so, and people may still decide."""

    by: Reason | str
    at: datetime
    reason: Reason | str
    by_rule: bool


@dataclass(frozen=True, slots=True)
class Attention:
    claim: ClaimRow | None = None
    hold: HoldRow | None = None


NOBODY = Attention()


def of_events(event_pks: Collection[int]) -> dict[int, Attention]:
    """The open claim and hold of each event that has one, by row id. One query."""
    text = Value("")
    open_ones: dict[str, Any] = {"event_id__in": list(event_pks), "ended_at__isnull": True}
    claims = (
        seen(Claim)
        .filter(**open_ones)
        .values_list("event_id", "by__username", text, "at", F("comment"), Value("claim"))
    )
    holds = (
        seen(Hold)
        .filter(**open_ones)
        .values_list("event_id", "by__username", "rule__name", "at", F("reason"), Value("hold"))
    )
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for event_pk, person, rule, at, said, kind in claims.union(holds, all=True) if event_pks else ():
        if kind == "claim":
            found[event_pk]["claim"] = ClaimRow(by=person, at=at, comment=said)
        else:
            by, reason = decider(person, rule), hold_reason(said)
            found[event_pk]["hold"] = HoldRow(by=by, at=at, reason=reason, by_rule=person is None)
    return {event_pk: Attention(**fields) for event_pk, fields in found.items()}


def needs_decision(*, now: datetime, until: datetime | None = None) -> Q:
    """Scheduled events before their NotBefore that nobody has decided, or that wait for a second person. What a person
    holds is decided: it shall run by itself. `until` leaves out those that lie behind it.
    """
    in_time = Q(not_before__gt=now) if until is None else Q(not_before__gt=now, not_before__lte=until)
    decided = Exists(seen(Approval).filter(event=OuterRef("pk"), state__in=[state.value for state in DECIDED]))
    proposed = Exists(seen(Approval).filter(event=OuterRef("event"), state=ApprovalState.PROPOSED.value))
    # Both conditions of a hold in one: so it is one join for all events, and not a look for each.
    held = Exists(seen(Hold).filter(~proposed, event=OuterRef("pk"), ended_at__isnull=True, by__isnull=False))
    open_still = Q(status=EventStatus.SCHEDULED.value) & (Q(not_before=None) | in_time)
    return open_still & ~advice() & ~decided & ~held


def advice() -> Q:
    """Events about which there is nothing to decide, because Azure starts nothing."""
    return Q(*(("event_type__iexact", name) for name in ADVICE_TYPES), _connector=Q.OR)


def proposed() -> Q:
    """Events that wait for a second person."""
    return Q(Exists(seen(Approval).filter(event=OuterRef("pk"), state=ApprovalState.PROPOSED.value)))


@dataclass(frozen=True, slots=True)
class ClaimTold:
    """A claim by itself; `ended_at` once it was given back."""

    event_id: str
    by: str
    at: datetime
    comment: str
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class HoldTold:
    """A hold by itself; `ended_at` once it was lifted."""

    event_id: str
    by: Reason | str
    at: datetime
    reason: Reason | str
    ended_at: datetime | None


def claim_told(row: Claim) -> ClaimTold:
    """Shape a claim."""
    return like(ClaimTold, row, event_id=row.event.event_id, by=row.by.get_username())


def standing_claim(*, event_id: str) -> ClaimTold | None:
    """The open claim of an event, by its EventId. One query."""
    rows = seen(Claim).filter(event__event_id=event_id.strip().upper(), ended_at__isnull=True)
    row = rows.select_related("event", "by").first()
    return claim_told(row) if row else None


def standing_hold(*, event_id: str) -> HoldTold | None:
    """The open hold of an event, by its EventId. One query."""
    rows = seen(Hold).filter(event__event_id=event_id.strip().upper(), ended_at__isnull=True)
    row = rows.select_related("event", "by", "rule").first()
    return hold_told(row) if row else None


def hold_told(row: Hold) -> HoldTold:
    """Shape a hold."""
    return like(HoldTold, row, event_id=row.event.event_id, by=name_of(row), reason=hold_reason(row.reason))
