"""Waves end: by themselves, when all is through or something does not come back, or because a person stops one."""

from collections.abc import Collection
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.reason import Reason, read_reason
from fleet.domain.refused import Refused
from fleet.domain.states import ApprovalState
from fleet.domain.timeline import EntryKind
from fleet.domain.waves import Member, Signal, WaveState, judge
from fleet.models import Approval, Wave
from fleet.models.facts.events import load_facts, place_of
from fleet.models.facts.waves import load_members, return_timeout
from fleet.operations.approvals.approve import cleaned
from fleet.operations.events import compute
from fleet.operations.orders import relay
from fleet.operations.people.rights import require_approve
from fleet.operations.timeline.entries import entry, write

WAITING = (ApprovalState.PROPOSED.value, ApprovalState.WAITING.value)


def advance(*, now: datetime) -> int:
    """Stop the waves in which something has not come back, end those that are through; how many.

    Looks without locks first; each wave is a transaction of its own.
    """
    running = list(Wave.objects.filter(state=WaveState.RUNNING.value).order_by("pk").values_list("pk", flat=True))
    members = load_members(running, now=now)
    over = [
        wave_id
        for wave_id in running
        if judge(members[wave_id], now=now, return_timeout=return_timeout()).do in (Signal.STOP, Signal.FINISH)
    ]
    return sum(_settle(wave_id, now=now) for wave_id in over)


@transaction.atomic
def _settle(wave_id: int, *, now: datetime) -> bool:
    wave, members = _locked(wave_id, now=now)
    if wave.state != WaveState.RUNNING.value:
        return False
    found = judge(members, now=now, return_timeout=return_timeout())
    if found.do is Signal.STOP:
        return _stop(wave, members, found.reason, now=now)
    return found.do is Signal.FINISH and _close(wave, WaveState.DONE, members, found.reason, now=now)


def stop(*, wave_id: int, by: User, via: str, now: datetime, reason: str = "", token_name: str = "") -> Wave:
    """A person stops a wave: what waits is withdrawn, what is on its way goes on.

    Raises Refused: `not-permitted`, `validation`, `unknown-wave`, `too-late`.
    """
    require_approve(by, verb="Stopping a wave")
    reason = cleaned(reason)
    with transaction.atomic():
        wave, members = _locked(wave_id, now=now)
        events = Approval.objects.filter(wave=wave).select_related("event__availability_set")
        for place in {place_of(approval.event.availability_set) for approval in events}:
            require_approve(by, place, verb="Stopping a wave")
        if wave.state != WaveState.RUNNING.value:
            raise Refused("too-late", Reason("wave-over", state=wave.state, why=read_reason(wave.reason)))
        why = Reason("wave-stopped-by", by=by.get_username(), comment=reason)
        _stop(wave, members, why, now=now, actor=by.get_username(), via=via, token_name=token_name, why=reason)
    wave.refresh_from_db()
    return wave


def _locked(wave_id: int, *, now: datetime) -> tuple[Wave, list[Member]]:
    # Events come first among locks; the row of the wave is changed under those of its events only.
    event_pks = Approval.objects.filter(wave_id=wave_id).values_list("event_id", flat=True)
    compute.lock(list(event_pks))
    wave = Wave.objects.select_for_update().filter(pk=wave_id).first()
    if wave is None:
        raise Refused("unknown-wave", Reason("unknown-wave"))
    return wave, load_members([wave_id], now=now)[wave_id]


def _stop(
    wave: Wave,
    members: Collection[Member],
    reason: Reason,
    *,
    now: datetime,
    actor: str = "Drydock",
    via: str = "relay",
    token_name: str = "",
    why: str = "",
) -> bool:
    waiting = list(Approval.objects.filter(wave=wave, state__in=WAITING).order_by("event_id"))
    facts = load_facts([approval.event_id for approval in waiting], now=now)
    for approval in waiting:
        relay.close(
            approval,
            ApprovalState.WITHDRAWN,
            facts=facts[approval.event_id],
            now=now,
            reason=Reason("wave-stopped", wave=wave.pk, reason=reason),
            actor=actor,
            via=via,
            token_name=token_name,
            why=why,
        )
    return _close(
        wave, WaveState.STOPPED, members, reason, now=now, actor=actor, via=via, token_name=token_name, why=why
    )


def _close(
    wave: Wave,
    state: WaveState,
    members: Collection[Member],
    reason: Reason,
    *,
    now: datetime,
    actor: str = "Drydock",
    via: str = "relay",
    token_name: str = "",
    why: str = "",
) -> bool:
    moved = Wave.objects.filter(pk=wave.pk, state=WaveState.RUNNING.value).update(
        state=state.value, closed_at=now, reason=reason.stored
    )
    if not moved:
        return False
    stopped = state is WaveState.STOPPED
    sets = {member.set_id for member in members}
    write(
        [
            entry(
                EntryKind.WAVE_STOPPED if stopped else EntryKind.WAVE_ENDED,
                at=now,
                set_id=min(sets) if len(sets) == 1 else None,
                actor=actor,
                via=via,
                token_name=token_name,
                why=why,
                before={"wave": WaveState.RUNNING.value},
                after={"wave": state.value},
                wave=wave.pk,
                reason=reason,
            )
        ]
    )
    return True
