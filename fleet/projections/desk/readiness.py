"""What keeps Drydock from working although its database answers, for `/readyz`. Each costs one small query."""

from datetime import datetime

from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import OperationalError, connection, transaction

from fleet.domain.clock import seconds_since
from fleet.domain.desk import RECONCILED_WITHIN
from fleet.domain.messages.alarms import ROUTED_WITHIN
from fleet.domain.patience import met_a_limit
from fleet.models import (
    Approval,
    Entry,
    LastRun,
    LatestDocument,
    Machine,
    Observation,
    Order,
    PresenceRow,
    ScheduledEvent,
    Sighting,
    partitions,
)
from fleet.projections.messages.gauges import ROUTER
from fleet.projections.sight import seen

# Without one of these no page is shown and no report is stored.
NEEDED = (
    ScheduledEvent,
    Sighting,
    Approval,
    Order,
    Machine,
    PresenceRow,
    LatestDocument,
    Observation,
    Entry,
    User,
    Session,
)
# How long to wait for a table that is locked: whoever makes a partition is done by then.
LOCK_SECONDS = 0.25


def locked_tables() -> tuple[str, ...]:
    """Tables that Drydock needs and that cannot be read, since another session keeps them locked. Raises what else the
    database raises.
    """
    read = ", ".join(f"(SELECT 1 FROM {model._meta.db_table} LIMIT 1)" for model in NEEDED)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_SECONDS:g}s"])
            cursor.execute(f"SELECT {read}")
    except OperationalError as error:
        if not met_a_limit(error):
            raise
    else:
        return ()
    # It may be over by now.
    return locks() or ("unknown",)


def locks() -> tuple[str, ...]:
    """Tables of which another session has, or waits for, a lock that keeps all others waiting."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT relname::text FROM pg_locks JOIN pg_class ON pg_class.oid = relation"
            " WHERE mode = 'AccessExclusiveLock' AND relkind IN ('r', 'p') AND pg_table_is_visible(pg_class.oid)"
            " AND relnamespace <> 'pg_catalog'::regnamespace ORDER BY 1"
        )
        return tuple(name for (name,) in cursor.fetchall())


def tables_without_room() -> tuple[str, ...]:
    """Tables in which the next row finds no partition."""
    return tuple(partitions.tables_without_room())


def stalled(*, now: datetime) -> tuple[str, ...]:
    """What has not run for too long: `reconciling`, `routing`."""
    ran_at = dict(seen(LastRun).filter(name__in=[LastRun.RECONCILE, ROUTER]).values_list("name", "ran_at"))
    limits = {"reconciling": (LastRun.RECONCILE, RECONCILED_WITHIN), "routing": (ROUTER, ROUTED_WITHIN)}
    return tuple(
        what
        for what, (name, within) in limits.items()
        if seconds_since(ran_at.get(name), now=now) > within.total_seconds()
    )
