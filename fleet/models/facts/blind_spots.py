"""Facts for the blind spots of sets and for notifications about them, loaded with a fixed number of queries."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Q
from django.db.models.functions import Coalesce

from fleet.domain.blind_spots import (
    LACKING,
    MOST_NAMES,
    NEAR_SWITCH_OFF,
    NO_PROBLEM,
    AgentFacts,
    BlindSpot,
    SetFacts,
    due_at,
    of_set,
)
from fleet.domain.clock import seconds_since
from fleet.domain.intake import MANY_A_DAY, NUMBERS, PERIOD, Limits, presence_of
from fleet.domain.reasons import Reason, from_json
from fleet.domain.sets import OUTSIDE, PROVISIONAL
from fleet.domain.shapes import from_row
from fleet.domain.states import OPEN_EVENTS, Presence
from fleet.models.blind_spots import OpenTrouble, trouble
from fleet.models.driver import query
from fleet.models.events import Sighting
from fleet.models.facts.events import latest
from fleet.models.facts.machines import presence_limits
from fleet.models.intake import PresenceRow, Spool
from fleet.models.machines import Admission, AvailabilitySet, InventoryMachine, Machine
from fleet.models.partitions import late_tables
from fleet.models.reconcile import RECENT, LastRun, QuarantinedRow, WrongClock
from fleet.models.timeline import numbering

# Columns of a machine and of its presence that `AgentFacts` has under the same name.
OF_MACHINE = ("enrolled_at", "agent_version", "protocol", "zone", "size", "called")
OF_PRESENCE = ("clock_offset", "lacking_since")
# A revoked machine counts as gone, and one without an agent is not counted.
WITHOUT_AGENT = Q(machine=None) | Q(machine__revoked_at__isnull=False)


@dataclass(frozen=True, slots=True)
class SetFindings:
    """Result of checking one set: machines by presence, and blind spots.

    `due_at` is when the result may change although no machine reports a change.
    """

    facts: SetFacts
    name: str
    counts: Mapping[Presence, int]
    regions: tuple[str, ...]
    spots: list[BlindSpot]
    due_at: datetime | None


def judged_by() -> str:
    """Return what blind spots depend on besides the facts of the set: backend version, protocol and clock tolerance."""
    return f"{settings.VERSION} {settings.PROTOCOL} {settings.CLOCK_TOLERANCE_SECONDS}"


def to_judge(*, now: datetime) -> Q:
    """Return a filter for `SetCount` rows that are due, or that a backend with other settings computed. Uses
    indexes.
    """
    by = judged_by()
    return Q(due_at__lte=now) | Q(judged_by__lt=by) | Q(judged_by__gt=by)


def load_findings(set_ids: Collection[int], *, now: datetime) -> list[SetFindings]:
    """Check these sets (row ids) and return the results. Merged sets are omitted. Runs five queries."""
    machines = _machines(set_ids)
    missing: dict[int, list[tuple[str, str, str]]] = defaultdict(list)
    bare = InventoryMachine.objects.filter(WITHOUT_AGENT, availability_set__any=set_ids).order_by("name", "pk")
    for set_id, *listed in bare.values_list("availability_set", "name", "zone", "size"):
        missing[set_id or 0].append((listed[0], listed[1], listed[2]))
    young = Spool.objects.filter(machine__availability_set__any=set_ids, first_seen_at__gt=now - timedelta(days=1))
    spools = young.order_by().values_list("machine").annotate(Count("pk"))
    begun = dict(spools.filter(pk__count__gte=MANY_A_DAY))
    elsewhere, limits = _elsewhere(set_ids), presence_limits()
    found = []
    for home in AvailabilitySet.objects.filter(pk__any=set_ids, merged_into=None).order_by("name", "pk"):
        counts: Counter[Presence] = Counter()
        agents = []
        for row in machines[home.pk]:
            agent = _agent(row, begun.get(row["pk"], 0), elsewhere, now=now, limits=limits)
            counts[agent.presence] += 1
            if row["revoked_at"] is None:
                agents.append(agent)
        facts = from_row(SetFacts, home, set_id=home.pk, agents=tuple(agents), missing=tuple(missing[home.pk]))
        spots = of_set(
            facts,
            now=now,
            version=settings.VERSION,
            protocol=settings.PROTOCOL,
            clock_tolerance=settings.CLOCK_TOLERANCE_SECONDS,
        )
        if not agents and not facts.missing:
            # A set without machines has no blind spot.
            spots = []
        regions = tuple(sorted({row["region"] for row in machines[home.pk]} - {""}))
        found.append(SetFindings(facts, home.name, counts, regions, spots, due_at(facts, spots, now=now)))
    return found


def _machines(set_ids: Collection[int]) -> dict[int, list[dict[str, Any]]]:
    machines: dict[int, list[dict[str, Any]]] = defaultdict(list)
    rows = Machine.objects.filter(availability_set__any=set_ids).order_by("resource_name", "pk")
    of_presence = (*OF_PRESENCE, "last_heard_at", "last_poll_at", "signatures", "seen", "poll_problem")
    for row in rows.values(
        *OF_MACHINE,
        *("pk", "resource_name", "region", "revoked_at", "set_warnings"),
        set_id=F("availability_set"),
        document_at=F("latest_document__at"),
        **{name: F(f"presence__{name}") for name in of_presence},
    ):
        machines[row["set_id"]].append(row)
    return machines


def _agent(
    row: Mapping[str, Any], spools: int, elsewhere: Mapping[int, tuple[str, int]], *, now: datetime, limits: Limits
) -> AgentFacts:
    polled = latest(row["last_poll_at"], row["document_at"])
    heard, revoked = row["last_heard_at"], row["revoked_at"] is not None
    presence = presence_of(heard, polled, revoked=revoked, now=now, limits=limits)
    is_heard = heard is not None and now - heard <= timedelta(seconds=limits.live)
    lists_of, lists_of_set = elsewhere.get(row["pk"], (None, None))
    warned = from_json(row["set_warnings"])
    return AgentFacts(
        machine_id=row["pk"],
        name=row["resource_name"],
        **{name: row[name] for name in (*OF_MACHINE, *OF_PRESENCE)},
        presence=presence,
        last_heard_at=heard,
        last_poll_at=polled,
        outside=next((found for found in warned if isinstance(found, Reason) and found.code == OUTSIDE), None),
        lists_of=lists_of,
        lists_of_set=lists_of_set,
        signatures=row["signatures"] or "",
        spools=spools,
        poll_problem=row["poll_problem"] if is_heard and row["poll_problem"] not in (None, *NO_PROBLEM) else "",
        turning=not revoked and heard is not None and row["seen"] != NUMBERS[presence],
    )


def _elsewhere(set_ids: Collection[int]) -> dict[int, tuple[str, int]]:
    """Return, by machine (row id), name and row id of another set whose open event the machine lists. Runs one
    query.
    """
    rows = Sighting.objects.filter(
        machine__availability_set__any=set_ids,
        foreign=True,
        gone_at__isnull=True,
        event__status__in=OPEN_EVENTS,
    )
    home = "event__availability_set"
    found: dict[int, tuple[str, int]] = {}
    for machine_id, kind, name, set_id in rows.order_by("event").values_list(
        "machine", f"{home}__kind", f"{home}__name", home
    ):
        found.setdefault(machine_id, ("" if kind == PROVISIONAL else name, set_id))
    return found


# What hides news now, found by a few statements over the whole fleet, whatever its size.

# From here on a set waits for a person, or for the next try, and not for the next tick.
TRIES = 3
# Once a minute, unless something is wrong.
NOT_SEALED = timedelta(minutes=10)
NEARLY_FULL = 0.9
# Postgres stops writing at about 2.1 thousand million.
MOST_TRANSACTIONS = 1_600_000_000

LIVE = "LEAST(presence.last_heard_at, presence.last_poll_at) > %(live)s"
# One scan of narrow rows finds the few machines with which something is wrong; the wide ones are read of these alone.
AGENTS = f"""
    WITH odd AS MATERIALIZED (
        SELECT presence.machine_id, presence.last_poll_at, presence.clock_offset, presence.lacking_since,
               NOT coalesce({LIVE}, false) AS away,
               NOT coalesce(LEAST(presence.last_heard_at, presence.last_poll_at) > %(late)s, false) AS silent
        FROM {PresenceRow._meta.db_table} AS presence
        WHERE presence.last_heard_at IS NOT NULL
              AND (NOT coalesce({LIVE}, false) OR presence.lacking_since < %(lacking)s
                   OR abs(presence.clock_offset) > %(tolerance)s)
    ), faults AS MATERIALIZED (
        SELECT machine.availability_set_id AS set_id, fault.code, count(*) AS count,
               (array_agg(machine.resource_name ORDER BY machine.resource_name))[1:{MOST_NAMES}] AS names,
               max(abs(odd.clock_offset)) AS worst, max(odd.last_poll_at) AS polled
        FROM odd JOIN {Machine._meta.db_table} AS machine ON machine.id = odd.machine_id,
             LATERAL (VALUES ('set-unwatched', odd.away), ('agent-silent', odd.silent),
                             ('document-lacking', odd.lacking_since < %(lacking)s),
                             ('wrong-clock', abs(odd.clock_offset) > %(tolerance)s)) AS fault (code, applies)
        WHERE machine.revoked_at IS NULL AND fault.applies GROUP BY 1, 2
    ), watched AS MATERIALIZED (
        SELECT DISTINCT machine.availability_set_id AS set_id
        FROM {Machine._meta.db_table} AS machine
        JOIN {PresenceRow._meta.db_table} AS presence ON presence.machine_id = machine.id
        WHERE machine.availability_set_id IN (SELECT set_id FROM faults) AND machine.revoked_at IS NULL AND {LIVE}
    )
    SELECT faults.*, home.kind, home.name, home.name_suffix
    FROM faults JOIN {AvailabilitySet._meta.db_table} AS home ON home.id = faults.set_id
    LEFT JOIN watched ON watched.set_id = faults.set_id
    WHERE faults.code <> 'set-unwatched' OR watched.set_id IS NULL
    ORDER BY faults.set_id, faults.code
"""
CACHES = """
    SELECT cache.id, cache.host FROM fleet_cache AS cache
    WHERE EXISTS (SELECT FROM fleet_coverage AS coverage
                  JOIN fleet_machine AS machine ON machine.id = coverage.machine_id
                  WHERE coverage.cache_id = cache.id AND coverage.state = 'subscribed'
                        AND machine.decommissioned_at IS NULL)
          AND NOT EXISTS (SELECT FROM fleet_coverage AS coverage
                          JOIN fleet_presencerow AS presence ON presence.machine_id = coverage.machine_id
                          WHERE coverage.cache_id = cache.id AND coverage.until IS NULL
                                AND coverage.state = 'subscribed' AND presence.last_heard_at > %s)
    ORDER BY cache.id
"""


def is_any_agent_heard(*, now: datetime) -> bool:
    """Return whether any machine is live. If not, Drydock itself was unavailable, or there are no machines yet."""
    since = now - timedelta(seconds=presence_limits().live)
    return PresenceRow.objects.filter(last_heard_at__gt=since, last_poll_at__gt=since).exists()


def troubles(*, now: datetime) -> Iterator[OpenTrouble]:
    """Yield all current blind spots about which a notification is sent, except those of add-on packages.

    Runs ten queries. Of the machines, only those with a fault are read.
    """
    yield from _of_agents(now)
    late = now - timedelta(seconds=presence_limits().late)
    for cache_id, host in query(CACHES, late):
        yield trouble("cache-unheard", cache_id=cache_id, of=host, names=(host,), count=1)
    waiting = Admission.objects.filter(admitted_at__isnull=True).order_by("pk")
    called = Coalesce("machine__resource_name", "resource_name")
    names = tuple(waiting.values_list(called, flat=True)[: MOST_NAMES + 1])
    if names:
        yield trouble("waits-for-admission", names=names[:MOST_NAMES], count=waiting.count())
    within = Machine.objects.filter(presence__quarantined__gt=0, presence__bounded_since__gt=now - PERIOD)
    names = tuple(within.filter(revoked_at=None).order_by("pk").values_list("resource_name", flat=True))
    if names:
        yield trouble("reports-quarantined", names=names[:MOST_NAMES], count=len(names))
    quarantined = dict(
        QuarantinedRow.objects.filter(tries__gte=TRIES).values_list("what").annotate(Count("pk")).order_by("what")
    )
    if quarantined:
        yield trouble("set-aside", names=tuple(quarantined), count=sum(quarantined.values()))
    if numbering().missing:
        yield trouble("era-not-begun")
    wrong = WrongClock.objects.filter(seen_at__gt=now - RECENT).order_by("process")
    named = tuple(f"{row.kind} {row.process}" for row in wrong)
    if named:
        yield trouble("clocks-wrong", names=named[:MOST_NAMES], count=len(named))
    yield from _of_storage(now)


def _of_agents(now: datetime) -> Iterator[OpenTrouble]:
    limits = presence_limits()
    rows = query(
        AGENTS,
        live=now - timedelta(seconds=limits.live),
        late=now - timedelta(seconds=limits.late),
        lacking=now - LACKING,
        tolerance=settings.CLOCK_TOLERANCE_SECONDS,
    )
    for set_id, code, count, names, worst, polled, kind, name, suffix in rows:
        of = f"{name} ({suffix})" if suffix else name
        if kind == PROVISIONAL:
            # The set has no name of its own: it is named by its machines.
            of = ", ".join(names[:3])
        about = {"availability_set_id": set_id, "of": of, "names": names, "count": count}
        yield trouble(code, {"offset": worst} if code == "wrong-clock" else {}, **about)
        if code == "set-unwatched" and polled is not None and now - polled > NEAR_SWITCH_OFF:
            yield trouble("near-switch-off", {"hours": int((now - polled).total_seconds() // 3600)}, **about)


def _of_storage(now: datetime) -> Iterator[OpenTrouble]:
    """Yield the storage faults that Postgres can report. Disk usage is unknown; a setting states the maximum size."""
    sealed_at = LastRun.objects.filter(name="seal").values_list("ran_at", flat=True).first()
    if sealed_at is not None and seconds_since(sealed_at, now=now) > NOT_SEALED.total_seconds():
        yield trouble("not-sealed", {"at": sealed_at})
    late = [found.of.table for found in late_tables()]
    if late:
        yield trouble("partition-late", {"tables": late})
    ((size, transactions),) = query(
        "SELECT pg_database_size(current_database()), age(datfrozenxid)"
        " FROM pg_database WHERE datname = current_database()"
    )
    most = settings.DATABASE_MAX_GIGABYTES * 1024**3
    if most and size > NEARLY_FULL * most:
        yield trouble("database-large", {"size": size, "most": most})
    if transactions > MOST_TRANSACTIONS:
        yield trouble("transactions-run-out", {"transactions": transactions})
