"""Rows of scheduled events, with their claims, holds and remaining live machines."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Unpack

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from fleet.domain.event_types import ADVICE_TYPES, expected_notice, is_advice, is_notice_short
from fleet.domain.events import FAR_AHEAD, default_outcome
from fleet.domain.reasons import Reason
from fleet.domain.shapes import InApi, from_row, grouped
from fleet.domain.states import LIVE_APPROVALS, OPEN_EVENTS, ApprovalState, Certainty, EndedAs, EventStatus
from fleet.models import Approval, AvailabilitySet, Claim, Hold, Machine, ScheduledEvent
from fleet.models.facts.events import decider, hold_reason, name_of
from fleet.projections.approvals import ApprovalRow, by_event
from fleet.projections.changes import changed_at, with_changes
from fleet.projections.counts import counts_by, counts_of, is_live, last_poll
from fleet.projections.machines import OpenEventBrief
from fleet.projections.pages import OrderedAt, Page, Segment, read_list
from fleet.projections.refs import PresenceCounts, SetRef, future, plain_name, set_ref
from fleet.projections.visibility import visible

# A proposal still needs the second approver.
DECIDED = tuple(state for state in LIVE_APPROVALS if state is not ApprovalState.PROPOSED)


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """Open claim of an event: a user states that they handle it."""

    by: str
    at: datetime
    comment: str


@dataclass(frozen=True, slots=True)
class HoldRow:
    """Open hold of an event: it shall not be approved, and runs at NotBefore. `by_rule`: a rule placed the hold, and
    users may still decide.
    """

    by: Annotated[Reason | str, "A person, or the rule."]
    at: datetime
    reason: Reason | str
    by_rule: Annotated[bool, "A rule left it to Azure: people may still decide."]


def attention_of(event_pks: Collection[int]) -> Mapping[int, dict[str, Any]]:
    """Return the open `claim` and `hold` of these events (row ids), as `event_row` takes them, by row id. One query."""
    open_ones: dict[str, Any] = {"event_id__in": list(event_pks), "ended_at__isnull": True}
    columns = ("event_id", "by__username")
    claims = visible(Claim).filter(**open_ones).values_list(*columns, Value(""), "at", F("comment"), Value("claim"))
    holds = visible(Hold).filter(**open_ones).values_list(*columns, "rule__name", "at", F("reason"), Value("hold"))
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    for event_pk, person, rule, at, said, kind in claims.union(holds, all=True) if event_pks else ():
        if kind == "claim":
            found[event_pk]["claim"] = ClaimRow(by=person, at=at, comment=said)
        else:
            by, reason = decider(person, rule), hold_reason(said)
            found[event_pk]["hold"] = HoldRow(by=by, at=at, reason=reason, by_rule=person is None)
    return found


def needs_decision(*, now: datetime) -> Q:
    """Return the query condition for events that need a decision: still scheduled, before NotBefore, and undecided or
    waiting for a second approver. A user's hold is a decision, too: the event shall run without approval.
    """
    decided = Exists(visible(Approval).filter(event=OuterRef("pk"), state__in=[state.value for state in DECIDED]))
    proposed = Exists(visible(Approval).filter(event=OuterRef("event"), state=ApprovalState.PROPOSED.value))
    # Both conditions of a hold in one subquery: one join for all events instead of one query for each.
    held = Exists(visible(Hold).filter(~proposed, event=OuterRef("pk"), ended_at__isnull=True, by__isnull=False))
    open_still = Q(status=EventStatus.SCHEDULED.value) & (Q(not_before=None) | Q(not_before__gt=now))
    return open_still & ~advice() & ~decided & ~held


def advice() -> Q:
    """Return the query condition for events of types that only give advice. They need no decision, because Azure starts
    nothing.
    """
    return Q(*(("event_type__iexact", name) for name in ADVICE_TYPES), _connector=Q.OR)


def proposed() -> Q:
    """Return the query condition for events that wait for a second approver."""
    return Q(Exists(visible(Approval).filter(event=OuterRef("pk"), state=ApprovalState.PROPOSED.value)))


@dataclass(frozen=True, slots=True)
class ClaimTold:
    """A claim as the response of its own API call; `ended_at` is set after it was released."""

    event_id: str
    by: str
    at: datetime
    comment: str
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class HoldTold:
    """A hold as the response of its own API call; `ended_at` is set after it was lifted."""

    event_id: str
    by: Annotated[Reason | str, "A person, or the rule."]
    at: datetime
    reason: Reason | str
    ended_at: datetime | None


def claim_told(row: Claim) -> ClaimTold:
    """Build the response for a claim."""
    return from_row(ClaimTold, row, event_id=row.event.event_id, by=row.by.get_username())


def standing_claim(*, event_id: str) -> ClaimTold | None:
    """Return the open claim of an event by EventId; None if there is none. One query."""
    rows = visible(Claim).filter(event__event_id=event_id.strip().upper(), ended_at__isnull=True)
    row = rows.select_related("event", "by").first()
    return claim_told(row) if row else None


def standing_hold(*, event_id: str) -> HoldTold | None:
    """Return the open hold of an event by EventId; None if there is none. One query."""
    rows = visible(Hold).filter(event__event_id=event_id.strip().upper(), ended_at__isnull=True)
    row = rows.select_related("event", "by", "rule").first()
    return hold_told(row) if row else None


def hold_told(row: Hold) -> HoldTold:
    """Build the response for a hold."""
    return from_row(HoldTold, row, event_id=row.event.event_id, by=name_of(row), reason=hold_reason(row.reason))


# Impact of an event on its set.

NO_MACHINES: tuple[PresenceCounts, Counter[str]] = (PresenceCounts(), Counter())


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """Impact of an event on its set.

    `stay_up` counts live machines that are neither in the event's Resources nor in those of another Started event.
    `total` counts the machines that are not gone. `min_live` is the required number of live machines; None if not
    configured.
    """

    stay_up: int
    total: int
    hit: int
    not_live: int
    min_live: int | None = None

    @property
    def summary(self) -> Annotated[Reason, InApi.SHOWN]:
        """Return the impact as text, such as `4 of 6 machines stay live`, or `4 of 6 machines stay live (minimum
        5)`.
        """
        return Reason("blast-radius", stay_up=self.stay_up, total=self.total, min_live=self.min_live)


def taken_by_others(events: Sequence[ScheduledEvent]) -> dict[int, frozenset[str]]:
    """Return the machines affected by other Started events of the same set, as plain names by the event's row id. One
    query.
    """
    sets = {event.availability_set_id for event in events}
    started = visible(ScheduledEvent).filter(availability_set__in=sets, status=EventStatus.STARTED.value, drill=False)
    hit = grouped((row.availability_set_id, row) for row in started.only("availability_set", "resources"))
    return {
        event.pk: frozenset(
            plain_name(name) for row in hit[event.availability_set_id] if row != event for name in row.resources
        )
        for event in events
    }


def blast_radii(events: Sequence[ScheduledEvent], *, now: datetime) -> dict[int, BlastRadius]:
    """Return the impact of each event by row id. The events must be loaded with their set. Two queries for sets of any
    size, because only machines that an event names are read one by one.
    """
    return _radii({event.pk: [event] for event in events}, now=now)


def blast_together(events: Sequence[ScheduledEvent], *, now: datetime) -> dict[int, BlastRadius]:
    """Return the impact on each set (row id) if all of these events ran at the same time. Two queries."""
    return _radii(grouped((event.availability_set_id, event) for event in events), now=now)


def _radii(groups: Mapping[int, Sequence[ScheduledEvent]], *, now: datetime) -> dict[int, BlastRadius]:
    """Return the joint impact of each group of events of one set, by the group's key."""
    events = [event for group in groups.values() for event in group]
    down = taken_by_others(events)
    found = _live_in_sets(events, down, now=now)
    return {
        key: blast_radius(
            group[0].availability_set,
            [name for event in group for name in event.resources],
            *found.get(group[0].availability_set_id, NO_MACHINES),
            frozenset().union(*(down[event.pk] for event in group)),
        )
        for key, group in groups.items()
    }


def _live_in_sets(
    events: Sequence[ScheduledEvent], down: Mapping[int, Collection[str]], *, now: datetime
) -> dict[int, tuple[PresenceCounts, Counter[str]]]:
    """Return for each set (row id) its machine counts, and the number of its live machines by plain name, for the names
    that events contain. One query.
    """
    named = {name for event in events for name in event.resources} | {name for names in down.values() for name in names}
    hit = ArrayAgg("resource_name", filter=is_live(now=now) & Q(resource_name__named=list(named)), default=[])
    machines = visible(Machine).filter(availability_set__in={event.availability_set_id for event in events})
    of_sets = machines.alias(polled=last_poll()).values("availability_set")
    counted: Any = of_sets.annotate(**counts_by(now=now), hit=hit).order_by()
    return {row["availability_set"]: (counts_of(row), Counter(map(plain_name, row["hit"]))) for row in counted}


def blast_radius(
    home: AvailabilitySet, resources: Iterable[str], counts: PresenceCounts, live: Counter[str], down: Collection[str]
) -> BlastRadius:
    """Compute the impact on a set. `live` counts the live machines that any event names, by plain name; `down` are the
    machines that other events affect now.
    """
    named = {plain_name(name) for name in resources}
    return BlastRadius(
        stay_up=counts.live - sum(live[name] for name in named.union(down)),
        total=counts.total,
        hit=len(named),
        not_live=counts.total - counts.live,
        min_live=home.min_live,
    )


# Rows of scheduled events for lists.

OPEN = (EventStatus.SCHEDULED.value, EventStatus.STARTED.value)


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event. `seconds_left` until NotBefore is never below 0; it is None if the event is no longer scheduled or has
    no NotBefore.
    """

    id: Annotated[int, InApi.OMITTED]
    event_id: str
    event_type: str
    resource_type: str
    status: EventStatus
    ended_as: EndedAs | None
    certainty: Annotated[Certainty | None, "Whether its ending was seen or inferred."]
    approved_elsewhere: Annotated[bool, "It started before NotBefore without our approval."]
    source: str
    description: str
    duration_seconds: Annotated[int | None, "-1: Azure does not know."]
    not_before: datetime | None
    resources: Annotated[tuple[str, ...], "Names, as Azure states them."]
    set: SetRef
    first_seen_at: datetime
    notice_seconds: Annotated[int | None, "NotBefore less the first sighting."]
    expected_notice_seconds: Annotated[
        int | None, "The least notice: of a Terminate what its scale set configures, else what Microsoft documents."
    ]
    started_at: datetime | None
    ended_at: datetime | None
    watched: Annotated[bool, "A live machine can report its progress."]
    warnings: tuple[Reason | str, ...]
    version: Annotated[int, "Moves with status, NotBefore, Resources, type, source and duration."]
    approval: Annotated[ApprovalRow | None, "The live approval, else the newest one."]
    claim: Annotated[ClaimRow | None, "The claim of the event."]
    hold: Annotated[HoldRow | None, "Who wants it to run by itself."]
    silenced_until: Annotated[datetime | None, "Notifications about it, or about its set, are held back until then."]
    drill: Annotated[bool, "A rehearsal: Azure knows nothing of it."]
    needs_decision: Annotated[
        bool, "Undecided, or waiting for a second person. An event that a person left to Azure is decided."
    ]
    if_nobody_acts: Annotated[Reason, "What happens if no user acts, in one sentence."]
    # Last change of the event, its approvals, orders, claims and holds, by the database's clock.
    changed_at: datetime
    seconds_left: Annotated[
        float | None, "Until NotBefore, never below 0; null once it is not scheduled or has no time."
    ]
    server_time: datetime

    @property
    def is_notice_short(self) -> bool:
        return is_notice_short(self.expected_notice_seconds, self.notice_seconds)

    @property
    def open(self) -> bool:
        return self.status is not EventStatus.ENDED

    @property
    def started_seconds(self) -> Annotated[float | None, "How long it has been, or was, Started."]:
        """Return the seconds for which the event has been, or was, Started; None before that."""
        if self.started_at is None:
            return None
        return max(0.0, ((self.ended_at or self.server_time) - self.started_at).total_seconds())

    @property
    def approval_to_start_seconds(self) -> Annotated[float | None, "From our approval to Started."]:
        """Return the seconds from Drydock's approval to the status Started; None without an approval, or before the
        start.
        """
        granted = self.approval.granted_at if self.approval and self.approval.accepted_at else None
        if self.started_at is None or granted is None:
            return None
        return max(0.0, (self.started_at - granted).total_seconds())

    @property
    def past_not_before(self) -> bool:
        return self.status is EventStatus.SCHEDULED and self.seconds_left == 0

    @property
    def far_ahead(self) -> bool:
        return self.seconds_left is not None and self.seconds_left > FAR_AHEAD.total_seconds()


def silenced_until(event: ScheduledEvent, *, now: datetime) -> datetime | None:
    """Return until when notifications about an event that was loaded with its set are held back; None if they are
    not.
    """
    times = (future(each.silenced_until, now=now) for each in (event, event.availability_set))
    return max(filter(None, times), default=None)


def current(rows: Sequence[ApprovalRow]) -> ApprovalRow | None:
    return next((row for row in rows if row.state in LIVE_APPROVALS), rows[0] if rows else None)


def event_row(
    event: ScheduledEvent,
    approval_rows: Sequence[ApprovalRow],
    *,
    now: datetime,
    claim: ClaimRow | None = None,
    hold: HoldRow | None = None,
) -> EventRow:
    """Build the row of an event that was loaded with its set. No query."""
    approval, due = current(approval_rows), event.not_before
    scheduled = event.status == EventStatus.SCHEDULED
    in_time = due is None or due > now
    held = hold is not None and not hold.by_rule
    # The same condition as `needs_decision`.
    undecided = not held if approval is None or not approval.live else approval.state is ApprovalState.PROPOSED
    return from_row(
        EventRow,
        event,
        set=set_ref(event.availability_set),
        expected_notice_seconds=expected_notice(event.event_type, event.availability_set.terminate_notice_seconds),
        approval=approval,
        claim=claim,
        hold=hold,
        silenced_until=silenced_until(event, now=now),
        needs_decision=scheduled and in_time and undecided and not is_advice(event.event_type),
        if_nobody_acts=default_outcome(event, now=now),
        changed_at=changed_at(event),
        seconds_left=round(max(0.0, (due - now).total_seconds()), 3) if scheduled and due else None,
        server_time=now,
    )


def event_rows(events: Sequence[ScheduledEvent], *, now: datetime) -> tuple[EventRow, ...]:
    """Build the rows of events that were loaded with their sets. Three queries, for approvals, claims and holds."""
    decided = by_event(events, now=now)
    seen_to = attention_of([event.pk for event in events])
    return tuple(event_row(event, decided.get(event.pk, ()), now=now, **seen_to[event.pk]) for event in events)


def listing(
    *, now: datetime, events: QuerySet[ScheduledEvent] | None = None, **at: Unpack[OrderedAt]
) -> Page[EventRow]:
    """Return a page of open events by time left, followed by ended ones, newest first; with `order`, all sorted by that
    column. At most five queries.

    `events` is a filtered queryset (see `filters.EventFilter`).
    """
    rows = visible(ScheduledEvent) if events is None else events
    rows = with_changes(rows.select_related("availability_set"))
    still_open: Any = rows.filter(status__in=OPEN).annotate(due=Coalesce("not_before", "first_seen_at"))
    ended = rows.filter(status=EventStatus.ENDED.value)
    by_time, newest = Segment(still_open, "due"), Segment(ended, "first_seen_at", descending=True)
    page = read_list(by_time, newest, rows=rows, may_lack=["not_before"], **at)
    return page.map(lambda found: event_rows(found, now=now))


def ids_by_time(events: QuerySet[ScheduledEvent], *, limit: int) -> list[str]:
    """Return the EventIds of a queryset by time left; those without NotBefore come first. One query."""
    rows = events.order_by(F("not_before").asc(nulls_first=True), "pk")
    return list(rows.values_list("event_id", flat=True)[:limit])


def named_events(event_ids: Sequence[str]) -> tuple[OpenEventBrief, ...]:
    """Return the events with these EventIds, in this order. At most one query."""
    found = {row.event_id: row for row in visible(ScheduledEvent).filter(event_id__in=event_ids)}
    return tuple(from_row(OpenEventBrief, found[event_id]) for event_id in event_ids if event_id in found)


# Sets with open events or approvals: polls are needed there soon, because they reveal ends and lapses.


def sets_under_way() -> set[int]:
    """Return the row ids of sets with an open event or an approval in progress. One query that uses partial indexes."""
    opened = visible(ScheduledEvent).filter(status__in=[state.value for state in OPEN_EVENTS])
    decided = visible(Approval).filter(state__in=[state.value for state in LIVE_APPROVALS])
    rows = opened.order_by().values_list("availability_set_id", flat=True)
    return set(rows.union(decided.order_by().values_list("event__availability_set_id", flat=True)))
