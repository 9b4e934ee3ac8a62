"""Sealing the timeline: once a minute a chain of hashes grows over all rows that can no longer be preceded by others.

What a seal covers: the rows of `fleet_entry` whose (era, xid, id) lies behind that of the seal before it, up to and
with (`last_era`, `last_xid`, `last_id`), in this order. Only rows below the snapshot's horizon are sealed: the
transactions below it have ended, so nothing can appear among them any more. What exactly is hashed states
`fleet.domain.timeline.Chain`.

Whoever owns the database can compute a whole new chain: that is why each head goes to the log, which is kept elsewhere.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.db import connection, transaction

from fleet.domain.timeline import NO_HASH, Chain, ChainHead, Place
from fleet.models import Entry, LastRun, Seal
from fleet.models.reconcile import seconds_since_run
from fleet.models.timeline import SETTLED, lines_between
from fleet.operations.locks import Lock, take_if_free, take_your_time

RUN = "seal"
# Rows in one seal: what came together in a minute, and pieces of this size where much has waited.
MOST_ROWS = 50_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sealed:
    """What one call did: whether it ran at all, and the seals that it added."""

    ran: bool
    heads: tuple[ChainHead, ...] = ()
    rows: int = 0


def horizon() -> int:
    """The transaction below which all have ended."""
    return int(_one("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")[0])


def seal(*, now: datetime, via: str, most_rows: int = MOST_ROWS, most_seals: int = 20) -> Sealed:
    """Seal what is behind the newest seal: up to `most_seals` seals of `most_rows` rows; nothing new makes no seal.

    An advisory lock keeps two apart; the one that does not get it returns at once. Each head goes to the log once it is
    committed.
    """
    heads: list[ChainHead] = []
    rows = 0
    while len(heads) < most_seals:
        with transaction.atomic():
            take_your_time()
            if not take_if_free(Lock.SEAL):
                return Sealed(ran=bool(heads), heads=tuple(heads), rows=rows)
            made = _next_seal(now, most_rows)
            if made is None:
                LastRun.objects.update_or_create(name=RUN, defaults={"ran_at": now, "via": via})
                break
        heads.append(ChainHead(made.number, made.hash))
        rows += made.rows
        log.info("audit.sealed", head=str(heads[-1]), rows=made.rows, via=via)
        if made.rows < most_rows:
            with transaction.atomic():
                LastRun.objects.update_or_create(name=RUN, defaults={"ran_at": now, "via": via})
            break
    return Sealed(ran=True, heads=tuple(heads), rows=rows)


def seal_if_quiet(*, now: datetime, quiet_seconds: float, via: str) -> Sealed:
    """Seal when nobody has for this long: the gateway's part when Celery is gone."""
    if seconds_since_run(RUN, now=now) < quiet_seconds:
        return Sealed(ran=False)
    return seal(now=now, via=via)


def _next_seal(now: datetime, most_rows: int) -> Seal | None:
    newest = Seal.objects.order_by("-number").first()
    after = newest.place if newest else None
    until = _last_place(after, most_rows)
    if until is None:
        return None
    number, previous_hash = (newest.number + 1, newest.hash) if newest else (1, NO_HASH)
    chain = Chain(number=number, previous_hash=previous_hash, sealed_at=now, era=until[0])
    with lines_between(after, until) as lines:
        for block in lines:
            chain.feed(block)
    return Seal.objects.create(
        number=number,
        sealed_at=now,
        last_era=until[0],
        last_xid=until[1],
        last_id=until[2],
        rows=chain.rows,
        previous_hash=previous_hash,
        hash=chain.digest(until),
    )


def _last_place(after: Place | None, most_rows: int) -> Place | None:
    """Where the next seal ends: `most_rows` behind `after`, or at the last row below the horizon; None for no row."""
    behind, parameters = ("TRUE", []) if after is None else ("(era, xid, id) > (%s, %s, %s)", list(after))
    rows = (
        f"SELECT era, xid, id FROM {Entry._meta.db_table} WHERE {behind} AND {SETTLED} ORDER BY era, xid, id LIMIT %s"
    )
    last = f"SELECT era, xid, id FROM ({rows}) AS rows ORDER BY era DESC, xid DESC, id DESC LIMIT 1"
    found = _one(last, [*parameters, most_rows])
    return (int(found[0]), int(found[1]), int(found[2])) if found else None


def _one(statement: str, parameters: list[Any] | None = None) -> tuple[Any, ...]:
    """The first row of a query; an empty one if there is none."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        row: tuple[Any, ...] | None = cursor.fetchone()
    return row or ()
