"""Folding: an event's row brought up to what its sightings say, with the timeline entries of what changed."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from django.db.models import Q

from fleet.domain.entries import EntryKind
from fleet.domain.sightings import Folded, Witness, fold
from fleet.domain.states import LOOKS, RELAYED_APPROVALS, ApprovalState, EndedAs, EventStatus
from fleet.models import Approval, Claim, Entry, Hold, Machine, ScheduledEvent, Sighting
from fleet.models.facts import load_witnesses
from fleet.operations import sets
from fleet.operations.entries import entry, write

# Clocks differ by up to two seconds before they are corrected, and polls are a second apart.
EARLY = timedelta(seconds=5)
OURS = (*RELAYED_APPROVALS, ApprovalState.CONFIRMED)


def lock(event_pks: Iterable[int]) -> list[ScheduledEvent]:
    """The events, locked in the order of their ids: events come before approvals, approvals before orders."""
    return list(
        ScheduledEvent.objects.select_for_update(of=("self",))
        .select_related("availability_set")
        .filter(pk__in=set(event_pks))
        .order_by("pk")
    )


def settle_sets(
    events: list[ScheduledEvent], reporters: Mapping[int, set[int]], *, now: datetime
) -> list[ScheduledEvent]:
    """Join provisional sets that turn out to be one, and mark sightings by machines of another named set as foreign.

    Returns the events as they are afterwards.
    """
    written: list[Entry] = []
    moved = False
    for event in events:
        machines = list(
            Machine.objects.select_related("availability_set").filter(pk__in=reporters.get(event.pk, ())).order_by("pk")
        )
        if all(machine.availability_set_id == event.availability_set_id for machine in machines):
            continue
        joined, foreign = sets.join_for_event(event=event, reporters=machines, now=now)
        written += joined
        moved = moved or bool(joined)
        fresh = Sighting.objects.filter(event=event, machine_id__in=foreign, foreign=False)
        for machine in Machine.objects.filter(pk__in=fresh.values("machine_id")).order_by("pk"):
            text = f"{machine.resource_name} lists this event but belongs to another set: kept, without a vote."
            written.append(
                entry(
                    EntryKind.FOREIGN_SIGHTING, text, at=now, event_id=event.pk, machine_id=machine.pk, actor="Drydock"
                )
            )
        fresh.update(foreign=True)
    write(written)
    return lock(event.pk for event in events) if moved else events


def refold(
    events: Sequence[ScheduledEvent],
    *,
    now: datetime,
    new_sightings: Mapping[int, Sequence[int]] | None = None,
) -> list[ScheduledEvent]:
    """Fold locked events again; write what changed with its entries in this transaction. Returns those that changed."""
    if not events:
        return []
    witnesses = load_witnesses(events, now=now)
    # As long as an order of ours may have started it, it was not approved elsewhere.
    ours = Q(accepted_at__isnull=False) | Q(state__in=[state.value for state in OURS])
    approved = set(
        Approval.objects.filter(ours, event__in=[event.pk for event in events]).values_list("event_id", flat=True)
    )
    changed: list[ScheduledEvent] = []
    written: list[Entry] = []
    for event in events:
        of_event = witnesses[event.pk]
        folded = fold(of_event, now=now, was_ended=event.status == EventStatus.ENDED.value)
        if folded is None:
            # Only machines of other sets list it: nothing that counts is known yet.
            continue
        before = _versioned(event)
        was = (event.status, event.watched, event.version == 0)
        if _apply(event, folded, of_event, approved_by_us=event.pk in approved):
            changed.append(event)
        written += _entries(event, folded, was, before, of_event)
        seen = (new_sightings or {}).get(event.pk, ())
        if seen and not was[2]:
            written.append(_also_seen(event, of_event, seen, now))
    if changed:
        # They are there and locked; this is the quick way to update many rows at once.
        ScheduledEvent.objects.bulk_create(
            changed, update_conflicts=True, unique_fields=["event_id"], update_fields=FIELDS
        )
        over = [event.pk for event in changed if event.status == EventStatus.ENDED.value]
        if over:
            # What was said about an event ends with it.
            Claim.objects.filter(event_id__in=over, ended_at__isnull=True).update(ended_at=now)
            Hold.objects.filter(event_id__in=over, ended_at__isnull=True).update(ended_at=now)
    write(written)
    return changed


FIELDS = [
    "status",
    "version",
    "event_type",
    "resource_type",
    "source",
    "description",
    "duration_seconds",
    "not_before",
    "resources",
    "first_seen_at",
    "notice_seconds",
    "started_at",
    "ended_at",
    "ended_as",
    "certainty",
    "watched",
    "approved_elsewhere",
    "warnings",
]


def _versioned(event: ScheduledEvent) -> tuple[object, ...]:
    return (
        EventStatus(event.status),
        event.not_before,
        tuple(event.resources),
        event.event_type,
        event.source,
        event.duration_seconds,
    )


def _apply(event: ScheduledEvent, folded: Folded, witnesses: list[Witness], *, approved_by_us: bool) -> bool:
    elsewhere = (
        folded.started_at is not None
        and folded.not_before is not None
        and folded.started_at < folded.not_before - EARLY
        and not approved_by_us
    )
    values = {
        "status": folded.status.value,
        "event_type": folded.event_type,
        "resource_type": folded.resource_type,
        "source": folded.source,
        "description": folded.description,
        "duration_seconds": folded.duration_seconds,
        "not_before": folded.not_before,
        "resources": list(folded.resources),
        "first_seen_at": folded.first_seen_at,
        "notice_seconds": folded.notice_seconds,
        "started_at": folded.started_at,
        "ended_at": folded.ended_at,
        "ended_as": folded.ended_as.value if folded.ended_as else "",
        "certainty": folded.certainty.value if folded.certainty else "",
        "watched": folded.watched,
        "approved_elsewhere": elsewhere,
        # Of a drill only those bear witness who have begun, and a person chose whom it hits.
        "warnings": [] if event.drill else _warnings(folded, witnesses),
    }
    moved = event.version == 0 or folded.versioned != _versioned(event)
    different = moved or any(getattr(event, name) != value for name, value in values.items())
    for name, value in values.items():
        setattr(event, name, value)
    if moved:
        event.version += 1
    return different


def _warnings(folded: Folded, witnesses: list[Witness]) -> list[str]:
    known = {witness.name.lower() for witness in witnesses}
    unknown = [name for name in folded.resources if name.lower() not in known]
    found = []
    if not folded.resources:
        found.append("Azure names no machine in Resources.")
    if unknown:
        found.append(f"No agent of this set is known for {', '.join(unknown)}.")
    named = {name.lower() for name in folded.resources}
    domains = sorted({w.update_domain for w in witnesses if w.update_domain is not None and w.name.lower() in named})
    if len(domains) > 1:
        # Azure promises machines of at most one update domain, so what we know of the domains is wrong.
        numbers = " and ".join(str(domain) for domain in domains)
        found.append(f"Resources spans update domains {numbers}: the inventory of this set must be out of date.")
    return found


def _entries(
    event: ScheduledEvent,
    folded: Folded,
    was: tuple[str, bool, bool],
    before: tuple[object, ...],
    witnesses: list[Witness],
) -> list[Entry]:
    status, watched, is_new = was
    about = {"event_id": event.pk, "set_id": event.availability_set_id, "actor": "Azure", "via": "agent"}
    found: list[Entry] = []

    def add(kind: EntryKind, text: str, at: datetime, **data: object) -> None:
        found.append(entry(kind, text, at=at, **about, **data))  # type: ignore[arg-type]

    names = ", ".join(folded.resources) or "no named machine"
    if is_new:
        first = min((w for w in witnesses if w.word), key=lambda w: w.word.first_at if w.word else folded.first_seen_at)
        when = f", not before {folded.not_before:%Y-%m-%d %H:%M:%S} UTC" if folded.not_before else ""
        kind = folded.event_type or "An event of unknown type"
        add(EntryKind.EVENT_SEEN, f"{kind} for {names}{when}; first seen by {first.name}.", folded.first_seen_at)
    elif status == EventStatus.ENDED.value and folded.status is not EventStatus.ENDED:
        add(
            EntryKind.EVENT_REOPENED,
            "A newer document lists the event again: it is open.",
            _last_listing(witnesses, folded),
        )
    elif folded.versioned[1:] != before[1:]:
        add(EntryKind.EVENT_CHANGED, f"Azure changed {_changes(folded, before)}.", _last_listing(witnesses, folded))
    if folded.started_at is not None and (is_new or status == EventStatus.SCHEDULED.value):
        early = " before NotBefore, without an approval from here" if event.approved_elsewhere else ""
        add(EntryKind.EVENT_STARTED, f"Started for {names}{early}.", folded.started_at)
    if folded.status is EventStatus.ENDED and status != EventStatus.ENDED.value and folded.ended_at is not None:
        ended_as = LOOKS[folded.ended_as or EndedAs.UNKNOWN].label
        sure = "" if event.certainty == "seen" else " (inferred)"
        add(EntryKind.EVENT_ENDED, f"Ended: {ended_as}{sure}.", folded.ended_at, ended_as=event.ended_as)
    elif not is_new and watched != folded.watched and folded.status is not EventStatus.ENDED:
        last = _last_listing(witnesses, folded)
        if folded.watched:
            add(EntryKind.EVENT_WATCHED, "A live agent lists the event again.", last)
        else:
            add(EntryKind.EVENT_UNWATCHED, "No live agent lists the event any more: nobody is watching.", last)
    return found


def _last_listing(witnesses: list[Witness], folded: Folded) -> datetime:
    return max((w.last_listing for w in witnesses if w.last_listing is not None), default=folded.first_seen_at)


def _changes(folded: Folded, before: tuple[object, ...]) -> str:
    labels = ("NotBefore", "Resources", "type", "source", "duration")
    parts = []
    for label, old, new in zip(labels, before[1:], folded.versioned[1:], strict=True):
        if old != new:
            parts.append(f"{label} from {_plain(old)} to {_plain(new)}")
    return "; ".join(parts)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "not stated" if value in (None, "") else str(value)


def _also_seen(event: ScheduledEvent, witnesses: list[Witness], machine_ids: Sequence[int], now: datetime) -> Entry:
    by_id = {witness.machine_id: witness for witness in witnesses}
    seen = [by_id[machine_id] for machine_id in machine_ids if machine_id in by_id]
    at = max((w.word.first_at for w in seen if w.word), default=now)
    names = ", ".join(witness.name for witness in seen) or "a machine of another set"
    return entry(
        EntryKind.EVENT_SIGHTED,
        f"Seen by {names}.",
        at=at,
        event_id=event.pk,
        set_id=event.availability_set_id,
        machine_id=seen[0].machine_id if len(seen) == 1 else None,
        actor=names,
        via="agent",
    )
