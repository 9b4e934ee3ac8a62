"""Reports of one machine that cannot be parsed, are refused, wait, or are too many: all are stored, within limits.

The subject of a waiting report is what it is about: an event (EventId), a cache (host name) or a machine (row id).
Reports beyond a machine's limits are quarantined, with one timeline entry an hour. Documents with many events are
processed in portions: the first when they are stored, the rest by later runs of reconciliation.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count
from drydock_agent import wire

from fleet.domain import intake
from fleet.domain.actor import DRYDOCK
from fleet.domain.actor import machine as machine_actor
from fleet.domain.intake import Document
from fleet.domain.reasons import Reason
from fleet.domain.scheduling import HELD as HELD_KINDS
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.shapes import grouped
from fleet.domain.timeline import EntryKind
from fleet.models import LatestDocument, Machine, QuarantinedRow, ScheduledEvent, Sighting, WaitingReport
from fleet.models.facts.machines import names_and_sets
from fleet.operations.intake import keep, presence
from fleet.operations.intake.keep import Delivery, KeptReport, Numbered, ParsedReport, load_kept
from fleet.operations.intake.listings import MachineDocument
from fleet.operations.timeline.entries import tell

# This many waiting reports are processed by one tick.
MOST = 1000
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
    rows = [
        WaitingReport(what=what.value, about=about, machine_id=machine_id, epoch=epoch, seq=seq, since=now)
        for machine_id, epoch, seq in sorted(positions)
    ]
    WaitingReport.objects.bulk_create(rows, ignore_conflicts=True)


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
        if len(newest) < most if known is None else (row.epoch, row.seq) > (known.epoch, known.seq):
            newest[row.machine_id] = row
    return list(newest.values())


def over_limit(*, before: datetime) -> list[WaitingReport]:
    """Lock and return reports that exceeded their machine's limit before this time and are due for a retry."""
    rows = WaitingReport.objects.filter(what=QuarantineKind.BEYOND.value, since__lte=before)
    # As many as one tick retries.
    return list(rows.select_for_update(skip_locked=True).order_by("pk")[:50])


def load(rows: Sequence[WaitingReport]) -> list[KeptReport]:
    """Return the stored reports to which these rows refer."""
    keys = {(row.machine_id, row.epoch, row.seq) for row in rows}
    return load_kept(keys) if keys else []


def show(*, now: datetime) -> None:
    """Quarantine the subjects for whose lock reports have waited long, so that users see them. They are still
    retried.
    """
    waits = WaitingReport.objects.filter(what=QuarantineKind.EVENT.value, since__lte=now - timedelta(seconds=10))
    held = list(ScheduledEvent.objects.filter(event_id__in=waits.values("about")).values_list("pk", flat=True))
    shown = QuarantinedRow.objects.filter(what=QuarantineKind.EVENT.value, reason=HELD)
    shown.exclude(row_id__in=held).delete()
    shown.update(next_try_at=now)
    again = {"what": QuarantineKind.EVENT.value, "since": now, "reason": HELD, "next_try_at": now}
    rows = [QuarantinedRow(row_id=pk, **again) for pk in sorted(held)]
    QuarantinedRow.objects.bulk_create(rows, ignore_conflicts=True)


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
            # The size of a report that could not be parsed.
            size, data = None, report.data
            if isinstance(data, wire.DocumentData):
                size = None if documents[data.hash].readable else len(bodies[data.hash])
            elif report.flag and isinstance(data, dict):
                size = len(json.dumps(data))
            if size is not None:
                odd[delivery.machine_id].append((delivery.spool, report, size))
    found = OverLimit()
    if not odd:
        return found
    costs = {machine_id: sum(intake.cost(size) for _, _, size in odd[machine_id]) for machine_id in sorted(odd)}
    within: set[str] = set()
    counted = presence.count_within_period("odd_bytes", costs, since="odd_since", period=intake.ODDITIE_PERIOD, now=now)
    for machine_id, (total, since) in counted.items():
        before = total - costs[machine_id]
        sizes = [size for _, _, size in odd[machine_id]]
        for (spool, report, _), is_kept in zip(odd[machine_id], intake.fits_hourly_limit(before, sizes), strict=True):
            hashes = within if is_kept else found.hashes
            if isinstance(report.data, wire.DocumentData):
                hashes.add(report.data.hash)
            if not is_kept:
                found.reports.add((machine_id, spool, report.seq))
        if before <= intake.BYTES < total:
            found.since[machine_id] = since
    found.hashes -= within
    return found


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
        odd = document is not None and (not document.readable or intake.UNUSABLE in document.flags)
        if document is not None and odd and row.document_hash in new_hashes - recorded:
            recorded.add(row.document_hash or "")
            flags = document.flags if not document.readable else (intake.UNUSABLE,)
            found.append((EntryKind.DOCUMENT_UNREADABLE, row.machine_id, row.report.at, {"flags": flags}))
        if row.report.flag:
            reason = Reason("report-kept", kind=row.report.kind, flag=row.report.flag)
            found.append((EntryKind.REPORT_UNKNOWN, row.machine_id, row.report.at, {"reason": reason}))
    for machine_id, since in beyond.since.items():
        reason = Reason(
            "too-much-not-understood", megabytes=intake.BYTES // 1024**2, until=since + intake.ODDITIE_PERIOD
        )
        found.append((EntryKind.REPORT_UNKNOWN, machine_id, now, {"reason": reason}))
    refused = {(one.key, seq): why for one in deliveries for seq, why in one.refused if seq > numbered[one.key].before}
    for ((machine_id, _), seq), why in refused.items():
        found.append((EntryKind.REPORT_REFUSED, machine_id, now, {"seq": seq, "reason": why}))
    machines = names_and_sets({machine_id for _, machine_id, _, _ in found})
    for kind, machine_id, at, data in found:
        name, set_id = machines[machine_id]
        tell(kind, machine_actor(name), at=at, machine_id=machine_id, set_id=set_id, **data)


# Limits on what one machine says.

COUNTED = ("new_caches", "new_statements", "quarantined")


def bound(ahead: list[MachineDocument], *, now: datetime) -> list[MachineDocument]:
    """Return these documents without the events that must not be processed now.

    Runs no query if no machine lists many events. The documents must be in order.
    """
    many: dict[int, int] = defaultdict(int)
    for one in ahead:
        many[one.machine_id] += len(one.document.listings) + len(one.document.rest)
    machines = _machines([machine_id for machine_id, count in many.items() if count > intake.PORTION])
    if not machines:
        return ahead
    known = _listed_by(machines)
    room = dict.fromkeys(machines, intake.PORTION)
    quarantined: dict[int, int] = defaultdict(int)
    found = []
    for one in ahead:
        if one.machine_id not in machines:
            found.append(one)
            continue
        own, size = machines[one.machine_id]
        bounded, divided, unread = _divided(one, own, known[one.machine_id], size, room[one.machine_id])
        room[one.machine_id] -= len(divided.now - known[one.machine_id])
        known[one.machine_id] |= divided.now
        quarantined[one.machine_id] += len(divided.quarantined) + unread
        if divided.later:
            add(QuarantineKind.DOCUMENT, str(one.machine_id), [(one.machine_id, *one.position)], now=now)
        found.append(bounded)
    quarantine(quarantined, Reason("too-many-events"), now=now)
    return found


def rest_of(one: MachineDocument) -> tuple[list[MachineDocument], frozenset[str], bool]:
    """Return the next portion of a partly processed document: documents to merge, their EventIds, and whether it is the
    last.

    A newer document of the machine is included, because it may no longer list these events.
    """
    machines = _machines([one.machine_id])
    if not machines:
        return [], frozenset(), True
    own, size = machines[one.machine_id]
    known = _listed_by(machines)[one.machine_id]
    through = _taken_up(one)
    _, divided, _ = _divided(one, own, known | through, size, intake.PORTION)
    portion = frozenset(divided.now - known - through)
    documents = [_only(each, portion) for each in (one, _newest_after(one)) if each is not None]
    return documents, portion, not divided.later


def new_caches(hosts: Mapping[str, int], *, now: datetime) -> set[str]:
    """Return the hosts that exceed the hourly limit of new caches. `hosts`: the machine (row id) that named each host
    first.
    """
    named = grouped((machine_id, host) for host, machine_id in sorted(hosts.items()))
    before = _counted("new_caches", {machine_id: len(found) for machine_id, found in named.items()}, now)
    beyond = {
        machine_id: found[max(0, intake.NEW_CACHES - before[machine_id]) :] for machine_id, found in named.items()
    }
    counts = {machine_id: len(found) for machine_id, found in beyond.items()}
    quarantine(counts, Reason("too-many-caches"), now=now)
    return {host for found in beyond.values() for host in found}


def may_state(machine_id: int, *, now: datetime) -> bool:
    """Return whether this machine (row id) may change its name, set or instance metadata once more within the hour."""
    if _counted("new_statements", {machine_id: 1}, now)[machine_id] < intake.NEW_STATEMENTS:
        return True
    quarantine({machine_id: 1}, Reason("too-many-statements"), now=now)
    return False


def quarantine(counts: Mapping[int, int], reason: Reason, *, now: datetime) -> None:
    """Count quarantined reports, by machine (row id), and write an entry for the first of each machine within
    the hour.
    """
    counts = {machine_id: count for machine_id, count in counts.items() if count}
    if not counts:
        return
    before = _counted("quarantined", counts, now)
    news = sorted(machine_id for machine_id, count in before.items() if not count)
    for pk, (name, set_id) in names_and_sets(news).items():
        data = {"machine": name, "count": counts[pk], "reason": reason}
        tell(EntryKind.QUARANTINED, DRYDOCK, at=now, machine_id=pk, set_id=set_id, **data)


def _counted(column: str, counts: Mapping[int, int], now: datetime) -> dict[int, int]:
    """Add these counts, by machine (row id), to a column. Return the counts that were already there in the current
    hour.
    """
    others = [name for name in COUNTED if name != column]
    found = presence.count_within_period(
        column, counts, since="bounded_since", period=intake.PERIOD, now=now, others=others
    )
    return {machine_id: count - counts[machine_id] for machine_id, (count, _) in found.items()}


def _machines(machine_ids: Collection[int]) -> dict[int, tuple[frozenset[str], int]]:
    """Return the names (lower case) of each machine and the number of machines in its set, by machine (row id)."""
    if not machine_ids:
        return {}
    rows = Machine.every.filter(pk__any=machine_ids).values_list("pk", "resource_name", "called", "availability_set")
    found = {pk: (frozenset(text.lower() for text in texts if text), home) for pk, *texts, home in rows}
    homes = Machine.objects.filter(availability_set__any={home for _, home in found.values()}, revoked_at=None)
    sizes = dict(homes.order_by().values_list("availability_set").annotate(Count("pk")))
    return {pk: (own, sizes.get(home, 1)) for pk, (own, home) in found.items()}


def _listed_by(machine_ids: Collection[int]) -> dict[int, set[str]]:
    """Return the EventIds that each of these machines (row ids) currently lists."""
    found: dict[int, set[str]] = {machine_id: set() for machine_id in machine_ids}
    listed = Sighting.objects.filter(machine_id__any=list(machine_ids), gone_at__isnull=True, event__drill=False)
    for machine_id, event_id in listed.values_list("machine_id", "event__event_id"):
        found[machine_id].add(event_id)
    return found


def _divided(
    one: MachineDocument, own: Collection[str], known: Collection[str], machines: int, room: int
) -> tuple[MachineDocument, intake.ListedEvents, int]:
    """Return the document without omitted events, how its events are divided, and how many events were never parsed."""

    def is_own(resources: Any) -> bool:
        return isinstance(resources, list) and intake.names((str(name).removeprefix("_") for name in resources), own)

    document = one.document.with_rest(lambda event_id, resources: event_id in known or is_own(resources))
    listed = [
        intake.Listed(each.event_id, intake.names(each.resources, own), each.event_id in known)
        for each in document.listings
    ]
    divided = intake.limit_listed_events(listed, machines=machines, room=room)
    left_out = frozenset(each.event_id for each in listed) - divided.now
    unread = len(document.rest) - (len(document.listings) - len(one.document.listings))
    return replace(one, document=document, left_out=left_out), divided, unread


def _only(one: MachineDocument, event_ids: Collection[str]) -> MachineDocument:
    """Return the document with only these events to process."""
    document = one.document.with_rest(lambda event_id, _: event_id in event_ids)
    listed = frozenset(listing.event_id for listing in document.listings)
    return replace(one, document=document, left_out=listed - frozenset(event_ids))


def _taken_up(one: MachineDocument) -> set[str]:
    """Return the EventIds of the document that were already processed, from this document or a newer one of the
    machine.
    """
    event_ids = [listing.event_id for listing in one.document.listings]
    rows = Sighting.objects.filter(machine=one.machine_id, event__event_id__any=event_ids)
    columns = ("listed_epoch", "listed_seq", "gone_epoch", "gone_seq")
    return {
        event_id
        for event_id, *listed_gone in rows.values_list("event__event_id", *columns)
        if any(
            None not in position and tuple(position) >= one.position for position in (listed_gone[:2], listed_gone[2:])
        )
    }


def _newest_after(one: MachineDocument) -> MachineDocument | None:
    row = LatestDocument.objects.filter(machine=one.machine_id).first()
    if row is None or (row.epoch, row.seq) <= one.position:
        return None
    document = keep.read_again([row.document_hash]).get(row.document_hash)
    if document is None or not document.readable:
        return None
    said = (row.at, row.document_hash, row.incarnation, document)
    return MachineDocument(one.machine_id, (row.epoch, row.seq), *said)
