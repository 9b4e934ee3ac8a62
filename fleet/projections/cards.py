"""The decision card: all facts needed for a decision about an event, the same in every view."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from fleet.domain.approvals.conditions import UndoOffer, undo_offer, undo_until
from fleet.domain.approvals.guards import EventFacts, Guard, guards
from fleet.domain.event_types import is_advice
from fleet.domain.reasons import Reason
from fleet.domain.recommendation import Experience, Recommendation, as_rule, decide_by, recommend
from fleet.models.facts.decisions import experiences
from fleet.models.facts.events import order_timeouts
from fleet.projections.events.rows import BlastRadius, EventRow


@dataclass(frozen=True, slots=True)
class DecisionCard:
    """One decision card.

    `decide_by` is the latest time at which a decision still reaches Azure in time. `took_seconds` is how long recent
    approvals took to reach Azure; None if there were none. `as_rule` are the fields of a rule that would make this
    decision automatically; empty if no rule could.
    """

    event: EventRow
    blast: BlastRadius
    guards: tuple[Guard, ...]
    recommendation: Recommendation | None
    decide_by: datetime | None
    took_seconds: float | None
    undo: UndoOffer
    as_rule: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def advised(self) -> Reason | None:
        """Return the recommendation and its reason in one sentence."""
        return None if self.recommendation is None else self.recommendation.sentence


def _card(event: EventRow, blast: BlastRadius, facts: EventFacts, past: Experience, now: datetime) -> DecisionCard:
    recommendation = recommend(facts, past, now=now)
    return DecisionCard(
        event=event,
        blast=blast,
        guards=tuple(guards(facts, now=now)),
        recommendation=recommendation,
        decide_by=deadline(facts, past, now=now) if recommendation and not is_advice(event.event_type) else None,
        took_seconds=past.relay_seconds,
        undo=undo_offer(facts, now=now, seconds=settings.APPROVAL_UNDO_SECONDS),
        as_rule=as_rule(facts, recommendation),
    )


def deadline(facts: EventFacts, experience: Experience, *, now: datetime) -> datetime | None:
    """Return the latest time for a decision so that the approval reaches Azure before NotBefore. None without a
    deadline. No query.
    """
    took = experience.relay_seconds
    # Without any earlier approval: one machine that does not answer, and then the next.
    relay = order_timeouts().answer if took is None else timedelta(seconds=took)
    until = undo_until(facts, now=now, seconds=settings.APPROVAL_UNDO_SECONDS)
    return decide_by(facts.not_before, relay=relay, undo=until - now if until else timedelta())


def decision_cards(
    rows: Sequence[EventRow], blasts: Mapping[int, BlastRadius], facts: Mapping[int, EventFacts], *, now: datetime
) -> dict[int, DecisionCard]:
    """Return the decision cards of these events by row id. `blasts` and `facts` are keyed by row id, too. One query."""
    known = experiences([facts[row.id].set_id for row in rows])
    past = {row.id: known.of(facts[row.id].set_id, row.event_type) for row in rows}
    return {row.id: _card(row, blasts[row.id], facts[row.id], past[row.id], now) for row in rows}
