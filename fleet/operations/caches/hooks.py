"""Taking how machines' hooks for caches ended. Nothing is computed from it: each report is one entry."""

from collections.abc import Mapping, Sequence

from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind
from fleet.models import Cache, Entry
from fleet.operations.intake.keep import AgentReport
from fleet.operations.intake.preparations import told
from fleet.operations.timeline.entries import entry

CacheHookReport = AgentReport[wire.RedisHookData]


def take(reports: Sequence[CacheHookReport], caches: Mapping[str, Cache], names: Mapping[int, str]) -> list[Entry]:
    """The entries to write, oldest first. `caches` holds the known ones by host, locked; one may be missing."""
    return [
        _entry(report, caches.get(report.data.cache), names[report.machine_id])
        for report in sorted(reports, key=lambda report: report.at)
    ]


def _entry(report: CacheHookReport, cache: Cache | None, name: str) -> Entry:
    data = report.data
    return entry(
        EntryKind.HOOK_SUCCEEDED if data.outcome == "succeeded" else EntryKind.HOOK_FAILED,
        machine_actor(name),
        at=report.at,
        machine_id=report.machine_id,
        cache_id=cache.pk if cache else None,
        **told(data.hook, data.outcome, data.exit_status, data.seconds, data.output),
        phase="redis",
        cache=data.cache,
        notification_type=tidy(data.notification_type),
    )
