"""The fleet in numbers for Prometheus, in a fixed number of queries."""

from collections import Counter
from datetime import datetime, timedelta

from django.db.models import Count, Exists, Min, OuterRef, Prefetch, Q
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan

from fleet.domain import gauges
from fleet.domain.gauges import Gauge, Sample
from fleet.domain.states import LIVE_APPROVALS, OPEN_ORDERS, RELAYED_APPROVALS, EventStatus, Presence
from fleet.domain.waves import WaveState
from fleet.models import Approval, Entry, LastRun, Order, ScheduledEvent, Seal, SetAside, Wave
from fleet.projections.approvals.steps import steps_of
from fleet.projections.desk.fleet import presence_counts
from fleet.projections.events.rows import OPEN
from fleet.projections.messages import gauges as messages
from fleet.projections.sight import seen

# The last steps of `steps_of`, in its order; those before tell who decided.
STEPS = ("sent", "answered", "started", "gone")
# Approvals on their way that are looked at one by one; more at once would be a story of its own.
LIMIT = 1000
HOUR = timedelta(hours=1)


def measure(*, now: datetime) -> tuple[Sample, ...]:
    """Every gauge of the fleet but `drydock_up`. Twenty queries."""
    fleet = (*_events(now), *_approvals(now), *_machines(now), *_orders(now), *_own(now), *_waves(now))
    return (*fleet, *messages.measure(now=now))


def _one(gauge: Gauge, value: float | None) -> Sample:
    return Sample(gauge, {} if value is None else {(): float(value)})


def _seconds(later: datetime | None, earlier: datetime | None) -> float | None:
    return max(0.0, (later - earlier).total_seconds()) if later is not None and earlier is not None else None


def _events(now: datetime) -> tuple[Sample, ...]:
    live = [state.value for state in LIVE_APPROVALS]
    decided = Exists(seen(Approval).filter(event=OuterRef("pk"), state__in=live))
    in_time = Q(not_before=None) | Q(not_before__gt=now)
    waiting = Q(status=EventStatus.SCHEDULED.value, decided=False) & in_time
    counted = (
        seen(ScheduledEvent)
        .filter(status__in=OPEN, drill=False)
        .alias(decided=decided)
        .aggregate(
            **{status: Count("pk", filter=Q(status=status)) for status in OPEN},
            waiting=Count("pk", filter=waiting),
            next_at=Min("not_before", filter=waiting),
        )
    )
    return (
        Sample(gauges.EVENTS, {(status,): counted[status] for status in OPEN}),
        _one(gauges.WAITING, counted["waiting"]),
        _one(gauges.NEXT_NOT_BEFORE, _seconds(counted["next_at"], now)),
    )


def _approvals(now: datetime) -> tuple[Sample, ...]:
    live = [state.value for state in LIVE_APPROVALS]
    by_state = Counter(
        dict(
            seen(Approval)
            .filter(state__in=live, event__drill=False)
            .values_list("state")
            .annotate(Count("pk"))
            .order_by("state")
        )
    )
    on_their_way = (
        seen(Approval)
        .filter(state__in=[state.value for state in RELAYED_APPROVALS], event__drill=False)
        .select_related("event", "decided_by", "consented_by", "rule")
        .prefetch_related(Prefetch("orders", seen(Order).select_related("machine").order_by("offered_at", "pk")))
        .order_by("pk")[:LIMIT]
    )
    steps: Counter[str] = Counter()
    overdue = 0
    for approval in on_their_way:
        found = steps_of(approval, approval.event, list(approval.orders.all()), now=now)
        late = [name for name, step in zip(STEPS, found[-len(STEPS) :], strict=True) if step.state == "overdue"]
        steps.update(late)
        overdue += bool(late)
    return (
        Sample(gauges.APPROVALS, {(state,): by_state[state] for state in live}),
        _one(gauges.OVERDUE, overdue),
        Sample(gauges.OVERDUE_STEPS, {(name,): steps[name] for name in ("sent", "answered")}),
    )


def _machines(now: datetime) -> tuple[Sample, ...]:
    counts = presence_counts(now=now)
    return (Sample(gauges.MACHINES, {(presence.value,): getattr(counts, presence.value) for presence in Presence}),)


def _orders(now: datetime) -> tuple[Sample, ...]:
    found = (
        seen(Order)
        .filter(state__in=[state.value for state in OPEN_ORDERS])
        .aggregate(count=Count("pk"), oldest=Min("offered_at"))
    )
    return (
        _one(gauges.OPEN_ORDERS, found["count"]),
        _one(gauges.OLDEST_ORDER, _seconds(now, found["oldest"]) or 0.0),
    )


def _own(now: datetime) -> tuple[Sample, ...]:
    ran_at = seen(LastRun).filter(name=LastRun.RECONCILE).values_list("ran_at", flat=True).first()
    seal = seen(Seal).order_by("-number").first()
    # By the index of the stream: the first entry behind the last seal.
    behind = [TupleGreaterThan(Tuple("era", "xid", "id"), seal.place)] if seal else []
    entry = seen(Entry).filter(*behind).order_by("era", "xid", "id").values_list("recorded_at", flat=True).first()
    return (
        _one(gauges.RECONCILE_AGE, _seconds(now, ran_at)),
        Sample(gauges.SET_ASIDE, {(what,): count for what, count in set_aside().items()}),
        _one(gauges.UNSEALED, _seconds(now, entry) or 0.0),
    )


def set_aside() -> dict[str, int]:
    """How much is set aside, by what it is. One query."""
    return dict(seen(SetAside).values_list("what").annotate(Count("pk")).order_by("what"))


def _waves(now: datetime) -> tuple[Sample, ...]:
    found = seen(Wave).aggregate(
        running=Count("pk", filter=Q(state=WaveState.RUNNING.value)),
        stopped=Count("pk", filter=Q(state=WaveState.STOPPED.value, closed_at__gt=now - HOUR)),
    )
    return (_one(gauges.WAVES, found["running"]), _one(gauges.WAVES_STOPPED, found["stopped"]))
