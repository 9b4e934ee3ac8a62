"""Waves: start (all events are approved, or none), progress and end."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from django.db import transaction
from django.db.models import Q

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.approvals.conditions import When
from fleet.domain.approvals.guards import Need, guards
from fleet.domain.event_types import is_advice
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, read_reason, require_found
from fleet.domain.scheduling import AT_ONCE, QuarantineKind
from fleet.domain.states import LIVE_APPROVALS, ApprovalState, EventStatus
from fleet.domain.texts import cleaned_reasons
from fleet.domain.timeline import EntryKind
from fleet.domain.waves import MAX_EVENTS, Member, Signal, WaveState, judge
from fleet.models import Approval, ScheduledEvent, Wave
from fleet.models.facts.decisions import events_in_turn, load_due_waves, load_members, return_timeout
from fleet.models.facts.events import load_facts, place_of
from fleet.operations import locks
from fleet.operations.approvals import approve, conditions
from fleet.operations.events import compute
from fleet.operations.locks import settle_due, take_due
from fleet.operations.orders.advance import Closing, close_all
from fleet.operations.quarantine import Quarantine
from fleet.operations.rights import acting, can_see, require
from fleet.operations.timeline.entries import gathered, tell

# Beginning a wave: all of its events are decided at once, or none.


def begin(
    *,
    actor: Actor,
    now: datetime,
    events: Sequence[str] = (),
    service: str = "",
    overrides: Mapping[str, str] | None = None,
    shown: Mapping[str, str] | None = None,
    versions: Mapping[str, int] | None = None,
) -> Wave:
    """Approve several events to be sent one after the other: `events` (EventIds) in this order, or all of a service.

    Of a service, these are the open undecided events, earliest NotBefore first. `overrides` are reasons by guard code,
    for every event that needs one; `shown` are the hashes of the displayed guards. `versions` are those of the
    displayed events, by EventId; an event of the service that was not displayed then prevents the wave. Raises Refused:
    `not-permitted`, `validation`, `unknown-event`, `wave-running` (details `wave`), `guarded` and other codes of
    `approve.grant`, with details `events`: `event_id`, `code`, `sentence` of each blocked event.
    """
    actor = acting(actor, Right.APPROVE, doing="begin-wave")
    reasons = cleaned_reasons(overrides)
    rows = _of_service(service, actor, now) if service else _named(events, actor)
    for row in rows:
        require(actor, Right.APPROVE, place_of(row.availability_set), doing="approve")
    if len(rows) < 2:
        raise Refused("validation", Reason("wave-of-one"))
    if len(rows) > MAX_EVENTS:
        raise Refused("validation", Reason("wave-of-many", most=MAX_EVENTS))
    home = {approve.home_name(row.availability_set.service, row.availability_set_id) for row in rows}
    if len(home) > 1:
        raise Refused("validation", Reason("wave-of-services"))
    with approve.decision_lock(*[row.pk for row in rows], meanwhile=Reason("wave-already-decided")):
        plan, seen = approve.Plan(overrides=reasons, shown=shown or {}), _seen(rows, versions, every=bool(service))
        wave = _begun(rows, actor, plan, seen, now=now)
    # The first one goes at once, not when time comes round to it.
    conditions.advance(now=now, event_pks=[row.pk for row in rows])
    wave.refresh_from_db()
    return wave


def _seen(rows: Sequence[ScheduledEvent], versions: Mapping[str, int] | None, *, every: bool) -> dict[int, int]:
    """Return the displayed versions by row id. With `every`, an event that was not displayed gets an impossible
    version.
    """
    wanted = {event_id.strip().upper(): version for event_id, version in (versions or {}).items()}
    if wanted and every:
        return {row.pk: wanted.get(row.event_id, -1) for row in rows}
    return {row.pk: wanted[row.event_id] for row in rows if row.event_id in wanted}


def _named(event_ids: Sequence[str], actor: Actor) -> list[ScheduledEvent]:
    wanted = list(dict.fromkeys(event_id.strip().upper() for event_id in event_ids))
    rows = ScheduledEvent.objects.filter(event_id__in=wanted).select_related("availability_set")
    found = {row.event_id: row for row in rows}
    for event_id in wanted:
        # An event that the actor may not see is answered like a missing one, before any other check.
        if event_id not in found or not can_see(actor, place_of(found[event_id].availability_set)):
            raise Refused("unknown-event", Reason("wave-unknown-event", event_id=event_id[:200]))
    if any(found[event_id].drill for event_id in wanted):
        raise Refused("validation", Reason("wave-takes-no-drill"))
    return [found[event_id] for event_id in wanted]


def _of_service(service: str, actor: Actor, now: datetime) -> list[ScheduledEvent]:
    decided = Approval.objects.filter(state__in=LIVE_APPROVALS, decided_by__isnull=False).values("event_id")
    rows = ScheduledEvent.objects.filter(
        availability_set__service=service, status=EventStatus.SCHEDULED.value, drill=False
    ).exclude(pk__in=decided)
    # In this order as many as possible get their turn before NotBefore.
    known = [row for row in rows.select_related("availability_set") if can_see(actor, place_of(row.availability_set))]
    # About advice there is nothing to decide.
    in_time = [row for row in known if row.not_before is None or row.not_before > now]
    decidable = [row for row in in_time if not is_advice(row.event_type)]
    return sorted(decidable, key=lambda row: (row.not_before is None, row.not_before or now, row.pk))


def _begun(
    rows: Sequence[ScheduledEvent],
    actor: Actor,
    said: approve.Plan,
    versions: Mapping[int, int],
    *,
    now: datetime,
) -> Wave:
    home = rows[0].availability_set
    near = Wave.objects.filter(state=WaveState.RUNNING.value)
    near = near.filter(service=home.service) if home.service else near.filter(approvals__event__availability_set=home)
    running = near.values_list("pk", flat=True).first()
    if running is not None:
        members = ScheduledEvent.objects.filter(approvals__wave=running).select_related("availability_set")
        if all(can_see(actor, place_of(member.availability_set)) for member in members):
            raise Refused("wave-running", Reason("wave-running", wave=running), wave=running)
        raise Refused("wave-running", Reason("wave-running-elsewhere"))
    by = {"created_by": actor.person, "via": actor.via, "token_name": actor.token_name, "comment": actor.why}
    wave = Wave.objects.create(service=home.service, state=WaveState.RUNNING.value, created_at=now, **by)
    against: list[dict[str, object]] = []
    # Locked in the order of their row ids, then decided in turn.
    facts = {pk: approve.load_facts_locked(pk, now=now) for pk in sorted(row.pk for row in rows)}
    for turn, row in enumerate(rows, 1):
        require(actor, Right.APPROVE, facts[row.pk].place, doing="approve")
        try:
            # A savepoint: a refusal leaves nothing of this event, and the next one is still judged.
            with gathered():
                current = approve.supersede_rule_decision(row.pk, facts[row.pk], actor, now=now)
                second = [guard for guard in guards(current, now=now) if guard.needs is Need.SECOND]
                if second:
                    why = Reason("wave-waits-for-no-second", guard=second[0].sentence)
                    raise Refused("guarded", why, guards=approve.override_entry_data(second))
                plan = replace(said, when=When.TURN, expected_version=versions.get(row.pk), wave=wave, turn=turn)
                approve.decide(row.pk, actor, plan, now=now)
        except Refused as refusal:
            if refusal.code == "not-permitted":
                raise
            against.append(
                {"event_id": row.event_id, "code": refusal.code, "sentence": refusal.reason, **refusal.details}
            )
    if against:
        first = against[0]
        code = str(first["code"]) if len({one["code"] for one in against}) == 1 else "guarded"
        reason = Reason(
            "wave-stands-in-the-way", event_id=first["event_id"], reason=first["sentence"], count=len(against)
        )
        raise Refused(code, reason, events=against)
    _tell(wave, rows, actor, now=now)
    return wave


def _tell(wave: Wave, rows: Sequence[ScheduledEvent], actor: Actor, *, now: datetime) -> None:
    sets = {row.availability_set_id for row in rows}
    named = [{"type": row.event_type, "resources": row.resources} for row in rows]
    said = {"wave": wave.pk, "events": [row.event_id for row in rows], "named": named}
    values = {"before": {"wave": None}, "after": {"wave": WaveState.RUNNING.value}}
    tell(EntryKind.WAVE_BEGAN, actor, at=now, set_id=min(sets) if len(sets) == 1 else None, **values, **said)


# Ends of waves: automatic, when all is done or an event does not return, or because a person stops one.

# Of one tick.
PORTION = 100
RUNNING = f"state = '{WaveState.RUNNING.value}'"
WAITING = (ApprovalState.PROPOSED.value, ApprovalState.WAITING.value)


def advance(*, now: datetime, event_pks: Collection[int] = ()) -> list[int]:
    """Advance the due waves and those of these events (row ids): stop waves whose machines did not return, end finished
    ones.

    Return the events (row ids) that the other waves may approve now. The first check takes no locks; each wave then has
    its own transaction.
    """
    if event_pks:
        make_due(Q(approvals__event__any=list(event_pks)))
    taken = take_due(Wave, now=now, most=PORTION, open_only=RUNNING)
    if not taken:
        return []
    with Quarantine(QuarantineKind.WAVE, now=now) as apart:
        for wave_id in apart.look(taken, partial(_over, now=now)):
            apart.run(wave_id, partial(_settle, wave_id, now=now))
        in_turns = apart.look(taken, partial(events_in_turn, now=now))
        found = dict(apart.look(taken, lambda pks: list(load_due_waves(pks, now=now).items())))
        later = {wave_id: until for wave_id in taken if (until := apart.waits_until(wave_id)) is not None}
        settle_due(Wave, found | later, now=now)
    return in_turns


def make_due(which: Q) -> None:
    """Let the next reconciliation judge the waves that match the filter `which`."""
    # Unlike those of events, these rows are waited for: a transaction that locks one need not make it due.
    locks.make_due(Wave.objects.filter(which, state=WaveState.RUNNING.value, next_check_at__gt=AT_ONCE))


def _over(wave_ids: Sequence[int], *, now: datetime) -> list[int]:
    members = load_members(wave_ids, now=now)
    signals = {pk: judge(members[pk], now=now, return_timeout=return_timeout()).do for pk in wave_ids}
    return [pk for pk, signal in signals.items() if signal in (Signal.STOP, Signal.FINISH)]


@transaction.atomic
def _settle(wave_id: int, *, now: datetime) -> bool:
    wave, members = _locked(wave_id, now=now)
    if wave.state != WaveState.RUNNING.value:
        return False
    found = judge(members, now=now, return_timeout=return_timeout())
    if found.do is Signal.STOP:
        return _stop(wave, members, DRYDOCK, found.reason, now=now)
    return found.do is Signal.FINISH and _close(wave, WaveState.DONE, members, DRYDOCK, found.reason, now=now)


def stop(*, wave_id: int, actor: Actor, now: datetime) -> Wave:
    """Stop a wave with a reason: waiting approvals are withdrawn, those that were sent continue.

    Raises Refused: `not-permitted`, `validation`, `unknown-wave`, `too-late`.
    """
    actor = acting(actor, Right.APPROVE, doing="stop-wave")
    with transaction.atomic():
        wave, members = _locked(wave_id, now=now)
        events = Approval.objects.filter(wave=wave).select_related("event__availability_set")
        for place in {place_of(approval.event.availability_set) for approval in events}:
            require(actor, Right.APPROVE, place, doing="stop-wave")
        if wave.state != WaveState.RUNNING.value:
            raise Refused("too-late", Reason("wave-over", state=wave.state, why=read_reason(wave.reason)))
        reason = Reason("wave-stopped-by", by=actor.name, comment=actor.why)
        _stop(wave, members, actor, reason, now=now)
    wave.refresh_from_db()
    return wave


def _locked(wave_id: int, *, now: datetime) -> tuple[Wave, list[Member]]:
    # Events come first among locks; the row of the wave is changed under those of its events only.
    event_pks = Approval.objects.filter(wave_id=wave_id).values_list("event_id", flat=True)
    compute.lock(list(event_pks))
    found = Wave.objects.select_for_update().filter(pk=wave_id).first()
    wave = require_found(found, "unknown-wave", Reason("unknown-wave"))
    return wave, load_members([wave_id], now=now)[wave_id]


def _stop(wave: Wave, members: Collection[Member], actor: Actor, reason: Reason, *, now: datetime) -> bool:
    waiting = list(Approval.objects.filter(wave=wave, state__in=WAITING).order_by("event_id"))
    facts = load_facts([approval.event_id for approval in waiting], now=now)
    why = Reason("wave-stopped", wave=wave.pk, reason=reason)
    close_all([Closing(one, ApprovalState.WITHDRAWN, facts[one.event_id], why) for one in waiting], actor, now=now)
    return _close(wave, WaveState.STOPPED, members, actor, reason, now=now)


def _close(
    wave: Wave,
    state: WaveState,
    members: Collection[Member],
    actor: Actor,
    reason: Reason,
    *,
    now: datetime,
) -> bool:
    running = Wave.objects.filter(pk=wave.pk, state=WaveState.RUNNING.value)
    if not running.update(state=state.value, closed_at=now, reason=reason.stored):
        return False
    sets = {member.set_id for member in members}
    kind = EntryKind.WAVE_STOPPED if state is WaveState.STOPPED else EntryKind.WAVE_ENDED
    said = {"before": {"wave": WaveState.RUNNING.value}, "after": {"wave": state.value}, "wave": wave.pk}
    tell(kind, actor, at=now, set_id=min(sets) if len(sets) == 1 else None, **said, reason=reason)
    return True
