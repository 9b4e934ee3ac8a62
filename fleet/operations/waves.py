"""Waves at work: several events of a service approved in turn, until all are through or something does not come back.

A wave begins in `fleet.operations.beginning`.
"""

from collections.abc import Collection
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.entries import EntryKind
from fleet.domain.states import ApprovalState
from fleet.domain.waves import Do, Member, WaveState, judge
from fleet.models import Approval, Wave
from fleet.models.facts import load_facts, place_of
from fleet.models.wave_facts import load_members, wave_patience
from fleet.operations import folding, relaying
from fleet.operations.deciding import cleaned
from fleet.operations.entries import entry, write
from fleet.operations.errors import Refused
from fleet.operations.rights import require_approve

WAITING = (ApprovalState.PROPOSED.value, ApprovalState.WAITING.value)


def whose_turn(wave_ids: Collection[int], *, now: datetime) -> set[int]:
    """The row ids of the approvals of these waves that may go now. Three queries, or none."""
    if not wave_ids:
        return set()
    running = Wave.objects.filter(pk__in=wave_ids, state=WaveState.RUNNING.value).values_list("pk", flat=True)
    members = load_members(list(running), now=now)
    found = {judge(of_wave, now=now, patience=wave_patience()).approval_id for of_wave in members.values()}
    return {approval_id for approval_id in found if approval_id is not None}


def advance(*, now: datetime) -> int:
    """Stop the waves in which something has not come back, end those that are through; how many.

    Looks without locks first; each wave is a transaction of its own.
    """
    running = list(Wave.objects.filter(state=WaveState.RUNNING.value).order_by("pk").values_list("pk", flat=True))
    members = load_members(running, now=now)
    over = [
        wave_id
        for wave_id in running
        if judge(members[wave_id], now=now, patience=wave_patience()).do in (Do.STOP, Do.FINISH)
    ]
    return sum(_settle(wave_id, now=now) for wave_id in over)


@transaction.atomic
def _settle(wave_id: int, *, now: datetime) -> bool:
    wave, members = _locked(wave_id, now=now)
    if wave.state != WaveState.RUNNING.value:
        return False
    found = judge(members, now=now, patience=wave_patience())
    if found.do is Do.STOP:
        return _stop(wave, members, found.reason, now=now)
    return found.do is Do.FINISH and _close(wave, WaveState.DONE, members, found.reason, now=now)


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
            raise Refused("too-late", f"The wave is over: it is {wave.state}. {wave.reason}")
        said = f"{by.get_username()} stopped it." + (f" “{reason}”" if reason else "")
        _stop(wave, members, said, now=now, actor=by.get_username(), via=via, token_name=token_name, why=reason)
    wave.refresh_from_db()
    return wave


def _locked(wave_id: int, *, now: datetime) -> tuple[Wave, list[Member]]:
    # Events come first among locks; the row of the wave is changed under those of its events only.
    event_pks = Approval.objects.filter(wave_id=wave_id).values_list("event_id", flat=True)
    folding.lock(list(event_pks))
    wave = Wave.objects.select_for_update().filter(pk=wave_id).first()
    if wave is None:
        raise Refused("unknown-wave", "There is no wave of this id.")
    return wave, load_members([wave_id], now=now)[wave_id]


def _stop(
    wave: Wave,
    members: Collection[Member],
    reason: str,
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
        relaying.close(
            approval,
            ApprovalState.WITHDRAWN,
            facts=facts[approval.event_id],
            now=now,
            reason=f"Wave {wave.pk} stopped: {reason}",
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
    reason: str,
    *,
    now: datetime,
    actor: str = "Drydock",
    via: str = "relay",
    token_name: str = "",
    why: str = "",
) -> bool:
    moved = Wave.objects.filter(pk=wave.pk, state=WaveState.RUNNING.value).update(
        state=state.value, closed_at=now, reason=reason
    )
    if not moved:
        return False
    stopped = state is WaveState.STOPPED
    sets = {member.set_id for member in members}
    write(
        [
            entry(
                EntryKind.WAVE_STOPPED if stopped else EntryKind.WAVE_ENDED,
                f"Wave {wave.pk} {'stopped' if stopped else 'is done'}: {reason}",
                at=now,
                set_id=min(sets) if len(sets) == 1 else None,
                actor=actor,
                via=via,
                token_name=token_name,
                why=why,
                before={"wave": WaveState.RUNNING.value},
                after={"wave": state.value},
                wave=wave.pk,
            )
        ]
    )
    return True
