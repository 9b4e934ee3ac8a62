"""Taking reports: one transaction for a whole batch of deliveries.

Phases: number the spools, keep the bodies, keep the observations, then take what they say, all at once (`take`) or one
by one (`care`): of events first, of caches last.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any

from django.db import transaction

from fleet.domain.actor import machine as machine_actor
from fleet.domain.intake.documents import UNUSABLE, Document
from fleet.domain.reason import Reason
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, Machine
from fleet.operations.aside import is_away
from fleet.operations.intake import backlog, keep, listings, presence, spools
from fleet.operations.locks import impatient
from fleet.operations.reports import care
from fleet.operations.reports.take import readable, take
from fleet.operations.timeline.entries import entry, write


def record(
    *, deliveries: Sequence[keep.Delivery], now: datetime, careful: bool = False
) -> dict[spools.Key, spools.Taken]:
    """Commit these deliveries; what each is answered, by (machine row id, spool).

    Nothing is taken from a machine that was revoked since its call began: it is not among the answers. What fails is
    done once more with care: an event or a cache that cannot be computed is set aside, what somebody holds waits, and
    what was said of it is kept. So it is at once where it is known that somebody waits. Raises whatever the database or
    a broken report raises, also where somebody holds the row of a machine; then nothing of the batch is kept.
    """
    if not careful:
        try:
            return _record(deliveries, now, careful=backlog.somebody_waits())
        except Exception as error:
            if is_away(error):
                raise
    return _record(deliveries, now, careful=True)


@transaction.atomic
def _record(deliveries: Sequence[keep.Delivery], now: datetime, *, careful: bool) -> dict[spools.Key, spools.Taken]:
    with impatient() if careful else nullcontext():
        named = [delivery.machine_id for delivery in deliveries]
        revoked = set(Machine.objects.filter(pk__any=named, revoked_at__isnull=False).values_list("pk", flat=True))
        deliveries = [delivery for delivery in deliveries if delivery.machine_id not in revoked]
        numbered = keep.number_spools(deliveries, now)
        documents, new_hashes = keep.keep_bodies(deliveries, now)
        rows = keep.rows_of(deliveries, numbered)
        new = keep.keep_observations(rows, now)
        news = [row for row in rows if row.key in new]
        written = _oddities(deliveries, news, documents, new_hashes, now)
        found = readable(news, documents)
        ahead = listings.ahead_of_latest(found) if found else []
        _note_presence(ahead, now)
        fresh = {one.machine_id for one in ahead}
        answers, missing = spools.taken(deliveries, numbered, documents, fresh=fresh, now=now)
        written += missing
        versions = {delivery.machine_id: delivery.agent_version for delivery in deliveries}
        if careful:
            care.take(news, ahead, versions, now=now)
        else:
            written += take(news, ahead, versions, now=now)
        write(written)
    return answers


def _oddities(
    deliveries: Sequence[keep.Delivery],
    news: Sequence[keep.KeptReport],
    documents: dict[str, Document],
    new_hashes: set[str],
    now: datetime,
) -> list[Entry]:
    """What was not understood, and what was refused."""
    # By kind, machine, time, data.
    found: list[tuple[EntryKind, int, datetime, dict[str, Any]]] = []
    told: set[str] = set()
    for row in news:
        document = documents.get(row.document_hash or "")
        if row.document_hash is not None and document is None:
            unknown: dict[str, Any] = {"reason": Reason("document-unknown")}
            found.append((EntryKind.REPORT_UNKNOWN, row.machine_id, now, unknown))
        # Once for each such body: an answer that stays empty for hours is one piece of news.
        odd = document is not None and (not document.readable or UNUSABLE in document.flags)
        if document is not None and odd and row.document_hash in new_hashes - told:
            told.add(row.document_hash or "")
            flags = document.flags if not document.readable else (UNUSABLE,)
            found.append((EntryKind.DOCUMENT_UNREADABLE, row.machine_id, row.report.at, {"flags": flags}))
        if row.report.flag:
            reason = Reason("report-kept", kind=row.report.kind, flag=row.report.flag)
            found.append((EntryKind.REPORT_UNKNOWN, row.machine_id, row.report.at, {"reason": reason}))
    for delivery in deliveries:
        for seq, why in delivery.refused:
            found.append((EntryKind.REPORT_REFUSED, delivery.machine_id, now, {"seq": seq, "reason": why}))
    if not found:
        return []
    concerned = Machine.objects.filter(pk__any={machine_id for _, machine_id, _, _ in found}).defer("compute")
    machines = {machine.pk: machine for machine in concerned}
    return [
        entry(
            kind,
            machine_actor(machines[machine_id].resource_name),
            at=at,
            machine_id=machine_id,
            set_id=machines[machine_id].availability_set_id,
            **data,
        )
        for kind, machine_id, at, data in found
    ]


def _note_presence(ahead: Sequence[listings.MachineDocument], now: datetime) -> None:
    # Computing asks who is live: who speaks of an event in this very batch is.
    presence.flush(
        contacts=[
            presence.Contact(machine_id=one.machine_id, heard_at=now, poll_at=one.at)
            for one in ahead
            if one.document.listings
        ]
    )
