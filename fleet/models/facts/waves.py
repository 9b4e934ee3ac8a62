"""Loading what waves judge, in a fixed number of queries."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta

from django.conf import settings

from fleet.domain.due import at_the_latest
from fleet.domain.events.types import DELETING_TYPES
from fleet.domain.reason import read_reason
from fleet.domain.shapes import like
from fleet.domain.states import ApprovalState, EventStatus, Presence
from fleet.domain.waves import Member, Returner, WaveState, due_at, judge
from fleet.models.approvals import Approval
from fleet.models.events import ScheduledEvent
from fleet.models.facts.decisions import decision_of
from fleet.models.facts.events import contact_times, machine_presence, presence_limits
from fleet.models.machines import Machine
from fleet.models.waves import Wave


def return_timeout() -> timedelta:
    """How long a machine may take to return before its wave stops, out of the settings."""
    return timedelta(seconds=settings.WAVE_RETURN_SECONDS)


def load_members(wave_ids: Collection[int], *, now: datetime) -> dict[int, list[Member]]:
    """The events of each wave (row ids) in turn. Two queries."""
    if not wave_ids:
        return {}
    approvals = list(
        Approval.objects.filter(wave_id__in=wave_ids)
        .select_related("event__availability_set")
        .order_by("wave_id", "turn", "pk")
    )
    machines: dict[int, list[Machine]] = defaultdict(list)
    rows = Machine.objects.filter(
        availability_set_id__in={approval.event.availability_set_id for approval in approvals}, revoked_at__isnull=True
    )
    for machine in rows.select_related("presence", "latest_document").defer("compute").order_by("resource_name", "pk"):
        machines[machine.availability_set_id].append(machine)
    found: dict[int, list[Member]] = {wave_id: [] for wave_id in wave_ids}
    for approval in approvals:
        found[approval.wave_id or 0].append(
            _member(approval, approval.event, machines[approval.event.availability_set_id], now=now)
        )
    return found


def _member(approval: Approval, event: ScheduledEvent, machines: Collection[Machine], *, now: datetime) -> Member:
    named = {name.lower() for name in event.resources}
    hit: dict[str, Machine] = {}
    heard_at: datetime | None = None
    for machine in machines:
        heard = contact_times(machine)[0]
        heard_at = max(filter(None, (heard, heard_at)), default=None)
        name = machine.resource_name.lower()
        known = hit.get(name)
        known_heard = contact_times(known)[0] if known else None
        # Of several machines of one name it is the one that was heard last.
        if name in named and (known is None or (heard is not None and (known_heard is None or heard > known_heard))):
            hit[name] = machine
    deleted = event.event_type in DELETING_TYPES
    return like(
        Member,
        event,
        approval_id=approval.pk,
        turn=approval.turn or 0,
        set_id=event.availability_set_id,
        set_kind=event.availability_set.kind,
        set_name=event.availability_set.name,
        set_apart=event.availability_set.apart,
        set_subscription=event.availability_set.subscription,
        set_resource_group=event.availability_set.resource_group,
        approval_state=ApprovalState(approval.state),
        event_status=EventStatus(event.status),
        started=event.started_at is not None,
        machines=() if deleted else tuple(_returner(machine, event, now=now) for machine in hit.values()),
        last_heard_at=heard_at,
        reason=read_reason(approval.reason),
        event_pk=event.pk,
        decision=decision_of(approval),
    )


def _returner(machine: Machine, event: ScheduledEvent, *, now: datetime) -> Returner:
    live = machine_presence(machine, now=now, limits=presence_limits()) is Presence.LIVE
    heard = contact_times(machine)[0]
    # For a minute a machine counts as live though it is just starting again: it has to speak after the end.
    since = heard is not None and (event.ended_at is None or heard >= event.ended_at)
    return Returner(name=machine.resource_name, back=live and since)


def load_due(wave_ids: Collection[int], *, now: datetime) -> dict[int, datetime]:
    """When each of these waves (row ids) is to be judged again, if there is no news of its events. Two queries."""
    members = load_members(wave_ids, now=now)
    return {
        wave_id: min(due_at(found, now=now, return_timeout=return_timeout()), at_the_latest(wave_id, now=now))
        for wave_id, found in members.items()
    }


def whose_turn(wave_ids: Collection[int], *, now: datetime) -> set[int]:
    """The row ids of the approvals of these waves that may go now. Three queries, or none."""
    if not wave_ids:
        return set()
    running = Wave.objects.filter(pk__in=wave_ids, state=WaveState.RUNNING.value).values_list("pk", flat=True)
    members = load_members(list(running), now=now)
    found = {judge(of_wave, now=now, return_timeout=return_timeout()).approval_id for of_wave in members.values()}
    return {approval_id for approval_id in found if approval_id is not None}


def events_in_turn(wave_ids: Collection[int], *, now: datetime) -> list[int]:
    """The row ids of the events whose turn it is in these waves (row ids). Five queries."""
    approvals = whose_turn(set(wave_ids), now=now)
    return list(Approval.objects.filter(pk__in=approvals).values_list("event_id", flat=True)) if approvals else []
