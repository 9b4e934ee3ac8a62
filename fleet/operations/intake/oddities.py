"""Reports that cannot be parsed or are refused, within limits; and reports that wait to be processed.

The subject of a waiting report is what it is about: an event (EventId), a cache (host name) or a machine (row id).
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from drydock_agent import wire

from fleet.domain.actor import machine as machine_actor
from fleet.domain.intake import BYTES, ODDITIE_PERIOD, UNUSABLE, Document, cost, fits_hourly_limit
from fleet.domain.reasons import Reason
from fleet.domain.scheduling import HELD as HELD_KINDS
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.timeline import EntryKind
from fleet.models import QuarantinedRow, ScheduledEvent, WaitingReport
from fleet.models.facts.machines import names_and_sets
from fleet.operations.intake import presence
from fleet.operations.intake.keep import Delivery, KeptReport, Numbered, ParsedReport, load_kept
from fleet.operations.timeline.entries import tell

# This many waiting reports are processed by one tick.
MOST = 1000
# This many reports beyond their machine's limits are retried by one tick.
TRIED_AGAIN = 50
# A report that is locked out for this long is shown.
SHOWN_AFTER = timedelta(seconds=10)
# As Postgres calls it.
HELD = "LockNotAvailable"


def waiting(
    what: QuarantineKind, about: Collection[str], machine_ids: Collection[int] = ()
) -> dict[str, list[WaitingReport]]:
    """Return the waiting reports about these subjects, and all of these machines (row ids), oldest first, by
    subject.
    """
    found: dict[str, list[WaitingReport]] = defaultdict(list)
    rows = WaitingReport.objects.filter(what=what.value)
    for row in (rows.filter(about__in=about) | rows.filter(machine_id__in=machine_ids)).order_by("pk"):
        found[row.about].append(row)
    return dict(found)


def claim(what: QuarantineKind, about: Collection[str]) -> list[WaitingReport]:
    """Lock and return the waiting reports about these subjects, oldest first."""
    rows = WaitingReport.objects.filter(what=what.value, about__in=about)
    return list(rows.select_for_update().order_by("pk"))


def kinds() -> set[QuarantineKind]:
    """Return the kinds of waiting reports that exist."""
    return {QuarantineKind(what) for what in WaitingReport.objects.order_by().values_list("what", flat=True).distinct()}


def oldest(*, now: datetime) -> dict[QuarantineKind, set[str]]:
    """Return the subjects of the oldest waiting reports, by kind. Quarantined events whose retry is not due are
    omitted.
    """
    found: dict[QuarantineKind, set[str]] = defaultdict(set)
    held = WaitingReport.objects.filter(what__in=HELD_KINDS)
    for what, about in held.order_by("pk").values_list("what", "about")[:MOST]:
        found[QuarantineKind(what)].add(about)
    if events := found.get(QuarantineKind.EVENT):
        later = QuarantinedRow.objects.filter(what=QuarantineKind.EVENT.value, next_try_at__gt=now)
        events -= set(ScheduledEvent.objects.filter(pk__in=later.values("row_id")).values_list("event_id", flat=True))
    return found


def waited_for(event_pks: Collection[int]) -> set[int]:
    """Return those of these events (row ids) about which reports wait. Runs one query."""
    waits = WaitingReport.objects.filter(what=QuarantineKind.EVENT.value)
    events = ScheduledEvent.objects.filter(pk__any=event_pks, event_id__in=waits.values("about"))
    return set(events.values_list("pk", flat=True))


def add(what: QuarantineKind, about: str, positions: Collection[tuple[int, int, int]], *, now: datetime) -> None:
    """Let these reports (machine row id, epoch, seq) wait for the subject `about`."""
    WaitingReport.objects.bulk_create(
        [
            WaitingReport(what=what.value, about=about, machine_id=machine_id, epoch=epoch, seq=seq, since=now)
            for machine_id, epoch, seq in sorted(positions)
        ],
        ignore_conflicts=True,
    )


def taken(rows: Sequence[WaitingReport]) -> None:
    """Delete these waiting reports, because they were processed."""
    if rows:
        WaitingReport.objects.filter(pk__in=[row.pk for row in rows]).delete()


def documents(most: int) -> list[WaitingReport]:
    """Return the newest partly processed document of each machine, longest waiting first, at most `most`."""
    newest: dict[int, WaitingReport] = {}
    rows = WaitingReport.objects.filter(what=QuarantineKind.DOCUMENT.value).order_by("since", "pk")
    for row in rows[:MOST]:
        known = newest.get(row.machine_id)
        if (known is not None and (row.epoch, row.seq) > (known.epoch, known.seq)) or (
            known is None and len(newest) < most
        ):
            newest[row.machine_id] = row
    return list(newest.values())


def over_limit(*, before: datetime) -> list[WaitingReport]:
    """Lock and return reports that exceeded their machine's limit before this time and are due for a retry."""
    rows = WaitingReport.objects.filter(what=QuarantineKind.BEYOND.value, since__lte=before)
    return list(rows.select_for_update(skip_locked=True).order_by("pk")[:TRIED_AGAIN])


def load(rows: Sequence[WaitingReport]) -> list[KeptReport]:
    """Return the stored reports to which these rows refer."""
    keys = {(row.machine_id, row.epoch, row.seq) for row in rows}
    return load_kept(keys) if keys else []


def show(*, now: datetime) -> None:
    """Quarantine the subjects for whose lock reports have waited long, so that users see them. They are still
    retried.
    """
    waits = WaitingReport.objects.filter(what=QuarantineKind.EVENT.value, since__lte=now - SHOWN_AFTER)
    held = list(ScheduledEvent.objects.filter(event_id__in=waits.values("about")).values_list("pk", flat=True))
    shown = QuarantinedRow.objects.filter(what=QuarantineKind.EVENT.value, reason=HELD)
    shown.exclude(row_id__in=held).delete()
    shown.update(next_try_at=now)
    QuarantinedRow.objects.bulk_create(
        [
            QuarantinedRow(what=QuarantineKind.EVENT.value, row_id=pk, since=now, reason=HELD, next_try_at=now)
            for pk in sorted(held)
        ],
        ignore_conflicts=True,
    )


# Unreadable and refused reports: stored within limits, and recorded on the timeline.

# Machine (row id), spool, seq.
Place = tuple[int, str, int]


@dataclass(slots=True)
class OverLimit:
    """The part of a batch that exceeds the limits: hashes of bodies, and reports.

    `since`: machines (row ids) that exceed their limit for the first time in the hour, and since when.
    """

    hashes: set[str] = field(default_factory=set)
    reports: set[Place] = field(default_factory=set)
    since: dict[int, datetime] = field(default_factory=dict)


def over_measure(
    deliveries: Sequence[Delivery], bodies: Mapping[str, bytes], documents: Mapping[str, Document], *, now: datetime
) -> OverLimit:
    """Return what exceeds the hourly limits on data that cannot be parsed. Runs one query; none if everything is
    readable.
    """
    odd: dict[int, list[tuple[str, ParsedReport, int]]] = defaultdict(list)
    for delivery in deliveries:
        for report in delivery.reports:
            size = _odd_size(report, bodies, documents)
            if size is not None:
                odd[delivery.machine_id].append((delivery.spool, report, size))
    found = OverLimit()
    if not odd:
        return found
    costs = {machine_id: sum(cost(size) for _, _, size in odd[machine_id]) for machine_id in sorted(odd)}
    within: set[str] = set()
    counted = presence.count_within_period("odd_bytes", costs, since="odd_since", period=ODDITIE_PERIOD, now=now)
    for machine_id, (total, since) in counted.items():
        before = total - costs[machine_id]
        sizes = [size for _, _, size in odd[machine_id]]
        for (spool, report, _), is_kept in zip(odd[machine_id], fits_hourly_limit(before, sizes), strict=True):
            hashes = within if is_kept else found.hashes
            if isinstance(report.data, wire.DocumentData):
                hashes.add(report.data.hash)
            if not is_kept:
                found.reports.add((machine_id, spool, report.seq))
        if before <= BYTES < total:
            found.since[machine_id] = since
    found.hashes -= within
    return found


def _odd_size(report: ParsedReport, bodies: Mapping[str, bytes], documents: Mapping[str, Document]) -> int | None:
    """Return the size in bytes of a report that could not be parsed; None if it could."""
    if isinstance(report.data, wire.DocumentData):
        return None if documents[report.data.hash].readable else len(bodies[report.data.hash])
    return len(json.dumps(report.data)) if report.flag and isinstance(report.data, dict) else None


def without(
    deliveries: Iterable[Delivery], beyond: OverLimit, bodies: dict[str, bytes], documents: dict[str, Document]
) -> list[Delivery]:
    """Return the deliveries without the data beyond the limits; only hash and size of it remain, here and in
    `bodies`.
    """
    for each in beyond.hashes:
        documents[each] = Document(readable=False, flags=(Reason("body-not-kept", bytes=len(bodies[each])),))
        bodies[each] = b""

    def cut(delivery: Delivery, report: ParsedReport) -> ParsedReport:
        odd = (delivery.machine_id, delivery.spool, report.seq) in beyond.reports and isinstance(report.data, dict)
        return replace(report, data={"bytes": len(json.dumps(report.data))}) if odd else report

    return [replace(one, reports=[cut(one, report) for report in one.reports]) for one in deliveries]


def record_oddities(
    deliveries: Sequence[Delivery],
    news: Sequence[KeptReport],
    documents: Mapping[str, Document],
    new_hashes: set[str],
    beyond: OverLimit,
    numbered: Mapping[tuple[int, str], Numbered],
    *,
    now: datetime,
) -> None:
    """Write timeline entries for reports that cannot be parsed or are refused; for data beyond the limits only one.

    A repeated batch writes no further entries.
    """
    found: list[tuple[EntryKind, int, datetime, dict[str, Any]]] = []
    recorded: set[str] = set()
    silent = {(machine_id, seq) for machine_id, _, seq in beyond.reports}
    for row in news:
        if (row.machine_id, row.report.seq) in silent:
            continue
        document = documents.get(row.document_hash or "")
        if row.document_hash is not None and document is None:
            unknown: dict[str, Any] = {"reason": Reason("document-unknown")}
            found.append((EntryKind.REPORT_UNKNOWN, row.machine_id, now, unknown))
        # Once for each such body: an answer that stays empty for hours is one piece of news.
        odd = document is not None and (not document.readable or UNUSABLE in document.flags)
        if document is not None and odd and row.document_hash in new_hashes - recorded:
            recorded.add(row.document_hash or "")
            flags = document.flags if not document.readable else (UNUSABLE,)
            found.append((EntryKind.DOCUMENT_UNREADABLE, row.machine_id, row.report.at, {"flags": flags}))
        if row.report.flag:
            reason = Reason("report-kept", kind=row.report.kind, flag=row.report.flag)
            found.append((EntryKind.REPORT_UNKNOWN, row.machine_id, row.report.at, {"reason": reason}))
    for machine_id, since in beyond.since.items():
        reason = Reason("too-much-not-understood", megabytes=BYTES // 1024**2, until=since + ODDITIE_PERIOD)
        found.append((EntryKind.REPORT_UNKNOWN, machine_id, now, {"reason": reason}))
    refused = {(one.key, seq): why for one in deliveries for seq, why in one.refused if seq > numbered[one.key].before}
    for ((machine_id, _), seq), why in refused.items():
        found.append((EntryKind.REPORT_REFUSED, machine_id, now, {"seq": seq, "reason": why}))
    machines = names_and_sets({machine_id for _, machine_id, _, _ in found})
    for kind, machine_id, at, data in found:
        name, set_id = machines[machine_id]
        tell(kind, machine_actor(name), at=at, machine_id=machine_id, set_id=set_id, **data)
