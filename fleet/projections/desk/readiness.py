"""Checks for `/readyz`, database connections, and the onboarding checklist of a new installation."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import OperationalError, connection, transaction

from fleet import models
from fleet.domain.clock import seconds_since
from fleet.domain.db_timeouts import Connections, is_timeout, read_names
from fleet.domain.desk import RECONCILED_WITHIN
from fleet.domain.sets import PROVISIONAL
from fleet.domain.states import Presence
from fleet.models import partitions
from fleet.models.facts.machines import EntranceFacts, entrance_facts
from fleet.models.reconcile import OVER_AFTER, WrongClock
from fleet.models.timeline import numbering
from fleet.projections.machines import MachineRow, Refusal, machine_rows, refused_enrolments, with_presence
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.visibility import visible


def wrong_clocks(*, now: datetime) -> dict[str, float]:
    """Return the processes with a wrong clock, such as `web 123@host`, each with the seconds by which the clock is
    ahead (negative: behind). One query.
    """
    rows = visible(WrongClock).filter(seen_at__gt=now - OVER_AFTER).order_by("process")
    return {f"{row.kind} {row.process}": row.skew_seconds for row in rows}


# Whether Postgres has room for all connections that the processes of this installation may open.


def connections() -> Connections:
    """Return the number of open database connections, and the maximum. One query."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT coalesce(datname = current_database(), false), coalesce(application_name, ''), count(*),
                   current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
                   - coalesce(current_setting('reserved_connections', true)::int, 0)
            FROM pg_stat_activity
            -- Of sessions of other roles not even that is shown to everybody.
            WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'
            GROUP BY 1, 2
            """
        )
        rows = cursor.fetchall()
    ours = {name: count for own, name, count, _ in rows if own}
    return read_names(ours, others=sum(count for own, _, count, _ in rows if not own), room=rows[0][3])


# First steps of a new installation, until it has seen its first event, real or rehearsed.

# Set by annexes: whether a notification channel reaches people.
WAYS_OUT: list[Callable[[], bool]] = []
NEWEST = 5
MOST_REFUSED = 5


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """Progress of the onboarding checklist.

    `agents` are the newest ones. `unnamed` is a set that needs a name, with the name of a machine in it. `told`: a
    notification channel reaches people. `rehearsable` is a set with a live agent; `drill` is the newest drill's row id.
    `waiting` counts machines that wait for admission; `refused` are recently refused enrolments.
    """

    token: bool
    agents: tuple[MachineRow, ...]
    unnamed: tuple[SetRef, str] | None
    told: bool
    rehearsable: SetRef | None
    drill: int | None
    entrance: EntranceFacts
    waiting: int
    refused: list[Refusal]

    @property
    def live(self) -> bool:
        return any(agent.presence is Presence.LIVE for agent in self.agents)

    @property
    def subscriptions(self) -> str:
        return ", ".join(sorted(self.entrance.subscriptions))

    @property
    def named(self) -> bool:
        return bool(self.agents) and self.unnamed is None

    @property
    def done(self) -> int:
        """Return how many of the five steps of the checklist are done."""
        return sum([self.token or bool(self.agents), self.live, self.named, self.told, self.drill is not None])


def is_new() -> bool:
    """Return whether the installation has never had an event, not even a drill. One query."""
    return not visible(models.ScheduledEvent).exists()


def first_steps(*, now: datetime) -> FirstSteps:
    """Return the progress of the onboarding checklist. Eight queries."""
    valid = visible(models.JoinToken).filter(revoked_at=None, expires_at__gt=now)
    newest = list(with_presence().filter(revoked_at=None).order_by("-pk")[:NEWEST])
    agents = machine_rows(newest, now=now)
    return FirstSteps(
        token=valid.exists(),
        agents=agents,
        unnamed=_unnamed(),
        told=any(reaches_people() for reaches_people in WAYS_OUT),
        rehearsable=next((agent.set for agent in agents if agent.presence is Presence.LIVE), None),
        entrance=entrance_facts(),
        waiting=visible(models.Admission).filter(admitted_at=None).count(),
        refused=refused_enrolments(most=MOST_REFUSED),
        drill=visible(models.Drill).order_by("-pk").values_list("pk", flat=True).first(),
    )


def _unnamed() -> tuple[SetRef, str] | None:
    rows = visible(models.Machine).filter(availability_set__kind=PROVISIONAL, revoked_at=None)
    found = rows.select_related("availability_set").defer("compute").order_by("pk").first()
    return (set_ref(found.availability_set), found.resource_name) if found else None


# Faults for `/readyz` that stop Drydock although its database answers. Each costs one small query.

# Every page and every report needs these tables.
NEEDED = (
    models.ScheduledEvent,
    models.Sighting,
    models.Approval,
    models.Order,
    models.Machine,
    models.PresenceRow,
    models.LatestDocument,
    models.Observation,
    models.Entry,
    User,
    Session,
)
# How long to wait for a locked table: enough for a process that creates a partition to finish.
LOCK_SECONDS = 0.25
# Set by annexes, by name in `/readyz`: returns the code of a fault with which Drydock stays ready, or an empty text.
NOTICES: dict[str, Callable[[], str]] = {}


def notices() -> dict[str, str]:
    """Return faults that do not make Drydock unready, by name."""
    return {name: fault for name, read in NOTICES.items() if (fault := read())}


def is_era_missing() -> bool:
    """Return whether a dump was restored and `begin_era` was not run. Runs one query."""
    return numbering().missing


def locked_tables() -> tuple[str, ...]:
    """Return the tables that Drydock needs and cannot read because another database session locks them. Raises other
    database errors.
    """
    read = ", ".join(f"(SELECT 1 FROM {model._meta.db_table} LIMIT 1)" for model in NEEDED)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_SECONDS:g}s"])
            cursor.execute(f"SELECT {read}")
    except OperationalError as error:
        if not is_timeout(error):
            raise
    else:
        return ()
    # The lock may be released by now.
    return locks() or ("unknown",)


def locks() -> tuple[str, ...]:
    """Return the tables on which another session has or waits for an exclusive lock, which blocks all other
    sessions.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT relname::text FROM pg_locks JOIN pg_class ON pg_class.oid = relation"
            " WHERE mode = 'AccessExclusiveLock' AND relkind IN ('r', 'p') AND pg_table_is_visible(pg_class.oid)"
            " AND relnamespace <> 'pg_catalog'::regnamespace ORDER BY 1"
        )
        return tuple(name for (name,) in cursor.fetchall())


def tables_without_room() -> tuple[str, ...]:
    """Return the tables that have no partition for the next row."""
    return tuple(partitions.tables_without_room())


# By name in `/readyz`: the name under which a job records its runs, and its maximum interval. Annexes add theirs.
JOBS: dict[str, tuple[str, timedelta]] = {"reconciling": (models.LastRun.RECONCILE, RECONCILED_WITHIN)}
# Set by annexes, by name in `/readyz`: counts their unusable objects.
UNUSABLE: dict[str, Callable[[], int]] = {}


def unusable() -> dict[str, int]:
    """Return the number of unusable objects by name, without names whose number is 0."""
    return {what: count for what, counted in UNUSABLE.items() if (count := counted())}


def stalled(*, now: datetime) -> tuple[str, ...]:
    """Return the names of overdue jobs: `reconciling`, or jobs of annexes."""
    names = [name for name, _ in JOBS.values()]
    ran_at = dict(visible(models.LastRun).filter(name__in=names).values_list("name", "ran_at"))
    ages = {name: seconds_since(ran_at.get(name), now=now) for name in names}
    return tuple(what for what, (name, within) in JOBS.items() if ages[name] > within.total_seconds())
