"""Loading what is judged for the blind spots of sets, in a fixed number of queries, however many sets."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Q

from fleet.domain.blind_spots.facts import AgentFacts, BlindSpot, SetFacts
from fleet.domain.blind_spots.find import due_at, of_set
from fleet.domain.intake.presence import NUMBERS, Limits, presence_of
from fleet.domain.intake.spools import MANY_A_DAY
from fleet.domain.reason import Reason, from_json
from fleet.domain.sets import OUTSIDE, PROVISIONAL
from fleet.domain.shapes import like
from fleet.domain.states import OPEN_EVENTS, Presence
from fleet.models.events import Sighting
from fleet.models.facts.events import latest, presence_limits
from fleet.models.intake import Spool
from fleet.models.machines import InventoryMachine, Machine
from fleet.models.sets import AvailabilitySet

MACHINE = {
    "machine_id": "pk",
    "name": "resource_name",
    "set_id": "availability_set",
    "region": "region",
    "revoked_at": "revoked_at",
    "agent_version": "agent_version",
    "protocol": "protocol",
    "zone": "zone",
    "size": "size",
    "called": "called",
    "enrolled_at": "enrolled_at",
    "set_warnings": "set_warnings",
    "last_heard_at": "presence__last_heard_at",
    "last_poll_at": "presence__last_poll_at",
    "clock_offset": "presence__clock_offset",
    "signatures": "presence__signatures",
    "lacking_since": "presence__lacking_since",
    "seen": "presence__seen",
    "document_at": "latest_document__at",
}
# A machine that is revoked stands as gone, and one without an agent is none.
WITHOUT_AGENT = Q(machine=None) | Q(machine__revoked_at__isnull=False)


@dataclass(frozen=True, slots=True)
class SetFindings:
    """What is known of one set: its machines by presence, and its blind spots. `due_at`: time alone may change them."""

    facts: SetFacts
    name: str
    counts: Mapping[Presence, int]
    regions: tuple[str, ...]
    spots: tuple[BlindSpot, ...]
    due_at: datetime | None


def judged_by() -> str:
    """What judgements depend on beside what is known of a set: the backend's version, protocol and tolerance."""
    return f"{settings.VERSION} {settings.PROTOCOL} {settings.CLOCK_TOLERANCE_SECONDS}"


def to_judge(*, now: datetime) -> Q:
    """Of the counts of sets: time alone may have changed what is kept, or another backend judged it. By index."""
    by = judged_by()
    return Q(due_at__lte=now) | Q(judged_by__lt=by) | Q(judged_by__gt=by)


def load_findings(set_ids: Collection[int], *, now: datetime) -> list[SetFindings]:
    """Of these sets (row ids) as they are now, without those that were merged into another. Five queries."""
    machines = _machines(set_ids)
    missing: dict[int, list[tuple[str, str, str]]] = defaultdict(list)
    bare = InventoryMachine.objects.filter(WITHOUT_AGENT, availability_set__any=set_ids).order_by("name", "pk")
    for set_id, *told in bare.values_list("availability_set", "name", "zone", "size"):
        missing[set_id or 0].append((told[0], told[1], told[2]))
    elsewhere, begun, limits = _elsewhere(set_ids), _spools_begun(set_ids, now), presence_limits()
    found = []
    for home in AvailabilitySet.objects.filter(pk__any=set_ids, merged_into=None).order_by("name", "pk"):
        counts: Counter[Presence] = Counter()
        agents = []
        for row in machines[home.pk]:
            agent = _agent(row, begun.get(row["machine_id"], 0), elsewhere, now=now, limits=limits)
            counts[agent.presence] += 1
            if row["revoked_at"] is None:
                agents.append(agent)
        facts = like(SetFacts, home, set_id=home.pk, agents=tuple(agents), missing=tuple(missing[home.pk]))
        # A set in which nobody is left hides nothing.
        spots = _judge(facts, now) if agents or facts.missing else ()
        regions = tuple(sorted({row["region"] for row in machines[home.pk]} - {""}))
        found.append(SetFindings(facts, home.name, counts, regions, spots, due_at(facts, spots, now=now)))
    return found


def _judge(facts: SetFacts, now: datetime) -> tuple[BlindSpot, ...]:
    return tuple(
        of_set(
            facts,
            now=now,
            version=settings.VERSION,
            protocol=settings.PROTOCOL,
            clock_tolerance=settings.CLOCK_TOLERANCE_SECONDS,
        )
    )


def _machines(set_ids: Collection[int]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    rows = Machine.objects.filter(availability_set__any=set_ids).order_by("resource_name", "pk")
    for values in rows.values_list(*MACHINE.values()):
        row = dict(zip(MACHINE, values, strict=True))
        found[row["set_id"]].append(row)
    return found


def _agent(
    row: Mapping[str, Any], spools: int, elsewhere: Mapping[int, tuple[str, int]], *, now: datetime, limits: Limits
) -> AgentFacts:
    polled = latest(row["last_poll_at"], row["document_at"])
    heard, revoked = row["last_heard_at"], row["revoked_at"] is not None
    presence = presence_of(last_heard_at=heard, last_poll_at=polled, revoked=revoked, now=now, limits=limits)
    lists_of, lists_of_set = elsewhere.get(row["machine_id"], (None, None))
    warned = from_json(row["set_warnings"])
    return AgentFacts(
        **{name: row[name] for name in ("machine_id", "name", "enrolled_at", "agent_version", "protocol", "zone")},
        **{name: row[name] for name in ("size", "called", "clock_offset", "lacking_since")},
        presence=presence,
        last_heard_at=heard,
        last_poll_at=polled,
        outside=next((found for found in warned if isinstance(found, Reason) and found.code == OUTSIDE), None),
        lists_of=lists_of,
        lists_of_set=lists_of_set,
        signatures=row["signatures"] or "",
        spools=spools,
        turning=not revoked and heard is not None and row["seen"] != NUMBERS[presence],
    )


def _elsewhere(set_ids: Collection[int]) -> dict[int, tuple[str, int]]:
    """By machine (row id): the set of the first open event that it lists without being of that set. One query."""
    rows = Sighting.objects.filter(
        machine__availability_set__any=set_ids,
        foreign=True,
        gone_at__isnull=True,
        event__status__in=[state.value for state in OPEN_EVENTS],
    )
    home = "event__availability_set"
    found: dict[int, tuple[str, int]] = {}
    for machine_id, kind, name, set_id in rows.order_by("event").values_list(
        "machine", f"{home}__kind", f"{home}__name", home
    ):
        found.setdefault(machine_id, ("" if kind == PROVISIONAL else name, set_id))
    return found


def _spools_begun(set_ids: Collection[int], now: datetime) -> dict[int, int]:
    """How many spools a machine (row id) began within a day, where it is many. One query."""
    young = Spool.objects.filter(machine__availability_set__any=set_ids, first_seen_at__gt=now - timedelta(days=1))
    return dict(young.order_by().values_list("machine").annotate(Count("pk")).filter(pk__count__gte=MANY_A_DAY))
