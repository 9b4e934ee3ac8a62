"""Stores and processes a batch of reports in one transaction.

Steps: lock and number the spools, store new reports and documents, then process them together (`fast_path`) or one by
one (`slow_path`): events first, caches last.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime

from fleet.operations.intake import bounds, keep, listings, oddities, presence, spools
from fleet.operations.locks import short_lock_timeout
from fleet.operations.quarantine import is_quarantined
from fleet.operations.reports import slow_path
from fleet.operations.reports.fast_path import readable, take
from fleet.operations.timeline.entries import gathered


def record(
    *, deliveries: Sequence[keep.Delivery], now: datetime, careful: bool = False
) -> dict[spools.Key, spools.Taken]:
    """Store and process these deliveries. Return the answer to each call, by (machine row id, spool).

    Reports of a machine that was revoked since the call began are not stored, and the answer is missing. If processing
    fails, the batch is processed on the slow path: a failing event or cache is quarantined, and reports about locked
    rows wait. `careful`, or earlier waiting reports, select the slow path at once. Raises database errors and errors of
    invalid reports, also if a machine's row is locked; then nothing is stored.
    """
    if not careful:
        try:
            return _record(deliveries, now, careful=False)
        except Exception as error:
            if is_quarantined(error):
                raise
    return _record(deliveries, now, careful=True)


@gathered()
def _record(deliveries: Sequence[keep.Delivery], now: datetime, *, careful: bool) -> dict[spools.Key, spools.Taken]:
    is_lock_awaited, revoked = spools.ask([delivery.machine_id for delivery in deliveries])
    careful = careful or is_lock_awaited
    with short_lock_timeout() if careful else nullcontext():
        deliveries = [delivery for delivery in deliveries if delivery.machine_id not in revoked]
        numbered = spools.number_spools(deliveries, now)
        documents, bodies = keep.read_bodies(deliveries)
        beyond = oddities.over_measure(deliveries, bodies, documents, now=now)
        if beyond.reports:
            deliveries = oddities.without(deliveries, beyond, bodies, documents)
        places = [(machine_id, spool) for (machine_id, _), spool in numbered.items()]
        rows = keep.news_among(keep.rows_of(deliveries, numbered), places)
        news, new_hashes = keep.keep(rows, bodies, documents, now)
        oddities.record_oddities(deliveries, news, documents, new_hashes, beyond, numbered, now=now)
        found = readable(news, documents)
        ahead = bounds.bound(listings.ahead_of_latest(found) if found else [], now=now)
        _note_presence(ahead, listings.newest_unreadable(news, documents), now)
        fresh = {one.machine_id for one in ahead}
        answers = spools.taken(deliveries, numbered, documents, fresh=fresh, now=now)
        versions = {delivery.machine_id: delivery.agent_version for delivery in deliveries}
        if careful:
            slow_path.take(news, ahead, versions, now=now)
        else:
            take(news, ahead, versions, now=now)
    return answers


def _note_presence(
    ahead: Sequence[listings.MachineDocument], unreadable: Mapping[int, datetime], now: datetime
) -> None:
    if unreadable:
        presence.note_unreadable(polls=unreadable)
    # The computation needs presence: a machine that reports an event in this very batch is live.
    presence.flush(
        contacts=[
            presence.Contact(machine_id=one.machine_id, heard_at=now, poll_at=one.at)
            for one in ahead
            if one.document.listings
        ]
    )
