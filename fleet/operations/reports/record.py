"""Recording of reports: one transaction for a whole batch of deliveries.

Phases: number the spools, keep the new reports and their bodies, then process them, all together (`fast_path`) or one
by one (`slow_path`): events first, caches last. One statement a table.
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
    """Commit these deliveries; what each is answered, by (machine row id, spool).

    Nothing is taken from a machine that was revoked since its call began: it is not among the answers. A batch that
    fails is processed again on the slow path: an event or a cache that cannot be computed is quarantined, and reports
    of locked rows wait. `careful`, or earlier reports that wait, choose that path at once. Raises whatever the database
    or a broken report raises, also where the row of a machine is locked; then nothing of the batch is kept.
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
