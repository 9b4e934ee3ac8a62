"""Merging of documents into sightings.

The newest document of a machine (by epoch and sequence number) counts. An older one is only stored, so that repeated
reports change nothing.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fleet.domain.events import NOT_STATED
from fleet.domain.intake import Document, Listing
from fleet.domain.requirements import Requirements, requirements_to_keep
from fleet.domain.sets import PROVISIONAL
from fleet.domain.shapes import grouped, names_of, of_values
from fleet.models import AvailabilitySet, LatestDocument, ScheduledEvent, Sighting, driver
from fleet.models.facts import owners
from fleet.models.machines import Machine
from fleet.operations.intake import presence
from fleet.operations.intake.keep import KeptReport

Position = tuple[int, int]
# The rows are locked when read, and written afterwards: the result is their former state. A document is a good poll,
# too, and is stored with it, so that one table has the presence of machines.
MOVE_LATEST = f"""
    WITH before AS (
        SELECT machine_id, epoch, seq FROM {LatestDocument._meta.db_table}
        WHERE machine_id = ANY(%s::bigint[]) ORDER BY machine_id FOR UPDATE
    ), moved AS (
        INSERT INTO {LatestDocument._meta.db_table} AS latest
            (machine_id, epoch, seq, document_hash, incarnation, at)
        SELECT * FROM unnest(%s::bigint[], %s::int[], %s::bigint[], %s::text[], %s::bigint[], %s::timestamptz[])
        ON CONFLICT (machine_id) DO UPDATE SET
            epoch = EXCLUDED.epoch, seq = EXCLUDED.seq, document_hash = EXCLUDED.document_hash,
            incarnation = EXCLUDED.incarnation, at = EXCLUDED.at
        WHERE (latest.epoch, latest.seq) < (EXCLUDED.epoch, EXCLUDED.seq)
        RETURNING machine_id, at
    ), polls AS (
        {presence.NOTE_POLLS.format(given="SELECT machine_id, at FROM moved ORDER BY machine_id")}
    )
    SELECT machine_id, epoch, seq FROM before
"""
# A set that is merged is locked until then, and cannot be merged before this transaction ends.
REMAINING = f"""
    SELECT id, COALESCE(merged_into_id, id) FROM {AvailabilitySet._meta.db_table}
    WHERE id = ANY(%s::bigint[]) ORDER BY id FOR SHARE
"""
ANY_LISTED = f"""
    SELECT EXISTS (SELECT FROM {Sighting._meta.db_table} WHERE machine_id = ANY(%s::bigint[]) AND gone_at IS NULL)
"""


@dataclass(frozen=True, slots=True)
class MachineDocument:
    """One readable document of one machine, or a reminder of it. `position` is (epoch, seq).

    `left_out` are EventIds that must not be processed now.
    """

    machine_id: int
    position: Position
    at: datetime
    document_hash: str
    incarnation: int | None
    document: Document
    # EventIds of which nothing is made now (see `oddities`); the machine lists none of them already.
    left_out: frozenset[str] = frozenset()

    @property
    def listings(self) -> Iterable[Listing]:
        """The events of the document, without those in `left_out`."""
        if not self.left_out:
            return self.document.listings
        return [listing for listing in self.document.listings if listing.event_id not in self.left_out]


@dataclass(slots=True)
class TakenEvents:
    """Events whose reports were merged (row ids), and `locked`, their rows.

    `new_sightings`: machines that report an event for the first time, by event. `reporters`: machines that list an
    event. `sightings` are yet to be written, under the lock of their events.
    """

    events: set[int] = field(default_factory=set)
    new_sightings: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    reporters: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    sightings: list[Sighting] = field(default_factory=list)
    locked: list[ScheduledEvent] = field(default_factory=list)


def ahead_of_latest(documents: Iterable[MachineDocument]) -> list[MachineDocument]:
    """Return the documents that are newer than their machine's latest one, in order, and store the newest as the
    latest.

    The rows of these machines' latest documents remain locked.
    """
    by_machine = grouped((one.machine_id, one) for one in documents)
    # Sorted, as every caller locks these rows.
    in_order = [sorted(by_machine[machine_id], key=lambda one: one.position) for machine_id in sorted(by_machine)]
    if not in_order:
        return []
    newest = [of_machine[-1] for of_machine in in_order]
    columns = driver.arrays(
        [(one.machine_id, *one.position, one.document_hash, one.incarnation, one.at) for one in newest]
    )
    with driver.cursor() as cursor:
        before = cursor.execute(MOVE_LATEST, [columns[0], *columns]).fetchall()
    latest = {machine_id: (epoch, seq) for machine_id, epoch, seq in before}
    return [one for each in in_order for one in each if one.position > latest.get(one.machine_id, (0, 0))]


def newest_unreadable(rows: Iterable[KeptReport], documents: Mapping[str, Document]) -> dict[int, datetime]:
    """Return the machines (row ids) whose newest document could not be parsed, with the document's time."""
    found: dict[int, tuple[Position, datetime]] = {}
    for row in rows:
        document = documents.get(row.document_hash or "")
        if document is not None and not document.readable:
            found[row.machine_id] = ((row.epoch, row.report.seq), row.report.at)
    if found:
        latest = LatestDocument.objects.filter(machine_id__any=list(found))
        for machine_id, epoch, seq in latest.values_list("machine_id", "epoch", "seq"):
            if (epoch, seq) > found[machine_id][0]:
                del found[machine_id]
    return {machine_id: at for machine_id, (_, at) in found.items()}


def merge(ahead: list[MachineDocument], *, now: datetime, only: Collection[str] | None = None) -> TakenEvents:
    """Merge new documents into sightings, for all events or only for those in `only` (EventIds).

    `ahead` are from `ahead_of_latest`. The caller then locks the events and calls `store`. Runs one query if no events
    are or were listed, else a few.
    """
    merged = TakenEvents()
    machine_ids = sorted({one.machine_id for one in ahead})
    if not any(one.document.listings for one in ahead):
        with driver.cursor() as cursor:
            if cursor.execute(ANY_LISTED, [driver.array(machine_ids)]).fetchone() == (False,):
                # Nothing is listed, and nothing was: as nearly always.
                return merged
    spelled_ids = sorted({listing.event_id for one in ahead for listing in one.listings})
    if only is not None:
        spelled_ids = [event_id for event_id in spelled_ids if event_id in only]
    events = _ensure_events(ahead, spelled_ids, now) if spelled_ids else {}
    # No document lists a drill, so no document can end it.
    standing = Sighting.objects.filter(machine_id__any=machine_ids, event__drill=False)
    if only is not None:
        standing = standing.filter(event__event_id__in=only)
    listed = standing.filter(gone_at__isnull=True)
    rows = list(listed | standing.filter(event_id__any=events.values()) if events else listed)
    if not rows and not events:
        return merged
    by_machine: dict[int, dict[int, Sighting]] = defaultdict(dict)
    for row in rows:
        by_machine[row.machine_id][row.event_id] = row
    changed: dict[tuple[int, int], Sighting] = {}
    for one in ahead:
        sightings = by_machine[one.machine_id]
        named: set[int] = set()
        for listing in one.listings:
            event_pk = events.get(listing.event_id)
            if event_pk is None:
                continue
            named.add(event_pk)
            known = sightings.get(event_pk)
            if known is None:
                known = sightings[event_pk] = Sighting(
                    event_id=event_pk, machine_id=one.machine_id, first_at=one.at, first_received_at=now
                )
                merged.new_sightings[event_pk].append(one.machine_id)
            _listed(known, one, listing)
            changed[one.machine_id, event_pk] = known
            merged.reporters[event_pk].add(one.machine_id)
        for event_pk, row in sightings.items():
            behind = one.position < (row.listed_epoch, row.listed_seq)
            if event_pk not in named and row.gone_at is None and not behind:
                row.gone_epoch, row.gone_seq = one.position
                row.gone_at, row.gone_incarnation = one.at, one.incarnation
                changed[one.machine_id, event_pk] = row
    merged.sightings = [changed[key] for key in sorted(changed, key=lambda key: (key[1], key[0]))]
    merged.events = {event_pk for _, event_pk in changed}
    return merged


def _listed(row: Sighting, one: MachineDocument, listing: Listing) -> None:
    row.first_at = min(row.first_at, one.at)
    if listing.started and (row.started_at is None or one.at < row.started_at):
        row.started_at = one.at
    if row.listed_epoch is not None and one.position < (row.listed_epoch, row.listed_seq):
        # It had to wait, and newer news did not.
        return
    row.listed_epoch, row.listed_seq = one.position
    row.listed_at, row.listed_incarnation = one.at, one.incarnation
    row.spelled, row.status = listing.spelled, listing.status
    told_before = row.not_before
    for name in NOT_STATED:
        setattr(row, name, getattr(listing, name))
    if listing.started and row.not_before is None:
        # Azure empties NotBefore once the event has started; the machine's earlier value remains valid.
        row.not_before = told_before
    row.resources = list(listing.resources)
    row.gone_epoch = row.gone_seq = row.gone_at = row.gone_incarnation = None


def store(sightings: list[Sighting]) -> None:
    """Write the sightings. Call it after locking their events.

    A row with a foreign key takes a weak lock on the event. Two transactions with weak locks that then want the full
    lock would wait for each other.
    """
    driver.upsert(sightings, unique=["event_id", "machine_id"])


def _ensure_events(ahead: list[MachineDocument], event_ids: list[str], now: datetime) -> dict[str, int]:
    rows = ScheduledEvent.objects.filter(event_id__any=event_ids).values_list("event_id", "pk", "drill")
    stored = {event_id: (pk, drill) for event_id, pk, drill in rows}
    # Azure knows nothing of a drill: a document that lists one is no report about it.
    known = {event_id: pk for event_id, (pk, drill) in stored.items() if not drill}
    missing = [event_id for event_id in event_ids if event_id not in stored]
    if not missing:
        return known
    first: dict[str, MachineDocument] = {}
    stated: dict[str, Listing] = {}
    for one in sorted(ahead, key=lambda one: (one.at, one.machine_id)):
        for listing in one.listings:
            first.setdefault(listing.event_id, one)
            stated.setdefault(listing.event_id, listing)
    reporters = Machine.every.filter(pk__any={first[event_id].machine_id for event_id in missing})
    of_set = names_of(Requirements)
    columns = [f"availability_set__{name}" for name in ("kind", *of_set)]
    of_reporters = reporters.values_list("pk", "availability_set_id", *columns)
    homes = {pk: (set_id, of_values(Requirements, values)) for pk, set_id, _, *values in of_reporters}
    nameless = {pk for pk, _, kind, *_ in of_reporters if kind == PROVISIONAL}
    from_nameless = [event_id for event_id in missing if first[event_id].machine_id in nameless]
    asked = {event_id: (first[event_id].machine_id, stated[event_id].resources) for event_id in from_nameless}
    owned = owners.named_owners(asked, now=now) if asked else {}
    required = {
        pk: of_values(Requirements, values)
        for pk, *values in AvailabilitySet.objects.filter(pk__in=set(owned.values())).values_list("pk", *of_set)
    }
    places = {event_id: homes[first[event_id].machine_id] for event_id in missing}
    places |= {event_id: (set_id, required[set_id]) for event_id, set_id in owned.items()}
    # Locked against a merge; for each the set that remains after one.
    with driver.cursor() as cursor:
        wanted = driver.array(sorted({set_id for set_id, _ in places.values()}))
        remaining: dict[Any, Any] = dict(cursor.execute(REMAINING, [wanted]).fetchall())
    made = []
    # Sorted by key, like every write here, so that two processes never wait for each other in a circle.
    for event_id in missing:
        (set_id, required_here), seen = places[event_id], {"created_at": now, "first_seen_at": first[event_id].at}
        home, kept = remaining[set_id], requirements_to_keep(required_here)
        event = ScheduledEvent(event_id=event_id, availability_set_id=home, kept=kept, **seen)
        if event_id in owned:
            # Only machines of other sets have listed it; the values are from one of these.
            for name in NOT_STATED:
                setattr(event, name, getattr(stated[event_id], name))
            event.resources, event.watched = list(stated[event_id].resources), False
        made.append(event)
    ScheduledEvent.objects.bulk_create(made, ignore_conflicts=True)
    return known | dict(ScheduledEvent.objects.filter(event_id__any=missing).values_list("event_id", "pk"))
