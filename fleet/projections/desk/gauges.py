"""Gauges of the fleet for Prometheus, measured with a fixed number of queries."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db.models import Aggregate, Count, Exists, F, FloatField, Min, OuterRef, Prefetch, Q
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan
from django.db.models.functions import Abs

from fleet import models
from fleet.domain import gauges
from fleet.domain.clock import seconds_since
from fleet.domain.gauges import Gauge, Sample
from fleet.domain.states import LIVE_APPROVALS, OPEN_ORDERS, RELAYED_APPROVALS, EventStatus, Presence
from fleet.domain.waves import WaveState
from fleet.models.facts.machines import presence_limits
from fleet.models.partitions import TABLES, ahead, late_tables
from fleet.projections.approvals import steps_of
from fleet.projections.counts import changed_sets, counts, is_live, last_poll, machines_by_value
from fleet.projections.desk.readiness import wrong_clocks
from fleet.projections.events.rows import OPEN, advice
from fleet.projections.machines import agentless
from fleet.projections.visibility import used_caches, visible

# The last steps of `steps_of`, in its order; the earlier ones name who decided.
STEPS = ("sent", "answered", "started", "gone")
# At most this many approvals in progress are examined one by one.
LIMIT = 1000
HOUR = timedelta(hours=1)
# Of clock offsets; the last is the worst.
QUANTILES = (0.5, 0.9, 0.99, 1.0)


# Gauges of annexes.
MEASURES: list[Callable[..., Iterable[Sample]]] = []


class Quantiles(Aggregate):
    """SQL aggregate that returns these quantiles of a column. Each is a value that occurs in the column; None if it is
    empty.
    """

    template = f"percentile_disc(ARRAY[{', '.join(map(str, QUANTILES))}]) WITHIN GROUP (ORDER BY %(expressions)s)"


def measure(*, now: datetime) -> tuple[Sample, ...]:
    """Return the gauges of the fleet except `drydock_up` and those of `measure_values`; those of annexes come last. A
    fixed number of queries.
    """
    own = (_events, _approvals, _machines, _orders, _own, _waves, _clocks, _sets, _caches)
    return tuple(sample for measured in (*own, *MEASURES) for sample in measured(now=now))


def _one(gauge: Gauge, value: float | None) -> Sample:
    return Sample(gauge, {} if value is None else {(): float(value)})


def _seconds(later: datetime | None, earlier: datetime | None) -> float | None:
    return max(0.0, (later - earlier).total_seconds()) if later is not None and earlier is not None else None


def _events(*, now: datetime) -> Iterator[Sample]:
    live = [state.value for state in LIVE_APPROVALS]
    decided = Exists(visible(models.Approval).filter(event=OuterRef("pk"), state__in=live))
    in_time = Q(not_before=None) | Q(not_before__gt=now)
    waiting = Q(status=EventStatus.SCHEDULED.value, decided=False) & in_time & ~advice()
    real = visible(models.ScheduledEvent).filter(status__in=OPEN, drill=False).alias(decided=decided)
    counted = real.aggregate(
        **{status: Count("pk", filter=Q(status=status)) for status in OPEN},
        waiting=Count("pk", filter=waiting),
        next_at=Min("not_before", filter=waiting),
    )
    yield Sample(gauges.EVENTS, {(status,): counted[status] for status in OPEN})
    yield _one(gauges.WAITING, counted["waiting"])
    yield _one(gauges.NEXT_NOT_BEFORE, _seconds(counted["next_at"], now))


def _approvals(*, now: datetime) -> Iterator[Sample]:
    live = [state.value for state in LIVE_APPROVALS]
    real = visible(models.Approval).filter(event__drill=False)
    by_state = dict(real.filter(state__in=live).order_by().values_list("state").annotate(Count("pk")))
    orders = Prefetch("orders", visible(models.Order).select_related("machine").order_by("offered_at", "pk"))
    relayed = real.filter(state__in=[state.value for state in RELAYED_APPROVALS]).prefetch_related(orders)
    on_their_way = relayed.select_related("event", "decided_by", "consented_by", "rule")
    steps: Counter[str] = Counter()
    overdue = 0
    for approval in on_their_way.order_by("pk")[:LIMIT]:
        found = steps_of(approval, approval.event, list(approval.orders.all()), now=now)
        late = [name for name, step in zip(STEPS, found[-len(STEPS) :], strict=True) if step.state == "overdue"]
        steps.update(late)
        overdue += bool(late)
    yield Sample(gauges.APPROVALS, {(state,): by_state.get(state, 0) for state in live})
    yield _one(gauges.OVERDUE, overdue)
    yield Sample(gauges.OVERDUE_STEPS, {(name,): steps[name] for name in ("sent", "answered")})


def _machines(*, now: datetime) -> Iterator[Sample]:
    presence, without_agent = counts(now=now)
    yield Sample(gauges.MACHINES, {(state.value,): getattr(presence, state.value) for state in Presence})
    yield _one(gauges.WITHOUT_AGENT, without_agent)


def measure_values() -> tuple[Sample, ...]:
    """Return the numbers of machines by size, region, zone and versions. One query, two if the values are very
    diverse. It reads all machines, so callers cache the result.
    """
    found = machines_by_value(visible(models.Machine).filter(revoked_at=None))
    samples = {gauge: Counter[tuple[str, ...]]() for gauge in gauges.VALUE_GAUGES.values()}
    for name, gauge in gauges.VALUE_GAUGES.items():
        for row in getattr(found, name):
            samples[gauge][gauges.label_value(row.value),] += row.machines
    return tuple(Sample(gauge, values) for gauge, values in samples.items())


def _clocks(*, now: datetime) -> Iterator[Sample]:
    """Yield the clock offsets of machines heard recently, because older measurements may be outdated. One query."""
    recent = now - timedelta(seconds=presence_limits().late)
    # Reads the narrow presence rows alone; revoked machines are rare.
    revoked = visible(models.Machine, every=True).filter(revoked_at__gt=recent).values("pk")
    rows = visible(models.PresenceRow).filter(last_heard_at__gt=recent, clock_offset__isnull=False)
    measured = rows.exclude(machine__in=revoked).annotate(off=Abs("clock_offset"))
    found = measured.aggregate(
        quantiles=Quantiles("off", output_field=ArrayField(FloatField())),
        too_far=Count("pk", filter=Q(off__gt=settings.CLOCK_TOLERANCE_SECONDS)),
    )
    quantiles = zip(QUANTILES, found["quantiles"] or (), strict=False)
    yield Sample(gauges.CLOCK_OFFSET, {(f"{quantile:g}",): float(seconds) for quantile, seconds in quantiles})
    yield _one(gauges.CLOCKS_OFF, found["too_far"])


def _sets(*, now: datetime) -> Iterator[Sample]:
    """Yield the coverage of sets from stored counts, or from new counts for sets that have just changed. Machines
    without an agent are included. Five queries.
    """
    changed = list(changed_sets(now=now))
    live, whole = Q(live__gt=0), Q(live=F("agents"), without_agent=0)
    stored = visible(models.SetCount).exclude(availability_set__any=changed).exclude(agents=0, without_agent=0)
    parts = {"full": live & whole, "partial": live & ~whole, "none": ~live}
    found = stored.aggregate(**{name: Count("pk", filter=part) for name, part in parts.items()})
    agents = visible(models.Machine).filter(revoked_at=None, availability_set__any=changed).alias(polled=last_poll())
    bare = agentless().filter(availability_set__any=changed).order_by()
    lacking = set(bare.values_list("availability_set", flat=True).distinct())
    rows = agents.order_by().values_list("availability_set")
    for set_id, count, present in rows.annotate(Count("pk"), live=Count("pk", filter=is_live(now=now))):
        found["none" if not present else "full" if present == count and set_id not in lacking else "partial"] += 1
        lacking.discard(set_id)
    found["none"] += len(lacking)
    yield Sample(gauges.SETS, {(coverage,): count for coverage, count in found.items()})


def _caches(*, now: datetime) -> Iterator[Sample]:
    """Yield the gauge for the coverage of caches by listeners. One query."""
    newest = visible(models.Coverage).filter(cache=OuterRef("pk"), until=None)
    hearing = newest.alias(polled=last_poll("machine__")).filter(is_live(now=now, machine="machine__"))
    has_listener = Exists(hearing.filter(state="subscribed"))
    rows = used_caches().annotate(heard=has_listener, publishes_nothing=Exists(newest.filter(state="unsupported")))
    found = rows.aggregate(
        covered=Count("pk", filter=Q(heard=True)),
        unsupported=Count("pk", filter=Q(heard=False, publishes_nothing=True)),
        uncovered=Count("pk", filter=Q(heard=False, publishes_nothing=False)),
    )
    yield Sample(gauges.CACHES, {(coverage,): count for coverage, count in found.items()})


def _orders(*, now: datetime) -> Iterator[Sample]:
    rows = visible(models.Order).filter(state__in=[state.value for state in OPEN_ORDERS])
    found = rows.aggregate(count=Count("pk"), oldest=Min("offered_at"))
    yield _one(gauges.OPEN_ORDERS, found["count"])
    yield _one(gauges.OLDEST_ORDER, _seconds(now, found["oldest"]) or 0.0)


def _own(*, now: datetime) -> Iterator[Sample]:
    ran_at = visible(models.LastRun).filter(name=models.LastRun.RECONCILE).values_list("ran_at", flat=True).first()
    seal = visible(models.Seal).order_by("-number").first()
    # By the index of the stream: the first entry after the last seal.
    behind = [TupleGreaterThan(Tuple("era", "xid", "id"), seal.place)] if seal else []
    unsealed = visible(models.Entry).filter(*behind).order_by("era", "xid", "id")
    entry = unsealed.values_list("recorded_at", flat=True).first()
    skews: dict[tuple[str, ...], float] = {("web",): 0.0, ("worker",): 0.0, ("beat",): 0.0}
    for process, skew in wrong_clocks(now=now).items():
        kind = (process.partition(" ")[0],)
        skews[kind] = max(skews.get(kind, 0.0), abs(skew))
    yield _one(gauges.RECONCILE_AGE, None if ran_at is None else seconds_since(ran_at, now=now))
    yield Sample(gauges.QUARANTINED, {(what,): count for what, count in quarantined_rows().items()})
    yield Sample(gauges.SKEW, skews)
    yield _one(gauges.UNSEALED, _seconds(now, entry) or 0.0)
    yield Sample(gauges.PARTITION_ROOM, {(found.of.table,): found.room for found in ahead(*TABLES)})


def late_partitions() -> tuple[str, ...]:
    """Return the tables whose next partition should exist already. One query."""
    return tuple(found.of.table for found in late_tables())


def quarantined_rows() -> dict[str, int]:
    """Return the number of quarantined rows by kind. One query."""
    return dict(visible(models.QuarantinedRow).values_list("what").annotate(Count("pk")).order_by("what"))


def _waves(*, now: datetime) -> Iterator[Sample]:
    found = visible(models.Wave).aggregate(
        running=Count("pk", filter=Q(state=WaveState.RUNNING.value)),
        stopped=Count("pk", filter=Q(state=WaveState.STOPPED.value, closed_at__gt=now - HOUR)),
    )
    yield _one(gauges.WAVES, found["running"])
    yield _one(gauges.WAVES_STOPPED, found["stopped"])
