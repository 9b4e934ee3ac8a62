"""Limits on the reports of one machine: reports beyond them are stored and quarantined, with one timeline entry an
hour.

Documents with many events are processed in portions: the first when they are stored, the rest by later runs of
reconciliation.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db.models import Count

from fleet.domain.actor import DRYDOCK
from fleet.domain.intake import (
    NEW_CACHES,
    NEW_STATEMENTS,
    PERIOD,
    PORTION,
    Listed,
    ListedEvents,
    limit_listed_events,
    names,
)
from fleet.domain.reasons import Reason
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.shapes import grouped
from fleet.domain.timeline import EntryKind
from fleet.models import LatestDocument, Machine, Sighting
from fleet.models.facts.machines import names_and_sets
from fleet.operations.intake import keep, oddities, presence
from fleet.operations.intake.listings import MachineDocument
from fleet.operations.timeline.entries import tell

COUNTED = ("new_caches", "new_statements", "quarantined")


def bound(ahead: list[MachineDocument], *, now: datetime) -> list[MachineDocument]:
    """Return these documents without the events that must not be processed now.

    Runs no query if no machine lists many events. The documents must be in order.
    """
    many: dict[int, int] = defaultdict(int)
    for one in ahead:
        many[one.machine_id] += len(one.document.listings) + len(one.document.rest)
    machines = _machines([machine_id for machine_id, count in many.items() if count > PORTION])
    if not machines:
        return ahead
    known = _listed_by(machines)
    room = dict.fromkeys(machines, PORTION)
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
            oddities.add(QuarantineKind.DOCUMENT, str(one.machine_id), [(one.machine_id, *one.position)], now=now)
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
    _, divided, _ = _divided(one, own, known | through, size, PORTION)
    portion = frozenset(divided.now - known - through)
    documents = [_only(one, portion)]
    if (newest := _newest_after(one)) is not None:
        documents.append(_only(newest, portion))
    return documents, portion, not divided.later


def new_caches(hosts: Mapping[str, int], *, now: datetime) -> set[str]:
    """Return the hosts that exceed the hourly limit of new caches. `hosts`: the machine (row id) that named each host
    first.
    """
    named = grouped((machine_id, host) for host, machine_id in sorted(hosts.items()))
    before = _counted("new_caches", {machine_id: len(found) for machine_id, found in named.items()}, now)
    beyond = {machine_id: found[max(0, NEW_CACHES - before[machine_id]) :] for machine_id, found in named.items()}
    counts = {machine_id: len(found) for machine_id, found in beyond.items()}
    quarantine(counts, Reason("too-many-caches"), now=now)
    return {host for found in beyond.values() for host in found}


def may_state(machine_id: int, *, now: datetime) -> bool:
    """Return whether this machine (row id) may change its name, set or instance metadata once more within the hour."""
    if _counted("new_statements", {machine_id: 1}, now)[machine_id] < NEW_STATEMENTS:
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
    found = presence.count_within_period(column, counts, since="bounded_since", period=PERIOD, now=now, others=others)
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
) -> tuple[MachineDocument, ListedEvents, int]:
    """Return the document without omitted events, how its events are divided, and how many events were never parsed."""

    def is_own(resources: Any) -> bool:
        return isinstance(resources, list) and names((str(name).removeprefix("_") for name in resources), own)

    document = one.document.with_rest(lambda event_id, resources: event_id in known or is_own(resources))
    listed = [
        Listed(listing.event_id, own=names(listing.resources, own), known=listing.event_id in known)
        for listing in document.listings
    ]
    divided = limit_listed_events(listed, machines=machines, room=room)
    left_out = frozenset({each.event_id for each in listed} - divided.now)
    unread = len(document.rest) - (len(document.listings) - len(one.document.listings))
    return replace(one, document=document, left_out=left_out), divided, unread


def _only(one: MachineDocument, event_ids: Collection[str]) -> MachineDocument:
    """Return the document with only these events to process."""
    document = one.document.with_rest(lambda event_id, _: event_id in event_ids)
    return replace(
        one,
        document=document,
        left_out=frozenset(listing.event_id for listing in document.listings) - frozenset(event_ids),
    )


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
    return MachineDocument(
        machine_id=one.machine_id,
        position=(row.epoch, row.seq),
        at=row.at,
        document_hash=row.document_hash,
        incarnation=row.incarnation,
        document=document,
    )
