"""Records when which machine listened to which cache, because missing notifications prove nothing without a
listener.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.caches.maintenances import EARLY, END_NOT_SEEN_AFTER, SLACK
from fleet.domain.texts import readable
from fleet.domain.timeline import EntryKind
from fleet.models import Cache, Coverage, Maintenance, Observation, PresenceRow
from fleet.models.driver import query
from fleet.operations.intake.keep import AgentReport
from fleet.operations.timeline.entries import tell

SUBSCRIBED = "subscribed"
UNSUPPORTED = "unsupported"
# A machine that reported nothing for this long before a change was absent; an agent reports every 300 s.
SILENT_AFTER = timedelta(seconds=400)


CoverageReport = AgentReport[wire.CoverageData]


def take_settings(reports: Sequence[CoverageReport], caches: Mapping[str, Cache]) -> None:
    """Store the settings of caches that agents report: tier, and number of ports for each shard."""
    for report in sorted(reports, key=lambda report: report.at):
        cache = caches[report.data.cache]
        tier = report.data.tier or cache.tier
        if (cache.tier, cache.divisor) != (tier, report.data.divisor):
            cache.tier, cache.divisor = tier, report.data.divisor
            cache.save(update_fields=["tier", "divisor"])


def take(reports: Sequence[CoverageReport], caches: Mapping[str, Cache], names: Mapping[int, str]) -> None:
    """Process reports that a machine began or stopped listening, in the order of each machine. Older reports change
    nothing.
    """
    if not reports:
        return
    newest: dict[tuple[int, int], Coverage] = {}
    for row in Coverage.objects.filter(
        cache__any={caches[report.data.cache].pk for report in reports},
        machine__any={report.machine_id for report in reports},
        until=None,
    ):
        newest[row.cache_id, row.machine_id] = row
    for report in sorted(reports, key=lambda report: (report.machine_id, report.position)):
        cache = caches[report.data.cache]
        before = newest.get((cache.pk, report.machine_id))
        if before is not None and report.position <= (before.epoch, before.seq):
            continue
        again = before is not None and before.state == _state(report)
        if before is not None and again and _state(report) != SUBSCRIBED:
            before.reason, before.vouched_at = report.data.reason, max(before.vouched_at, report.at)
            before.epoch, before.seq = report.position
            before.save()
            continue
        if before is not None:
            _close(before, report, again=again)
        newest[cache.pk, report.machine_id] = Coverage.objects.create(
            cache=cache,
            machine_id=report.machine_id,
            state=_state(report),
            reason=report.data.reason,
            since=report.at,
            vouched_at=report.at,
            epoch=report.position[0],
            seq=report.position[1],
        )
        _record(report, cache, before, names[report.machine_id], again=again)


def _state(report: CoverageReport) -> str:
    """Return the reported state. A subscription in a cloud that never publishes counts as unsupported (0.1.0
    subscribed).
    """
    return UNSUPPORTED if report.data.cache.endswith(wire.CACHE_HOSTS_WITHOUT_NOTIFICATIONS) else report.data.state


def _close(before: Coverage, report: CoverageReport, *, again: bool) -> None:
    """End a coverage period. If the agent repeats its report (`again`), it was restarted: the period ends at the last
    contact.
    """
    last = before.vouched_at
    previous = Observation.objects.filter(
        machine=report.machine_id, epoch=report.position[0], seq=report.position[1] - 1
    ).values_list("at", flat=True)
    last = min(max([last, *previous]), report.at)
    # Who did not listen before did not listen in the silence either.
    silent = before.state == SUBSCRIBED and (again or report.at - last > SILENT_AFTER)
    before.until = max(before.since, last if silent else report.at)
    before.save(update_fields=["until"])


def _record(report: CoverageReport, cache: Cache, before: Coverage | None, name: str, *, again: bool) -> None:
    state = _state(report)
    listened = before is not None and before.state == SUBSCRIBED
    details: dict[str, Any] = {}
    if state == SUBSCRIBED:
        if again:
            return
        kind = EntryKind.CACHE_LISTENED
        details["after_seconds"] = (report.at - before.since).total_seconds() if before is not None else None
    elif state == "refused":
        kind = EntryKind.CACHE_REFUSED
    elif state == UNSUPPORTED:
        kind = EntryKind.CACHE_UNSUPPORTED
    elif not listened:
        # The connection is already recorded as lost; the page gives the reason why it cannot return.
        if before is not None:
            return
        kind, details["listened"] = EntryKind.CACHE_LOST, False
    elif _announced(cache, report.at):
        kind, details["listened"] = EntryKind.CACHE_LOST, True
    else:
        kind = EntryKind.CACHE_LOST_UNANNOUNCED
    tell(
        kind,
        machine_actor(name),
        at=report.at,
        machine_id=report.machine_id,
        cache_id=cache.pk,
        host=cache.host,
        state=state,
        reason=readable(report.data.reason),
        **details,
    )


def _announced(cache: Cache, at: datetime) -> bool:
    """Return whether a maintenance of the cache explains a lost connection at this time."""
    for row in Maintenance.objects.filter(cache=cache, last_at__gte=at - timedelta(hours=3), first_at__lte=at + SLACK):
        begins = row.began_at or (row.expected_at - EARLY if row.expected_at else row.first_at)
        ends = row.ended_at or max(row.last_at, begins) + END_NOT_SEEN_AFTER
        if begins - SLACK <= at <= ends + SLACK:
            return True
    return False


def vouch() -> None:
    """Set the last contact of every open coverage period to that of the machine. Runs one statement."""
    # Locked rows are left to the next run.
    query(
        f"""
        UPDATE {Coverage._meta.db_table} AS coverage SET vouched_at = chosen.last_heard_at
        FROM (SELECT open.id, presence.last_heard_at FROM {Coverage._meta.db_table} AS open
              JOIN {PresenceRow._meta.db_table} AS presence ON presence.machine_id = open.machine_id
              WHERE open.until IS NULL AND presence.last_heard_at > open.vouched_at + interval '10 seconds'
              ORDER BY open.id FOR UPDATE OF open SKIP LOCKED) AS chosen
        WHERE coverage.id = chosen.id
        """
    )
