"""Blind spots, as people see them."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from django.conf import settings
from django.db.models import Case, Count, F, OuterRef, QuerySet, Subquery, TextField, Value, When

from fleet.domain.aside import What
from fleet.domain.blind_spots.facts import AgentFacts, BlindSpot, CacheFacts, Confidence, SetAsideFacts, SetFacts
from fleet.domain.blind_spots.find import ORDER, blind_spots
from fleet.domain.intake.spools import MANY_A_DAY
from fleet.domain.reason import Reason, from_json
from fleet.domain.sets import OUTSIDE, PROVISIONAL
from fleet.domain.shapes import like
from fleet.domain.states import OPEN_EVENTS
from fleet.models import Admission, AvailabilitySet, Cache, Machine, ScheduledEvent, SetAside, Sighting, Spool
from fleet.models.facts.events import contact_times, machine_presence, presence_limits
from fleet.projections.caches.coverage import ListenerRow, listener, with_machine
from fleet.projections.caches.maintenances import CacheRef
from fleet.projections.machines import agentless, with_presence
from fleet.projections.pages import Key, Page, cut_page
from fleet.projections.refs import MachineRef, SetRef, plain_name, set_ref
from fleet.projections.sight import seen
from fleet.projections.timeline import eras

OF_EVENTS = (What.EVENT.value, What.RULES.value)


@dataclass(frozen=True, slots=True)
class BlindSpotRow:
    """`names` are all machines concerned, `machines` those among them that have an agent."""

    code: str
    title: Reason
    certainty: Confidence
    reason: Reason
    advice: Reason
    set: SetRef | None
    machines: tuple[MachineRef, ...]
    names: tuple[str, ...]
    cache: CacheRef | None = None
    # Of what is set aside.
    event_id: str = ""

    @property
    def where(self) -> Reason | str:
        """The set's name; of a set that nobody named it is the machines, because a vmId tells people nothing."""
        if self.set is None or self.set.provisional:
            return Reason("some-machines", names=self.names)
        return self.set.name


@dataclass(frozen=True, slots=True)
class BlindSpots:
    """The most dangerous first. `groups` holds the same by kind of blind spot. `watched`: there are agents at all."""

    spots: tuple[BlindSpotRow, ...]
    watched: bool
    server_time: datetime

    @property
    def groups(self) -> tuple[tuple[Reason, tuple[BlindSpotRow, ...]], ...]:
        found: dict[Reason, list[BlindSpotRow]] = defaultdict(list)
        for spot in self.spots:
            found[spot.title].append(spot)
        return tuple((title, tuple(rows)) for title, rows in found.items())


def _row(spot: BlindSpot, sets: dict[int, SetRef]) -> BlindSpotRow:
    return like(
        BlindSpotRow,
        spot,
        set=sets[spot.set_id] if spot.set_id is not None else None,
        machines=tuple(
            MachineRef(id=pk, resource_name=name) for pk, name in zip(spot.machine_ids, spot.names, strict=False)
        ),
        cache=CacheRef(id=spot.cache_id, host=spot.names[0]) if spot.cache_id is not None else None,
    )


def _spools_begun(now: datetime) -> dict[int, int]:
    """How many spools a machine (row id) began within a day, where it is many. One query."""
    young = seen(Spool).filter(first_seen_at__gt=now - timedelta(days=1)).values_list("machine_id")
    return dict(young.annotate(Count("pk")).filter(pk__count__gte=MANY_A_DAY).order_by())


def _caches(now: datetime) -> list[CacheFacts]:
    """Two queries."""
    listeners: dict[int, list[ListenerRow]] = defaultdict(list)
    for row in with_machine().filter(until=None):
        listeners[row.cache_id].append(listener(row, now=now))
    return [
        CacheFacts(
            cache_id=cache.pk,
            host=cache.host,
            listening=any(row.listening for row in listeners[cache.pk]),
            supported=not any(row.state == "unsupported" for row in listeners[cache.pk]),
            reasons=tuple(dict.fromkeys(row.reason or row.state for row in listeners[cache.pk])),
        )
        for cache in seen(Cache).order_by("host")
    ]


def _aside() -> list[SetAsideFacts]:
    """One query, and two more where there is something."""
    rows = list(seen(SetAside).order_by("what", "row_id"))
    events = dict(
        seen(ScheduledEvent)
        .filter(pk__in=[row.row_id for row in rows if row.what in OF_EVENTS])
        .values_list("pk", "event_id")
        if rows
        else ()
    )
    hosts = dict(
        seen(Cache)
        .filter(pk__in=[row.row_id for row in rows if row.what == What.CACHE.value])
        .values_list("pk", "host")
        if rows
        else ()
    )
    named = {What.EVENT.value: events, What.RULES.value: events, What.CACHE.value: hosts}
    return [
        SetAsideFacts(
            what=row.what,
            name=named.get(row.what, {}).get(row.row_id, str(row.row_id)),
            why=row.reason,
            tries=row.tries,
            event_id=events.get(row.row_id, "") if row.what in OF_EVENTS else "",
        )
        for row in rows
    ]


def _machines() -> QuerySet[Machine]:
    """Those that are not revoked, with the set of an open event that each lists without being of that set."""
    listing = seen(Sighting).filter(
        machine=OuterRef("pk"),
        foreign=True,
        gone_at__isnull=True,
        event__status__in=[state.value for state in OPEN_EVENTS],
    )
    unnamed = When(event__availability_set__kind=PROVISIONAL, then=Value(""))
    named = Case(unnamed, default=F("event__availability_set__name"), output_field=TextField())
    of_others = Subquery(listing.order_by("event").annotate(of=named).values("of")[:1])
    return with_presence().filter(revoked_at=None).annotate(lists_of=of_others)


def overview(*, now: datetime) -> BlindSpots:
    """Every blind spot of the fleet. Nine queries."""
    limits = presence_limits()
    begun = _spools_begun(now)
    agents: dict[int, list[AgentFacts]] = defaultdict(list)
    for machine in _machines().order_by("resource_name", "pk"):
        heard_at, polled_at = contact_times(machine)
        row = getattr(machine, "presence", None)
        warned = from_json(machine.set_warnings)
        agents[machine.availability_set_id].append(
            like(
                AgentFacts,
                machine,
                machine_id=machine.pk,
                name=machine.resource_name,
                presence=machine_presence(machine, now=now, limits=limits),
                last_heard_at=heard_at,
                last_poll_at=polled_at,
                clock_offset=row.clock_offset if row else None,
                signatures=row.signatures if row else "",
                outside=next((found for found in warned if isinstance(found, Reason) and found.code == OUTSIDE), None),
                lacking_since=row.lacking_since if row else None,
                spools=begun.get(machine.pk, 0),
            )
        )
    missing: dict[int | None, list[tuple[str, str, str]]] = defaultdict(list)
    for name, zone, size, set_id in (
        agentless().order_by("name", "pk").values_list("name", "zone", "size", "availability_set_id")
    ):
        missing[set_id].append((name, zone, size))
    # A set in which nobody is left hides nothing.
    sets = [
        row
        for row in seen(AvailabilitySet).filter(merged_into=None).order_by("name", "pk")
        if row.pk in agents or row.pk in missing
    ]
    found = blind_spots(
        [
            like(SetFacts, row, set_id=row.pk, agents=tuple(agents[row.pk]), missing=tuple(missing[row.pk]))
            for row in sets
        ],
        waiting=list(
            dict.fromkeys(
                seen(Admission)
                .filter(admitted_at__isnull=True)
                .order_by("machine__resource_name", "pk")
                .values_list("machine__resource_name", flat=True)
            )
        ),
        alone=[name for name, _, _ in missing.get(None, [])],
        caches=_caches(now),
        aside=_aside(),
        era_missing=eras.current().missing,
        now=now,
        version=settings.VERSION,
        protocol=settings.PROTOCOL,
        clock_tolerance=settings.CLOCK_TOLERANCE_SECONDS,
    )
    refs = {row.pk: set_ref(row) for row in sets}
    return BlindSpots(spots=tuple(_row(spot, refs) for spot in found), watched=bool(agents), server_time=now)


def _place(spot: BlindSpotRow) -> Key:
    of = (spot.set.name, spot.set.id) if spot.set else ("", 0)
    # There may be hundreds of names.
    told = sha256("\0".join(spot.names).encode()).hexdigest()[:16]
    return (ORDER.index(spot.code), *of, spot.cache.id if spot.cache else 0, spot.event_id, *spot.names[:1], told)


def page(
    *,
    now: datetime,
    sets: Collection[int] | None = None,
    machines: Collection[int] | None = None,
    names: Collection[str] | None = None,
    cursor: str | None = None,
    size: int | None = None,
) -> Page[BlindSpotRow]:
    """Blind spots, the most dangerous first: those of these sets and machines (ids), and of machines of these names.
    Nine queries.
    """
    plain = {plain_name(name) for name in names} if names is not None else None

    def wanted(spot: BlindSpotRow) -> bool:
        return (
            (sets is None or (spot.set is not None and spot.set.id in sets))
            and (machines is None or any(machine.id in machines for machine in spot.machines))
            and (plain is None or any(plain_name(name) in plain for name in spot.names))
        )

    return cut_page([spot for spot in overview(now=now).spots if wanted(spot)], _place, cursor=cursor, size=size)
