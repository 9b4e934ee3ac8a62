"""Bulk selection: the events that match a filter, each with the facts needed for a decision."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from django.db.models import F, Q, QuerySet

from fleet.domain.approvals.guards import TAKE_REASONS, Need, affected_machines
from fleet.domain.events import FAR_AHEAD
from fleet.domain.people import Rights
from fleet.domain.shapes import grouped
from fleet.models import ScheduledEvent
from fleet.models.people import decision_filter
from fleet.projections.approvals import ApprovalRow, details
from fleet.projections.cards import DecisionCard, decision_cards
from fleet.projections.events import rows as event_lists
from fleet.projections.events.rows import OPEN, BlastRadius, EventRow, blast_radii, event_rows
from fleet.projections.refs import SetRef
from fleet.projections.visibility import load_facts, visible

# At most this many events are decided in one call.
MOST = 200
# Time to decide one of them, in seconds.
EACH = 0.05
# Guards that keep events of one set or service apart.
IN_FLIGHT = {"set-in-flight", "service-in-flight"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One event of a bulk selection.

    `far_ahead`: it is due in more than a day. `fault_domain` is the first one that it affects. `place` is the service,
    or the set if there is none; a wave contains only events of one place.
    """

    card: DecisionCard
    far_ahead: bool
    fault_domain: int | None
    place: str

    @property
    def event_id(self) -> str:
        return self.card.event.event_id

    @property
    def ticked(self) -> bool:
        """Return whether the event is preselected: it needs a decision and is due within a day."""
        return not self.far_ahead and self.card.event.needs_decision

    @property
    def asks(self) -> tuple[str, ...]:
        """Return the codes of the guards that the user may override with a reason."""
        return tuple(guard.code for guard in self.card.guards if guard.code in TAKE_REASONS and guard.takes_reason)

    @property
    def shown(self) -> tuple[tuple[str, str], ...]:
        """Return the codes of `asks`, each with a digest of what the guard shows. The form sends the digests back."""
        return tuple((guard.code, guard.shown) for guard in self.card.guards if guard.code in self.asks)

    @property
    def blocked(self) -> bool:
        """Return whether a guard that cannot be overridden blocks approval now."""
        return any(guard.needs is Need.BLOCKS and not guard.overridable for guard in self.card.guards)


@dataclass(frozen=True, slots=True)
class Together:
    """Joint effect of several selected events of one service or set.

    `sets` gives the remaining live machines of each set if all events ran at the same time. `one_by_one`: each event
    waits until the one before has ended. Otherwise the first is sent at once because it cannot be undone, and the
    others are refused while it is in progress. `in_flight`: another event of this place is in progress.
    """

    place: str
    count: int
    sets: tuple[tuple[SetRef, BlastRadius], ...]
    one_by_one: bool
    in_flight: bool


def together(chosen: Sequence[Choice], *, now: datetime) -> tuple[Together, ...]:
    """Return the joint effect of the preselected events for each service or set that has at least two of them. Three
    queries.
    """
    homes = grouped((choice.place, choice) for choice in chosen if choice.ticked and not choice.blocked)
    several = {place: found for place, found in homes.items() if len(found) > 1}
    if not several:
        return ()
    pks = [choice.card.event.id for found in several.values() for choice in found]
    affected = visible(ScheduledEvent).filter(pk__in=pks).select_related("availability_set")
    radii = event_lists.blast_together(list(affected), now=now)
    return tuple(
        Together(
            place=place,
            count=len(found),
            sets=tuple(
                (home, radii[home.id]) for home in dict.fromkeys(c.card.event.set for c in found) if home.id in radii
            ),
            one_by_one=found[0].card.undo.seconds > 0,
            in_flight=any(set(choice.asks) & IN_FLIGHT for choice in found),
        )
        for place, found in several.items()
    )


@dataclass(frozen=True, slots=True)
class FollowedEvent:
    """Current state of one event of a bulk decision, with the approval given then, else the current one. `undoable`:
    this approval can still be undone.
    """

    event: EventRow
    approval: ApprovalRow | None
    undoable: bool


def followed_events(
    event_pks: Collection[int], approval_ids: Collection[int], *, now: datetime
) -> tuple[FollowedEvent, ...]:
    """Return the state of these events (row ids), each with its approval among these approvals (row ids). A fixed
    number of queries.
    """
    rows = visible(ScheduledEvent).filter(pk__in=list(event_pks)[:MOST]).select_related("availability_set")
    approvals = dict(details(list(approval_ids)[:MOST], now=now)) if approval_ids else {}
    found = []
    for row in event_rows(list(rows), now=now):
        given, live = approvals.get(row.id), row.approval if row.approval and row.approval.live else None
        found.append(FollowedEvent(row, given or live, given is not None and given.may_be_undone))
    return tuple(found)


def undecided(events: QuerySet[ScheduledEvent], *, now: datetime, rights: Rights) -> QuerySet[ScheduledEvent]:
    """Return the events of this queryset that need a decision from a user with these rights, by time left."""
    mine = decision_filter(rights, proposed=event_lists.proposed())
    rows = events.filter(event_lists.needs_decision(now=now), mine, status__in=OPEN, drill=False)
    return rows.order_by(F("not_before").asc(nulls_last=True), "pk")


def in_queue(*, now: datetime, rights: Rights) -> QuerySet[ScheduledEvent]:
    """Return the events that need a decision from a user with these rights: the part `waiting` of the queue."""
    soon = Q(not_before=None) | Q(not_before__lte=now + FAR_AHEAD)
    return undecided(visible(ScheduledEvent).filter(soon), now=now, rights=rights)


def count_of(events: QuerySet[ScheduledEvent]) -> int:
    """Return the number of events, counted up to the limit plus one: that value means that there are more. One
    query.
    """
    return events.order_by()[: MOST + 1].count()


def ids_of(events: QuerySet[ScheduledEvent]) -> list[str]:
    """Return the EventIds of these events, at most one more than a bulk decision allows. One query."""
    return list(events.values_list("event_id", flat=True)[: MOST + 1])


def digest_of(event_ids: Collection[str]) -> str:
    """Return a digest of the EventIds, independent of their order. It detects changed selections of the same length."""
    return sha256(" ".join(sorted(event_ids)).encode()).hexdigest()[:16]


def choices(event_ids: Sequence[str], *, now: datetime) -> tuple[Choice, ...]:
    """Return the open ones of these events, by time left. A fixed number of queries."""
    wanted = [event_id.upper() for event_id in event_ids][:MOST]
    rows = visible(ScheduledEvent).filter(event_id__in=wanted, status__in=OPEN, drill=False)
    events = list(rows.select_related("availability_set").order_by(F("not_before").asc(nulls_last=True), "pk"))
    shaped = event_rows(events, now=now)
    facts = load_facts([event.pk for event in events], now=now)
    cards = decision_cards(shaped, blast_radii(events, now=now), facts, now=now)
    return tuple(
        Choice(
            card=cards[row.id],
            far_ahead=row.not_before is not None and row.not_before - now > FAR_AHEAD,
            fault_domain=min(
                (m.fault_domain for m in affected_machines(facts[row.id]) if m.fault_domain is not None), default=None
            ),
            place=facts[row.id].set_service or f"set {row.set.id}",
        )
        for row in shaped
    )


def by_fault_domain(chosen: Collection[Choice]) -> dict[str, list[Choice]]:
    """Return the events of each service or set in the order of a wave: one fault domain after the other, each by time
    left.
    """

    def turn(choice: Choice) -> tuple[bool, int, bool, float]:
        domain, at = choice.fault_domain, choice.card.event.not_before
        return (domain is None, domain or 0, at is None, at.timestamp() if at else 0.0)

    return grouped((choice.place, choice) for choice in sorted(chosen, key=turn))


def undo_at(count: int, *, now: datetime, seconds: float) -> datetime:
    """Return when approvals of a bulk decision are dispatched. The undo period of `seconds` is extended by the time
    that is needed to decide `count` events.
    """
    return now + timedelta(seconds=seconds + count * EACH)
