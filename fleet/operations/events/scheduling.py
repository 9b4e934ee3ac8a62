"""Scheduling of event checks: which changes make events due, and the due events in portions.

Each change by a user, machine or Azure writes a timeline entry in the same transaction. So the timeline is the list of
changes. The position in it is a Postgres snapshot, so that no entry is missed even if its transaction takes long.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from fleet.domain.clock import AHEAD
from fleet.domain.intake import NUMBERS
from fleet.domain.scheduling import AT_ONCE, LONGEST, NEVER, SPREAD
from fleet.domain.states import LIVE_APPROVALS, OPEN_EVENTS, ApprovalState, EndedAs, EventStatus, Presence
from fleet.domain.timeline import Trait, kinds_with
from fleet.models import AvailabilitySet, Entry, LastRun, Machine, ScheduledEvent, Sighting
from fleet.models.approvals import Approval, Claim, Hold, Order
from fleet.models.timeline import NEWEST_ERA
from fleet.operations import locks
from fleet.operations.locks import take_due

# In the order of the columns that `read_news` reads.
ASKED = (Trait.MOVES_MACHINE, Trait.MOVES_EVENT, Trait.CHANGES_FLEET, Trait.CHANGES_PEOPLE)


@dataclass(frozen=True, slots=True)
class News:
    """What new timeline entries are about, as row ids.

    `events` have an entry; in `sets` machines changed; in `moved` sets an event changed. `everywhere`: all events may
    be affected. `people`: an account, role or token changed.
    """

    events: frozenset[int] = frozenset()
    sets: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    everywhere: bool = False
    people: bool = False


def read_news(run: LastRun) -> News:
    """Return what changed since the last read. Sets the new position in `run`, which the caller saves. Runs
    one query.
    """
    known = run.snapshot or "1:1:"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT pg_current_snapshot()::text, max(id), array_agg(DISTINCT event_id),
                   array_agg(DISTINCT availability_set_id) FILTER (WHERE kind = ANY(%s)),
                   array_agg(DISTINCT availability_set_id) FILTER (WHERE kind = ANY(%s)),
                   bool_or(kind = ANY(%s)), bool_or(kind = ANY(%s))
            FROM {Entry._meta.db_table}
            WHERE era = {NEWEST_ERA} AND xid >= %s AND xid < greatest(
                pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
                coalesce(pg_current_xact_id_if_assigned()::text::bigint + 1, 0)) AND CASE
                -- No snapshot speaks of the transaction that took it.
                WHEN xid = pg_current_xact_id()::text::bigint THEN id > %s
                ELSE NOT pg_visible_in_snapshot(xid::text::xid8, %s::pg_snapshot) END
            """,
            [
                *([kind.value for kind in kinds_with(trait)] for trait in ASKED),
                int(known.split(":")[0]),
                run.newest_id,
                known,
            ],
        )
        ((snapshot, newest, events, sets, moved, everywhere, people),) = cursor.fetchall()
    # A restored database starts its transaction count again. A new era has its own entry.
    is_restored = not run.snapshot or int(snapshot.split(":")[1]) < int(known.split(":")[1])
    run.snapshot, run.newest_id = snapshot, max(newest or 0, run.newest_id)
    events, sets, moved = (frozenset(found or ()) - {None} for found in (events, sets, moved))
    return News(events, sets, moved, everywhere=bool(everywhere) or is_restored, people=bool(people))


# Events that are due.

PORTION = 100
NOT_ANSWERED = [state.value for state in LIVE_APPROVALS if state is not ApprovalState.ACCEPTED]
# Of one query, however many names it brings.
IS_OPEN = Q(status__in=OPEN_EVENTS)


def make_due(which: Q) -> None:
    """Let the next reconciliation check the events that match the filter `which`."""
    locks.make_due(ScheduledEvent.objects.filter(which, next_check_at__gt=AT_ONCE), pass_by=True)


@transaction.atomic
def repair(*, now: datetime) -> None:
    """Correct check times that a wrong clock has set too far in the future."""
    make_due(IS_OPEN & Q(next_check_at__gt=now + LONGEST + SPREAD + AHEAD, next_check_at__lt=NEVER))


def make_sets_due(sets: Collection[int]) -> None:
    """Let the next reconciliation check the open events of these sets (row ids), and ended ones whose approval awaits a
    receipt.
    """
    # Two statements, each with its index.
    make_due(IS_OPEN & Q(availability_set__any=sets))
    make_due(Q(status=EventStatus.ENDED.value, next_check_at__lt=NEVER, availability_set__any=sets))


def make_all_due() -> None:
    """Let the next reconciliation check every event that may still change."""
    make_due(Q(next_check_at__lt=NEVER))


def make_turned_due(turned: Mapping[int, int]) -> None:
    """Make the events due that depend on machines whose presence changed. `turned`: new presence number by machine (row
    id).
    """
    if not turned:
        return
    sets = list(Machine.objects.filter(pk__any=turned).values_list("availability_set_id", flat=True).distinct())
    make_sets_due(sets)
    # Over, as it seemed while a machine was silent that is back and still lists it.
    back = [machine_id for machine_id, seen in turned.items() if seen == NUMBERS[Presence.LIVE]]
    listed = Sighting.objects.filter(machine_id__any=back, gone_at__isnull=True, foreign=False)
    make_due(Q(status=EventStatus.ENDED.value, pk__in=listed.values("event_id")))
    # Or as if it had deleted a machine that is back.
    names = Machine.objects.filter(pk__any=back).values_list("resource_name", flat=True)
    spelled = sorted({spelling for name in names for spelling in (name, name.lower(), name.upper())})
    deleted = Q(status=EventStatus.ENDED.value, ended_as=EndedAs.MACHINE_DELETED.value, availability_set__any=sets)
    if spelled:
        make_due(deleted & Q(resources__has_any_keys=spelled))


def make_news_due(news: News) -> None:
    """Make the events due that are affected by new timeline entries."""
    if news.everywhere:
        return make_all_due()
    if news.people:
        # Whether who decided still may is checked again.
        unanswered = Approval.objects.filter(event=OuterRef("pk"), state__in=NOT_ANSWERED)
        make_due(IS_OPEN & Q(Exists(unanswered)))
    if news.events:
        make_due(Q(pk__in=list(news.events)))
    if news.sets:
        make_sets_due(_near(news.sets))
    if news.moved:
        # Decided events and those that began in neighbouring sets: for waiting approvals, for rules, and for drills.
        waits = Approval.objects.filter(event=OuterRef("pk"), state=ApprovalState.WAITING.value)
        undecided = Q(status=EventStatus.SCHEDULED.value) & ~Exists(Approval.objects.filter(event=OuterRef("pk")))
        make_due(IS_OPEN & Q(availability_set__any=_near(news.moved)) & (undecided | Exists(waits)))
    return None


def _near(set_ids: Collection[int]) -> list[int]:
    """Return these sets (row ids) and the other sets of their services."""
    services = AvailabilitySet.objects.filter(pk__in=set_ids).exclude(service="").values_list("service", flat=True)
    others = AvailabilitySet.objects.filter(service__in=list(services)).values_list("pk", flat=True)
    return sorted({*set_ids, *others})


def take(*, now: datetime, decided: bool, besides: Collection[int] = ()) -> list[int]:
    """Take up to a portion of due events, except `besides` (row ids), and return their row ids.

    Other runs of reconciliation skip them for a while. With `decided`, only events with an open approval.
    """
    decisions = f"SELECT event_id FROM {Approval._meta.db_table} WHERE state = ANY(%(live)s)" if decided else ""
    live = [state.value for state in LIVE_APPROVALS]
    return take_due(ScheduledEvent, now=now, most=PORTION, besides=besides, ids_from=decisions, live=live)


# What Postgres knows of the tables that a storm fills.

TABLES = tuple(model._meta.db_table for model in (ScheduledEvent, Sighting, Approval, Order, Claim, Hold))
# A table is analysed again once this many rows and this part of it have changed, and not more often than the pause.
ROWS = 50
PART = 0.2
PAUSE_SECONDS = 5

_CHANGED = """SELECT stat.relname FROM pg_stat_user_tables stat JOIN pg_class class ON class.oid = stat.relid
    WHERE class.oid = ANY (ARRAY(SELECT to_regclass(name) FROM unnest(%(tables)s::text[]) AS name))
        AND stat.n_mod_since_analyze > %(rows)s + %(part)s * greatest(class.reltuples, 0)
        AND greatest(stat.last_analyze, stat.last_autoanalyze, '-infinity')
            < clock_timestamp() - make_interval(secs => %(pause)s)"""


def renew() -> list[str]:
    """Run ANALYZE on tables that changed much since it last ran, and return their names.

    Tables that are being analysed, or belong to other owners, are skipped without waiting.
    """
    with connection.cursor() as cursor:
        cursor.execute(_CHANGED, {"tables": list(TABLES), "rows": ROWS, "part": PART, "pause": PAUSE_SECONDS})
        changed = [name for (name,) in cursor.fetchall()]
        if changed:
            cursor.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(changed)}")
    return changed
