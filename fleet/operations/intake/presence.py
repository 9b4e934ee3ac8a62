"""Times of contact with machines, and the state that agents send with each call."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction

from fleet.domain.clock import AHEAD
from fleet.models import LatestDocument, Machine, PresenceRow, Spool, driver
from fleet.models.driver import query
from fleet.models.facts.machines import PRESENCE, presence_limits, presence_values

TABLE = PresenceRow._meta.db_table
# When machines read a document (corrected), from the given rows, sorted, as every caller locks these rows.
NOTE_POLLS = f"""
    INSERT INTO {TABLE} AS row (machine_id, last_poll_at)
    {{given}}
    ON CONFLICT (machine_id) DO UPDATE SET last_poll_at = GREATEST(row.last_poll_at, EXCLUDED.last_poll_at),
        lacking_since = NULL, unreadable_since = NULL
"""
NOTE_UNREADABLE = f"""
    INSERT INTO {TABLE} AS row (machine_id, unreadable_since)
    SELECT * FROM unnest(%s::bigint[], %s::timestamptz[])
    ON CONFLICT (machine_id) DO UPDATE SET
        unreadable_since = COALESCE(row.unreadable_since, EXCLUDED.unreadable_since),
        last_poll_at = LEAST(row.last_poll_at, COALESCE(row.unreadable_since, EXCLUDED.unreadable_since))
"""


@dataclass(frozen=True, slots=True)
class Contact:
    """One contact with a machine. `heard_at` is the backend's time, `poll_at` the last successful poll of Azure
    (corrected).

    `clock_offset`: seconds by which the machine's clock is ahead. `signatures`: how it handles signatures of orders.
    `metadata`: state of its metadata service (`wire.metadata_text`). Values that the call does not state are empty.
    """

    machine_id: int
    heard_at: datetime
    poll_at: datetime | None = None
    clock_offset: float | None = None
    signatures: str = ""
    metadata: str = ""

    def not_after(self, now: datetime) -> "Contact":
        """Return this contact of a machine, with times in the future replaced by `now`."""
        if self.heard_at <= now:
            return self
        return replace(self, heard_at=now, poll_at=self.poll_at and min(self.poll_at, now))


def flush(*, contacts: Iterable[Contact]) -> int:
    """Write the newest contact of each machine, with one statement sorted by machine. Return the number of rows."""
    newest: dict[int, Contact] = {}
    for contact in contacts:
        known = newest.get(contact.machine_id)
        if known is None or contact.heard_at >= known.heard_at:
            newest[contact.machine_id] = contact
    if not newest:
        return 0
    rows = [
        (row.machine_id, row.heard_at, row.poll_at, row.clock_offset, row.signatures, row.metadata)
        for _, row in sorted(newest.items())
    ]
    with driver.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO {TABLE} AS row (machine_id, last_heard_at, last_poll_at, clock_offset, signatures,
                                            poll_problem, events_version, instance_version, watched_from)
            SELECT machine_id, heard_at, poll_at, clock_offset, signatures, split_part(metadata, ',', 1),
                   split_part(metadata, ',', 2), split_part(metadata, ',', 3), heard_at
            FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::float8[], %s::text[], %s::text[])
                AS given (machine_id, heard_at, poll_at, clock_offset, signatures, metadata)
            ON CONFLICT (machine_id) DO UPDATE SET
                watched_from = COALESCE(row.watched_from, EXCLUDED.watched_from),
                last_heard_at = GREATEST(row.last_heard_at, EXCLUDED.last_heard_at),
                last_poll_at = GREATEST(
                    -- No poll is later than the contact that reported it.
                    CASE WHEN row.last_poll_at <= GREATEST(row.last_heard_at, EXCLUDED.last_heard_at)
                         THEN row.last_poll_at END,
                    -- Nor is it a good one after an answer that could not be read, whatever is said.
                    CASE WHEN EXCLUDED.last_poll_at IS NOT NULL
                         THEN LEAST(EXCLUDED.last_poll_at, row.unreadable_since) END),
                clock_offset = COALESCE(EXCLUDED.clock_offset, row.clock_offset),
                signatures = COALESCE(NULLIF(EXCLUDED.signatures, ''), row.signatures),
                poll_problem = COALESCE(NULLIF(EXCLUDED.poll_problem, ''), row.poll_problem),
                events_version = COALESCE(NULLIF(EXCLUDED.events_version, ''), row.events_version),
                instance_version = COALESCE(NULLIF(EXCLUDED.instance_version, ''), row.instance_version)
            """,
            driver.arrays(rows),
        )
    return len(rows)


def free_among(machine_ids: Iterable[int]) -> set[int]:
    """Return those of these machines (row ids) whose presence row exists and is not locked."""
    rows = PresenceRow.objects.filter(machine__any=list(machine_ids)).order_by("pk")
    with transaction.atomic():
        return set(rows.select_for_update(skip_locked=True, no_key=True).values_list("pk", flat=True))


def note_unreadable(*, polls: Mapping[int, datetime]) -> None:
    """Record that the newest document of these machines (row ids) could not be parsed, at these times (corrected).

    From then on, polls of the machine do not count, until it sends a readable document. Rows are locked in sorted
    order.
    """
    machine_ids = sorted(polls)
    query(NOTE_UNREADABLE, machine_ids, [polls[machine_id] for machine_id in machine_ids])


def note_lacking(*, machine_ids: Iterable[int], now: datetime) -> None:
    """Record that these machines (row ids) refer to a document that is not stored. It applies until their next
    document.
    """
    query(
        f"""
        INSERT INTO {TABLE} AS row (machine_id, lacking_since) SELECT machine_id, %s FROM unnest(%s::bigint[])
            AS given (machine_id)
        ON CONFLICT (machine_id) DO UPDATE SET lacking_since = COALESCE(row.lacking_since, EXCLUDED.lacking_since)
        """,
        now,
        sorted(machine_ids),
    )


def count_within_period(
    column: str, counts: Mapping[int, int], *, since: str, period: timedelta, now: datetime, others: Sequence[str] = ()
) -> dict[int, tuple[int, datetime]]:
    """Add these counts, by machine (row id), to a column that begins again after each `period`.

    `since` is the column with the start of the period; the columns in `others` begin again, too. Return the new count
    and the start of the period, by machine. Runs one statement.
    """
    machine_ids = sorted(counts)
    kept = [f"{name} = CASE WHEN row.{since} > %(begun)s THEN row.{name} ELSE 0 END" for name in (*others, column)]
    rows = query(
        f"""
        INSERT INTO {TABLE} AS row (machine_id, {column}, {since})
        SELECT given.machine_id, given.count, %(now)s
        FROM unnest(%(machines)s::bigint[], %(counts)s::bigint[]) AS given (machine_id, count)
        ON CONFLICT (machine_id) DO UPDATE SET
            {", ".join(kept)} + EXCLUDED.{column},
            {since} = CASE WHEN row.{since} > %(begun)s THEN row.{since} ELSE EXCLUDED.{since} END
        RETURNING machine_id, {column}, {since}
        """,
        now=now,
        begun=now - period,
        machines=machine_ids,
        counts=[counts[pk] for pk in machine_ids],
    )
    return {machine_id: (count, begun) for machine_id, count, begun in rows}


def turned(*, now: datetime) -> dict[int, int]:
    """Return the machines (row ids) whose presence changed since the last call, with the number of the new presence.

    The rules are those of `presence_of`, without revoked machines, since a revocation writes its own entry. Runs one
    statement for the whole fleet. Locked rows are skipped until the next call.
    """
    rows = query(
        f"""
        UPDATE {TABLE} AS row SET seen = chosen.is_now
        FROM (SELECT machine_id, {PRESENCE} AS is_now FROM {TABLE}
              WHERE seen IS DISTINCT FROM {PRESENCE} FOR NO KEY UPDATE SKIP LOCKED) AS chosen
        WHERE row.machine_id = chosen.machine_id RETURNING row.machine_id, row.seen
        """,
        **presence_values(now=now),
    )
    return dict(rows)


def repair(*, now: datetime) -> None:
    """Correct times of contact in the future, written by a wrong clock. These machines count as late until the next
    contact.
    """
    late = now - timedelta(seconds=presence_limits().live)
    query(
        f"""
        UPDATE {TABLE} AS row
        SET last_heard_at = LEAST(last_heard_at, %(late)s), last_poll_at = LEAST(last_poll_at, %(late)s)
        FROM (SELECT machine_id FROM {TABLE} WHERE last_heard_at > %(ahead)s OR last_poll_at > %(ahead)s
              ORDER BY machine_id FOR NO KEY UPDATE SKIP LOCKED) AS wrong
        WHERE row.machine_id = wrong.machine_id
        """,
        late=late,
        ahead=now + AHEAD,
    )


# State that agents send in a long-poll, compared with the recorded one.

COMPARE = f"""
    SELECT machine.id, machine.availability_set_id,
           given.spool IS NOT NULL AND (
               spool.id IS NULL OR spool.acknowledged < given.acknowledged
               -- A newer one of the same machine has spoken.
               OR EXISTS (SELECT FROM {Spool._meta.db_table} AS newer
                          WHERE newer.machine_id = given.machine_id AND newer.epoch > spool.epoch)),
           given.document IS NOT NULL AND latest.document_hash IS DISTINCT FROM given.document
    FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::text[])
        AS given (machine_id, spool, acknowledged, document)
    JOIN {Machine._meta.db_table} AS machine ON machine.id = given.machine_id
    LEFT JOIN {Spool._meta.db_table} AS spool
        ON spool.machine_id = given.machine_id AND spool.spool = given.spool
    LEFT JOIN {LatestDocument._meta.db_table} AS latest ON latest.machine_id = given.machine_id
"""


@dataclass(frozen=True, slots=True)
class AgentHeartbeat:
    """What an agent states in a call without reports: its spool, the acknowledged position, and its newest document's
    hash.

    A value is None if the agent does not state it (0.1.0), or while reports wait in the spool.
    """

    machine_id: int
    spool: str | None = None
    acknowledged: int | None = None
    document: str | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatCheck:
    """Result of checking a heartbeat. `set_id` is the row id of the machine's set.

    `report`: the agent must send reports, because its spool differs from the stored state. `remind`: the agent must
    report its document again, because another one is stored as the newest.
    """

    set_id: int
    report: bool = False
    remind: bool = False


def compare(heartbeats: Collection[AgentHeartbeat]) -> dict[int, HeartbeatCheck]:
    """Compare heartbeats with the stored state, and return the results by machine (row id). Runs one statement that
    uses indexes.
    """
    if not heartbeats:
        return {}
    rows = [(one.machine_id, one.spool, one.acknowledged, one.document) for one in heartbeats]
    with driver.cursor() as cursor:
        found = cursor.execute(COMPARE, driver.arrays(rows))
        return {machine_id: HeartbeatCheck(set_id, *wanted) for machine_id, set_id, *wanted in found}
