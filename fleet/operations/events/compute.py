"""Computes an event's row from sightings, and writes the timeline entries of the changes."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q

from fleet.domain import events as sightings
from fleet.domain.actor import AZURE
from fleet.domain.actor import machine as machine_actor
from fleet.domain.events import NOT_STATED, ComputedState, Witness, versioned
from fleet.domain.reasons import Reason, as_json
from fleet.domain.scheduling import AT_ONCE
from fleet.domain.states import RELAYED_APPROVALS, ApprovalState, Certainty, EndedAs, EventStatus
from fleet.domain.timeline import EntryKind
from fleet.models import Approval, Claim, Hold, ScheduledEvent, Sighting
from fleet.models.facts.events import Standing, load_witnesses
from fleet.operations.timeline.entries import tell_event

# Clocks differ by up to two seconds before they are corrected, and polls are a second apart.
EARLY = timedelta(seconds=5)
OURS = (*RELAYED_APPROVALS, ApprovalState.CONFIRMED)


def lock(event_pks: Iterable[int], *, pass_by: bool = False) -> list[ScheduledEvent]:
    """Lock these events (row ids) in the order of their ids and return them, due for the next reconciliation.

    With `pass_by`, events that another transaction has locked are skipped. Lock events before approvals, and approvals
    before orders.
    """
    wanted = set(event_pks)
    rows = (
        ScheduledEvent.objects.select_for_update(of=("self",), skip_locked=pass_by)
        .select_related("availability_set")
        .filter(pk__any=wanted)
        .order_by("pk")
    )
    events = list(rows)
    if len(events) < len(wanted) and not pass_by:
        # Postgres drops a row from a join if its set changes while it waits for the lock; a new statement has it.
        events = list(rows.all())
    quiet = [event.pk for event in events if event.next_check_at is not None and event.next_check_at > AT_ONCE]
    if quiet:
        ScheduledEvent.objects.filter(pk__any=quiet).update(next_check_at=AT_ONCE)
    return events


def compute_state(
    events: Sequence[ScheduledEvent],
    *,
    now: datetime,
    new_sightings: Mapping[int, Sequence[int]] | None = None,
    standing: Standing | None = None,
) -> list[ScheduledEvent]:
    """Compute the state of locked events, write changes with timeline entries, and return the changed events.

    `new_sightings`: machines (row ids) that report an event for the first time, by event. `standing`: data that the
    caller has loaded after locking.
    """
    if not events:
        return []
    witnesses = load_witnesses(events, now=now, standing=standing)
    # While an order of ours may have started it, it was not approved elsewhere.
    ours = Q(accepted_at__isnull=False) | Q(state__in=OURS)
    # Nor where it cannot be determined whether one did.
    ours |= Q(state__in=[ApprovalState.VOID.value, ApprovalState.WITHDRAWN.value], inferred=True)
    approved = set(
        Approval.objects.filter(ours, event_id__any=[event.pk for event in events]).values_list("event_id", flat=True)
    )
    changed: list[ScheduledEvent] = []
    for event in events:
        of_event = witnesses[event.pk]
        state = sightings.compute_state(
            of_event, now=now, was_ended=event.status == EventStatus.ENDED.value, known=_known(event)
        )
        if state is None:
            # Only machines of other sets list it: nothing that counts is known yet.
            if _is_dropped(event, now):
                event.status, event.ended_as = EventStatus.ENDED.value, EndedAs.UNKNOWN.value
                event.certainty, event.ended_at, event.watched = Certainty.INFERRED.value, now, False
                changed.append(event)
                _record(EntryKind.EVENT_ENDED, event, now, ended_as=event.ended_as, certainty=event.certainty)
            continue
        before, after = versioned(event), versioned(state)
        was = (event.status, event.watched, event.version == 0, event.ended_as)
        moved = was[2] or state.status != event.status or before != after
        if _apply(event, state, of_event, approved_by_us=event.pk in approved, moved=moved):
            changed.append(event)
        _record_changes(event, state, was, before, after, of_event, now)
        seen = (new_sightings or {}).get(event.pk, ())
        if seen and not was[2]:
            _record_sightings(event, of_event, seen, now)
    if changed:
        # They are there and locked; this is the quick way to update many rows at once.
        ScheduledEvent.objects.bulk_create(
            changed, update_conflicts=True, unique_fields=["event_id"], update_fields=FIELDS
        )
        over = [event.pk for event in changed if event.status == EventStatus.ENDED.value]
        if over:
            # Claims and holds end with their event.
            Claim.objects.filter(event_id__in=over, ended_at__isnull=True).update(ended_at=now)
            Hold.objects.filter(event_id__in=over, ended_at__isnull=True).update(ended_at=now)
    return changed


def _known(event: ScheduledEvent) -> dict[str, Any] | None:
    """Return the stored values of the event; None before a machine of its set has listed it."""
    if not event.version:
        return None
    return {name: getattr(event, name) for name in NOT_STATED} | {"resources": tuple(event.resources)}


def _is_dropped(event: ScheduledEvent, now: datetime) -> bool:
    """Return whether no machine of the set ever listed the event, and no other live or late machine lists it
    any more.
    """
    if event.version or event.drill or event.status == EventStatus.ENDED.value:
        return False
    since = now - timedelta(seconds=settings.MACHINE_GONE_SECONDS)
    heard = Q(machine__presence__last_heard_at__gt=since) | Q(listed_at__gt=since)
    listed = Sighting.objects.filter(heard, event=event, gone_at__isnull=True, machine__revoked_at=None)
    return not listed.exists()


def _record(kind: EntryKind, event: ScheduledEvent, at: datetime, **data: Any) -> None:
    tell_event(kind, AZURE, event, at=at, **data)


COMPUTED = (*NOT_STATED, "first_seen_at", "notice_seconds", "started_at", "ended_at", "watched")
FIELDS = [*COMPUTED, "status", "version", "ended_as", "certainty", "approved_elsewhere", "warnings"]


def _apply(
    event: ScheduledEvent, state: ComputedState, witnesses: list[Witness], *, approved_by_us: bool, moved: bool
) -> bool:
    elsewhere = (
        state.started_at is not None
        and state.not_before is not None
        and state.started_at < state.not_before - EARLY
        and not approved_by_us
    )
    values = {name: getattr(state, name) for name in COMPUTED} | {
        "status": state.status.value,
        "resources": list(state.resources),
        "ended_as": state.ended_as.value if state.ended_as else "",
        "certainty": state.certainty.value if state.certainty else "",
        "approved_elsewhere": elsewhere,
        # Of a drill only those bear witness who have begun, and a person chose whom it hits.
        "warnings": [] if event.drill else _warnings(state, witnesses),
    }
    different = moved or any(getattr(event, name) != value for name, value in values.items())
    for name, value in values.items():
        setattr(event, name, value)
    if moved:
        event.version += 1
    return different


def _warnings(state: ComputedState, witnesses: list[Witness]) -> list[dict[str, Any]]:
    known = {witness.name.lower() for witness in witnesses}
    unknown = [name for name in state.resources if name.lower() not in known]
    found = []
    if not state.resources:
        found.append(Reason("no-resources"))
    if unknown:
        found.append(Reason("unknown-resources", names=unknown))
    named = {name.lower() for name in state.resources}
    stated = {w.update_domain for w in witnesses if w.name.lower() in named}
    domains = sorted(domain for domain in stated if domain is not None)
    if domains and len(stated) > 1:
        # Azure promises machines of at most one update domain. Which of the two is wrong cannot be told from here.
        found.append(Reason("spans-update-domains", domains=domains, unknown=None in stated))
    return [as_json(reason) for reason in found]


def _record_changes(
    event: ScheduledEvent,
    state: ComputedState,
    was: tuple[str, bool, bool, str],
    before: dict[str, Any],
    after: dict[str, Any],
    witnesses: list[Witness],
    now: datetime,
) -> None:
    status, watched, is_new, ended_as = was
    resources = list(state.resources)
    last = sightings.last_listing(witnesses, now)
    if is_new:
        first = min((w for w in witnesses if w.listing), key=lambda w: w.listing.first_at if w.listing else last)
        _record(
            EntryKind.EVENT_SEEN,
            event,
            state.first_seen_at,
            event_type=state.event_type,
            resources=resources,
            not_before=state.not_before,
            by=first.name,
        )
    elif status == EventStatus.ENDED.value and state.status is not EventStatus.ENDED:
        _record(EntryKind.EVENT_REOPENED, event, last)
    elif before != after:
        changes = {name: [before[name], after[name]] for name in after if before[name] != after[name]}
        _record(EntryKind.EVENT_CHANGED, event, last, changes=changes)
    if state.started_at is not None and (is_new or status == EventStatus.SCHEDULED.value):
        elsewhere = event.approved_elsewhere
        _record(EntryKind.EVENT_STARTED, event, state.started_at, resources=resources, approved_elsewhere=elsewhere)
    if state.status is EventStatus.ENDED and status != EventStatus.ENDED.value and state.ended_at is not None:
        _record(EntryKind.EVENT_ENDED, event, state.ended_at, ended_as=event.ended_as, certainty=event.certainty)
    elif ended_as == EndedAs.MACHINE_DELETED.value and event.ended_as not in ("", ended_as):
        # The machine is back: it was not deleted.
        _record(EntryKind.EVENT_ENDED, event, now, ended_as=event.ended_as, certainty=event.certainty)
    elif not is_new and watched != state.watched and state.status is not EventStatus.ENDED:
        _record(EntryKind.EVENT_WATCHED if state.watched else EntryKind.EVENT_UNWATCHED, event, last)


def _record_sightings(
    event: ScheduledEvent, witnesses: list[Witness], machine_ids: Sequence[int], now: datetime
) -> None:
    by_id = {witness.machine_id: witness for witness in witnesses}
    seen = [by_id[machine_id] for machine_id in machine_ids if machine_id in by_id]
    names = [witness.name for witness in seen]
    tell_event(
        EntryKind.EVENT_SIGHTED,
        machine_actor(", ".join(names)),
        event,
        at=max((w.listing.first_at for w in seen if w.listing), default=now),
        machine_id=seen[0].machine_id if len(seen) == 1 else None,
        names=names,
    )
