"""Waves end: by themselves, when all is through or something does not come back, or because a person stops one."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial

from django.db import transaction
from django.db.models import Q

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.aside import What
from fleet.domain.due import AT_ONCE
from fleet.domain.people import Right
from fleet.domain.reason import Reason, read_reason
from fleet.domain.refusal import Refused, or_refuse
from fleet.domain.states import ApprovalState
from fleet.domain.timeline import EntryKind
from fleet.domain.waves import Member, Signal, WaveState, judge
from fleet.models import Approval, Wave
from fleet.models.facts.events import load_facts, place_of
from fleet.models.facts.waves import events_in_turn, load_due, load_members, return_timeout
from fleet.operations.aside import Apart
from fleet.operations.events import compute
from fleet.operations.locks import settle_due, take_due
from fleet.operations.orders.states import close
from fleet.operations.people.rights import acting, require
from fleet.operations.timeline.entries import tell

# Of one tick.
PORTION = 100
RUNNING = f"state = '{WaveState.RUNNING.value}'"
WAITING = (ApprovalState.PROPOSED.value, ApprovalState.WAITING.value)


def advance(*, now: datetime, event_pks: Collection[int] = ()) -> list[int]:
    """Of the waves that are due and those of these events (row ids): stop the ones in which something has not come
    back, end those that are through. Returns the events (row ids) whose turn it is in the others.

    Looks without locks first; each wave is a transaction of its own.
    """
    if event_pks:
        make_due(Q(approvals__event__any=list(event_pks)))
    taken = take_due(Wave, now=now, most=PORTION, open_only=RUNNING)
    if not taken:
        return []
    with Apart(What.WAVE, now=now) as apart:
        for wave_id in apart.look(taken, partial(_over, now=now)):
            apart.run(wave_id, partial(_settle, wave_id, now=now))
        in_turns = apart.look(taken, partial(events_in_turn, now=now))
        found = dict(apart.look(taken, lambda pks: list(load_due(pks, now=now).items())))
        later = {wave_id: until for wave_id in taken if (until := apart.waits_until(wave_id)) is not None}
        settle_due(Wave, found | later, now=now)
    return in_turns


def make_due(which: Q) -> None:
    """These waves are judged by the next tick."""
    # Unlike those of events, these rows are waited for: who holds one need not make it due.
    running = Wave.objects.filter(which, state=WaveState.RUNNING.value, look_at__gt=AT_ONCE).order_by("pk")
    with transaction.atomic():
        pks = list(running.select_for_update(no_key=True, of=("self",)).values_list("pk", flat=True))
        Wave.objects.filter(pk__any=pks).update(look_at=AT_ONCE)


def _over(wave_ids: Sequence[int], *, now: datetime) -> list[int]:
    members = load_members(wave_ids, now=now)
    return [
        wave_id
        for wave_id in wave_ids
        if judge(members[wave_id], now=now, return_timeout=return_timeout()).do in (Signal.STOP, Signal.FINISH)
    ]


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
    """A person stops a wave and says why: what waits is withdrawn, what is on its way goes on.

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
    wave = or_refuse(found, "unknown-wave", Reason("unknown-wave"))
    return wave, load_members([wave_id], now=now)[wave_id]


def _stop(wave: Wave, members: Collection[Member], actor: Actor, reason: Reason, *, now: datetime) -> bool:
    waiting = list(Approval.objects.filter(wave=wave, state__in=WAITING).order_by("event_id"))
    facts = load_facts([approval.event_id for approval in waiting], now=now)
    for approval in waiting:
        why = Reason("wave-stopped", wave=wave.pk, reason=reason)
        close(approval, ApprovalState.WITHDRAWN, actor, facts=facts[approval.event_id], now=now, reason=why)
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
    moved = Wave.objects.filter(pk=wave.pk, state=WaveState.RUNNING.value).update(
        state=state.value, closed_at=now, reason=reason.stored
    )
    if not moved:
        return False
    stopped = state is WaveState.STOPPED
    sets = {member.set_id for member in members}
    tell(
        EntryKind.WAVE_STOPPED if stopped else EntryKind.WAVE_ENDED,
        actor,
        at=now,
        set_id=min(sets) if len(sets) == 1 else None,
        before={"wave": WaveState.RUNNING.value},
        after={"wave": state.value},
        wave=wave.pk,
        reason=reason,
    )
    return True
