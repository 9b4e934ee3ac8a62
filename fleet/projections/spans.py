"""Events and cache maintenances in a period, and times in which a set was not watched."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Exists, Min, OuterRef, Q, QuerySet

from fleet.domain.caches.maintenances import ACTIVE
from fleet.domain.intake import LEAP
from fleet.domain.shapes import from_row, grouped, names_of
from fleet.domain.states import Certainty, EndedAs, EventStatus
from fleet.models import AvailabilitySet, Cache, Coverage, Machine, Maintenance, ScheduledEvent
from fleet.projections.caches.coverage import Span, between, gaps_of, shaped, with_machine
from fleet.projections.caches.maintenances import CacheRef, MaintenanceRow, maintenance_rows
from fleet.projections.events.rows import OPEN
from fleet.projections.machines import OpenEventBrief
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.visibility import listening, visible

# If polls do not reach the backend, an agent repeats its document every five minutes; two repetitions may be missing.
SILENCE = LEAP
# At most this many of each machine's newest reports and gaps are read. Earlier times are not evaluated.
NEWEST = 600
# At most this many machines of a set are read: one that watches is enough.
MOST_MACHINES = 30


def unwatched(machines: Collection[tuple[int, datetime | None]], window: Span, *, now: datetime) -> tuple[Span, ...]:
    """Return the times in which none of these machines (row id, last good poll) is known to have polled Azure.

    The evidence is the machines' reports, and their polls since the time from which polling gaps are recorded. A
    machine does not count before its first report. One query.
    """
    ids = [pk for pk, _ in machines][:MOST_MACHINES]
    polls = dict(machines)
    evidence = grouped(((what, pk), Span(begins, ends)) for pk, what, begins, ends in _known(ids))
    reports = {pk: sorted(span.begin for span in spans) for (what, pk), spans in evidence.items() if what == "report"}
    if not reports:
        return ()
    stretches = []
    for pk, times in reports.items():
        known, poll, gaps = [Span(at, at) for at in times], polls[pk], evidence["gap", pk]
        if poll is not None:
            full = [gaps[-1].begin] if len(gaps) >= NEWEST else []
            begin = max([*full, *([span.begin for span in evidence["since", pk]] or [poll])])
            known += [*between(gaps, begin, poll), Span(poll, poll)] if begin <= poll else []
        stretches += _stretches(known)
    # If a machine has more reports than were read, the time before them is unknown.
    full = [times[0] for times in reports.values() if len(times) >= NEWEST]
    first = max([min(times[0] for times in reports.values()), *full])
    found = between(stretches, max(window.begin, first), min(window.end, now))
    # Gaps up to a minute are ignored: the time between two reports, and the time since the last poll.
    return tuple(gap for gap in found if gap.seconds > 60)


def _known(ids: Collection[int]) -> list[tuple[int, str, datetime, datetime]]:
    """Return (machine, kind, begin, end) for these machines: each `report` of a document and each polling `gap`, newest
    first, and `since`, the time from which gaps are recorded.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT machine.id, newest.* FROM unnest(%(ids)s::bigint[]) AS machine (id)
            CROSS JOIN LATERAL (
                (SELECT 'report', at, at FROM fleet_observation_all
                 WHERE machine_id = machine.id AND document_id IS NOT NULL ORDER BY epoch DESC, seq DESC LIMIT %(most)s)
                UNION ALL
                (SELECT 'gap', begins_at, ends_at FROM fleet_pollgap
                 WHERE machine_id = machine.id ORDER BY ends_at DESC LIMIT %(most)s)
                UNION ALL
                (SELECT 'since', watched_from, watched_from FROM fleet_presencerow
                 WHERE machine_id = machine.id AND watched_from IS NOT NULL)
            ) AS newest
            """,
            {"ids": list(ids), "most": NEWEST},
        )
        return [(int(pk), str(what), begins, ends) for pk, what, begins, ends in cursor.fetchall()]


def _stretches(known: list[Span]) -> list[Span]:
    """Merge spans that are at most `SILENCE` apart, and return them by time."""
    found: list[Span] = []
    for one in sorted(known, key=lambda one: one.begin):
        if found and one.begin - found[-1].end <= SILENCE:
            found[-1] = Span(found[-1].begin, max(found[-1].end, one.end))
        else:
            found.append(one)
    return found


# Events and cache maintenances between two times, for the fleet, a service, a set or a machine.


# At most this many are drawn. The picture states that more exist, and a shorter period shows them.
LIMIT = 500
MOST_CACHES = 20
# Bounds for the whole fleet, which is read most often: the newest events, and caches under maintenance.
LIMIT_OF_FLEET, CACHES_OF_FLEET = 80, 6
# Longest time from the announcement to the end of a closed event or maintenance.
LONGEST_EVENT = timedelta(days=35)
LONGEST_MAINTENANCE = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class EventSpan(OpenEventBrief):
    """One event with all of its times. `service` is the service of its set."""

    set: SetRef
    service: str
    first_seen_at: datetime
    notice_seconds: int | None
    started_at: datetime | None
    ended_at: datetime | None
    ended_as: EndedAs | None
    certainty: Certainty | None
    duration_seconds: int | None
    watched: bool

    @property
    def began_before(self) -> bool:
        """Return whether the event was already Started when it was first seen, so that its start time is unknown."""
        return self.started_at is not None and self.notice_seconds is None and self.started_at <= self.first_seen_at

    @property
    def end_unseen(self) -> bool:
        """Return whether the end was inferred instead of observed."""
        return self.certainty is Certainty.INFERRED or (self.open and not self.watched)


# Columns of an event and its set that a span needs.
OF_SET = ("kind", "name", "name_suffix", "subscription", "resource_group", "service")
SPAN = {*names_of(EventSpan), *(f"availability_set__{name}" for name in OF_SET)} - {"set", "service"}


@dataclass(frozen=True, slots=True)
class CacheSpan(CacheRef):
    """A cache with its maintenances; `gaps` are times without a listener after the first listener."""

    maintenances: tuple[MaintenanceRow, ...]
    gaps: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Spans:
    """Events by first sighting, and caches by host. `more`: not all events are included. `unwatched` are times in which
    a set or machine is not known to have been watched.
    """

    events: tuple[EventSpan, ...]
    caches: tuple[CacheSpan, ...]
    more: bool
    unwatched: tuple[Span, ...] = ()


def events_within(
    window: Span,
    events: QuerySet[ScheduledEvent] | None = None,
    *,
    types: Collection[str],
    limit: int = LIMIT,
) -> tuple[tuple[EventSpan, ...], bool]:
    """Return up to `limit` events that were announced, Started or open in this period, by first sighting, and whether
    there are more. Two queries: one for open events, one for ended ones.
    """
    rows = visible(ScheduledEvent) if events is None else events
    rows = rows.filter(event_type__in=types) if types else rows
    rows = rows.select_related("availability_set").only(*SPAN).order_by("-first_seen_at", "-pk")
    rows = rows.filter(first_seen_at__lt=window.end)
    ended = rows.filter(
        status=EventStatus.ENDED.value, first_seen_at__gte=window.begin - LONGEST_EVENT, ended_at__gt=window.begin
    )
    found = list(rows.filter(status__in=OPEN)[: limit + 1])
    found += ended[: limit + 1 - len(found) or 1]
    homes = ((row, row.availability_set) for row in found[:limit])
    shown = [from_row(EventSpan, row, set=set_ref(home), service=home.service) for row, home in homes]
    return tuple(sorted(shown, key=lambda span: span.first_seen_at)), len(found) > limit


def caches_within(
    window: Span, caches: QuerySet[Cache], *, now: datetime, limit: int = MOST_CACHES
) -> tuple[CacheSpan, ...]:
    """Return caches by host with their maintenances in this period. If there are more than `limit`, those with a
    maintenance are preferred. Four queries.
    """
    still = Q(status__in=[status.value for status in ACTIVE])
    lasted = visible(Maintenance).filter(
        still | Q(last_at__gt=window.begin) | Q(ended_at__gt=window.begin),
        first_at__lt=window.end,
        first_at__gte=window.begin - LONGEST_MAINTENANCE,
    )
    hit = Exists(lasted.filter(cache=OuterRef("pk")))
    chosen = caches.alias(hit=hit).order_by("-hit", "host", "pk").values_list("pk", "host")
    rows = sorted(chosen[:limit], key=lambda row: row[1])
    ids = [pk for pk, _ in rows]
    of_caches = lasted.filter(cache__in=ids).select_related("cache").order_by("first_at", "pk")[:LIMIT]
    operations = grouped((row.cache_id, row) for row in of_caches)
    first = dict(visible(Coverage).filter(cache__in=ids).values_list("cache").annotate(Min("since")).order_by())
    end = min(window.end, now)
    covered = with_machine().filter(Q(until=None) | Q(until__gt=window.begin), cache__in=ids, since__lt=end)
    heard = grouped((one.cache_id, one) for one in covered)
    found = []
    for pk, host in rows:
        # There is no gap before a machine could first have listened.
        begin = max(window.begin, first[pk]) if pk in first else end
        listened = shaped(heard[pk], begin=window.begin, end=end, now=now)
        gaps = gaps_of(listened, begin=begin, end=end) if begin < end else ()
        found.append(CacheSpan(pk, host, maintenance_rows(operations[pk]), gaps))
    return tuple(found)


def sets_of(service: str) -> QuerySet[AvailabilitySet]:
    return visible(AvailabilitySet).filter(service__iexact=service, merged_into=None)


def caches_of(service: str) -> QuerySet[Cache]:
    """Return the caches of a service: those that state it, and those without a service to which the service's machines
    listen.
    """
    heard = listening().filter(machine__availability_set__service__iexact=service, until=None)
    return visible(Cache).filter(Q(service__iexact=service) | Q(service="", pk__in=heard.values("cache")))


def enrolled_since(**of: Any) -> datetime | None:
    """Return when the first of the machines matching the filters `of` enrolled: before that, nothing was observed. One
    query.
    """
    found: datetime | None = visible(Machine, every=True).filter(**of).aggregate(first=Min("enrolled_at"))["first"]
    return found


def of_fleet(window: Span, *, types: Collection[str] = (), now: datetime, whole: bool = False) -> Spans:
    """Return events and caches of the fleet. The limits are lower than for other subjects unless `whole` is set. Six
    queries.
    """
    limit, most_caches = (LIMIT, MOST_CACHES) if whole else (LIMIT_OF_FLEET, CACHES_OF_FLEET)
    events, more = events_within(window, types=types, limit=limit)
    return Spans(events, caches_within(window, visible(Cache), now=now, limit=most_caches), more)


def of_service(service: str, window: Span, *, types: Collection[str] = (), now: datetime) -> Spans:
    """Return events and caches of a service. Six queries."""
    rows = visible(ScheduledEvent).filter(availability_set__in=sets_of(service))
    events, more = events_within(window, rows, types=types)
    return Spans(events, caches_within(window, caches_of(service), now=now), more)


def of_machines(set_id: int, window: Span, *, types: Collection[str] = (), now: datetime, **of: Any) -> Spans:
    """Return events of a set, the caches to which its machines matching the filters `of` listen, and the times in which
    none of these machines watched. Eight queries.
    """
    events, more = events_within(window, visible(ScheduledEvent).filter(availability_set=set_id), types=types)
    machines = visible(Machine, every=True).filter(**of)
    heard = visible(Coverage).filter(machine__in=machines, until=None)
    caches = caches_within(window, visible(Cache).filter(pk__in=heard.values("cache")), now=now)
    polls = machines.filter(revoked_at=None).order_by("pk").values_list("pk", "presence__last_poll_at")
    return Spans(events, caches, more, unwatched(list(polls[:MOST_MACHINES]), window, now=now))


def of_cache(cache_id: int, window: Span, *, now: datetime) -> Spans:
    """Return one cache with its maintenances. Four queries."""
    return Spans((), caches_within(window, visible(Cache).filter(pk=cache_id), now=now), more=False)


def listened_since(cache_id: int) -> datetime | None:
    """Return the first time at which a machine could listen to a cache. One query."""
    found: datetime | None = visible(Cache).filter(pk=cache_id).values_list("created_at", flat=True).first()
    return found
