"""Health, readiness and metrics endpoints of this process."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from redis import RedisError

from fleet.domain.db_timeouts import NO_CONNECTION_FREE, Connections, is_timeout, sqlstate
from fleet.gateway import metrics
from fleet.gateway.agents import Agents
from fleet.gateway.http import Request, Send, answer
from fleet.gateway.metrics import Collected, Figures
from fleet.gateway.streams import Streams
from fleet.gateway.threads import Loop, Threads, with_connection
from fleet.gateway.waiters import WakeUps
from fleet.operations import clock
from fleet.operations.orders.sign import unreadable
from fleet.operations.wake_up import takes_writes
from fleet.projections.desk import readiness
from fleet.projections.desk.gauges import late_partitions, quarantined_rows
from fleet.projections.desk.readiness import connections

# How old an answer of `/readyz` may be, and how long a caller waits for a new one, in seconds.
FRESH_SECONDS = 1.0
ANSWER_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class ProbeCache:
    """Result of the readiness checks.

    It covers the database, signing keys, the era, quarantined rows, unusable data of annexes, the connections of all
    processes, and tables whose next partition is missing. `notices` are faults that do not make the process unready.
    """

    database: str
    signing: str = "unknown"
    era: str = "unknown"
    quarantined: Mapping[str, int] = field(default_factory=dict)
    unusable: Mapping[str, int] = field(default_factory=dict)
    connections: Connections | None = None
    late: tuple[str, ...] = ()
    notices: Mapping[str, str] = field(default_factory=dict)
    # Tables that are locked, or in which the next row has no place; jobs that have not run for too long; whether Redis
    # accepts writes; and by how many seconds this process's clock is wrong.
    locked: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    stalled: tuple[str, ...] = ()
    redis: str = "ok"
    skew: float = 0.0


@dataclass(kw_only=True)
class Probes:
    """Handlers of `/healthz`, `/readyz` and `/metrics`."""

    agents: Agents
    streams: Streams
    wake_ups: WakeUps
    loops: list[Loop]
    threads: Threads
    figures: Figures
    migrated: bool = False
    # The last result and its time.
    _found: ProbeCache | None = None
    _found_at: float = float("-inf")

    async def healthz(self, request: Request, send: Send) -> None:
        """Answer 200, or 500 if one of the threads of this process has ended. The database is not checked."""
        ended = [loop.name for loop in self.loops if not loop.is_alive()]
        said = {"status": "failed", "ended": ended} if ended else {"status": "ok"}
        await answer(send, 500 if ended else 200, msgspec.json.encode(said))

    async def readyz(self, request: Request, send: Send) -> None:
        """Answer 200 if this process can accept reports and show pages, and 503 without the database or one of its
        tables.

        The status is "degraded" if one of these is missing: Redis, a key, a secret, a new era after a restore, a
        table's next partition, enough connections, reconciling, routing, or a correct clock.
        """
        found = await self._current()
        redis = found.redis if self.wake_ups.heard else "away"
        ready = found.database == "ok" and not self.agents.stopping
        room = found.connections is None or found.connections.fit
        whole = (redis, found.signing, found.era, found.unusable, room, found.late) == ("ok", "ok", "ok", {}, True, ())
        whole = whole and not found.stalled and not found.skew
        status = "unavailable" if not ready else "ok" if whole else "degraded"
        said: dict[str, Any] = {"status": status, "database": found.database, "redis": redis}
        said |= {"signing": found.signing, "era": found.era}
        # A row that cannot be advanced is no failure of this process.
        said |= {"quarantined": found.quarantined} if found.quarantined else {}
        # Numbers alone: names are for who may sign in.
        said |= found.unusable
        faults: dict[str, Any] = {
            "tables_locked": found.locked,
            "partitions_missing": found.full,
            "stalled": found.stalled,
            "clock": {"skew_seconds": round(found.skew, 1)} if found.skew else {},
            "partitions_late": found.late,
        }
        said |= {name: fault for name, fault in faults.items() if fault}
        said |= found.notices
        if found.connections is not None and not room:
            said["connections"] = {"most": found.connections.most + found.connections.others}
            said["connections"]["room"] = found.connections.room
        await answer(send, 200 if ready else 503, msgspec.json.encode(said))

    async def metrics(self, request: Request, send: Send) -> None:
        """Answer with metrics in Prometheus's text format: those of this process, and those of the fleet if the
        database answers.
        """
        metrics.HELD.set(self.agents.waiters.count)
        metrics.STREAMS.set(self.streams.count)
        # Not in the threads that query the database: they may all be waiting for it.
        body = await asyncio.to_thread(generate_latest)
        registry = CollectorRegistry()
        registry.register(Collected(await self.figures.current()))
        body += generate_latest(registry)
        await answer(send, 200, body, kind=CONTENT_TYPE_LATEST.encode())

    async def _current(self) -> ProbeCache:
        """Return a result that is at most a second old. Concurrent callers share one query."""
        if self._found is not None and time.monotonic() - self._found_at < FRESH_SECONDS:
            return self._found
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await self.threads.share(self._asked)
        except TimeoutError:
            return ProbeCache("too slow")
        if found is not self._found:
            self._found, self._found_at = found, time.monotonic()
        return found

    def _asked(self) -> ProbeCache:
        try:
            return replace(with_connection(self._ask), redis=_redis())
        except DatabaseError as error:
            connection.close()
            if is_timeout(error):
                return self._waits()
            return ProbeCache("no connection free" if sqlstate(error) == NO_CONNECTION_FREE else "away")

    def _waits(self) -> ProbeCache:
        try:
            locked = readiness.locks()
        except DatabaseError:
            connection.close()
            locked = ()
        return ProbeCache("locked", locked=locked) if locked else ProbeCache("too slow")

    def _ask(self) -> ProbeCache:
        if not self.migrated:
            executor = MigrationExecutor(connection)
            self.migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
        if not self.migrated:
            return ProbeCache("migrations are missing")
        if locked := readiness.locked_tables():
            return ProbeCache("locked", locked=locked)
        if full := readiness.tables_without_room():
            return ProbeCache("full", full=full)
        signing = "unreadable" if unreadable(now=clock.now()) else "ok"
        era = "not begun" if readiness.is_era_missing() else "ok"
        troubles = late_partitions(), readiness.notices()
        found = ProbeCache("ok", signing, era, quarantined_rows(), readiness.unusable(), connections(), *troubles)
        now = clock.now()
        return replace(
            found, stalled=readiness.stalled(now=now), skew=0.0 if clock.may_clock_decide() else clock.skew()
        )


def _redis() -> str:
    try:
        return "ok" if takes_writes() else "refuses writes"
    except (RedisError, OSError):
        return "away"
