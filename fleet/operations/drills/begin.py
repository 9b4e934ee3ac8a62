"""Start and stop of drills by users. `advance` does everything in between."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any

from django.db import transaction
from drydock_agent import wire

from fleet.domain.actor import Actor
from fleet.domain.drills import (
    DEFAULT_DURATION_SECONDS,
    DEFAULT_NOTICE_SECONDS,
    DEFAULT_TYPE,
    DURATION_SECONDS,
    GRACE,
    KINDS,
    NOTICE_SECONDS,
    Ending,
    Outcome,
)
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.states import OPEN_EVENTS, Presence
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import AvailabilitySet, Drill, Machine, Rehearsal, ScheduledEvent
from fleet.models.facts.events import machine_presence, place_of
from fleet.operations.drills import advance
from fleet.operations.events import compute
from fleet.operations.locks import Lock, take
from fleet.operations.orders import queue
from fleet.operations.rights import acting, require
from fleet.operations.timeline.entries import tell

SOURCE = "Platform"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested parameters of a drill. Without `machines` (resource names), the first live machine of the set is
    affected.
    """

    event_type: str = DEFAULT_TYPE
    machines: Sequence[str] = ()
    notice_seconds: int = DEFAULT_NOTICE_SECONDS
    duration_seconds: int = DEFAULT_DURATION_SECONDS


@transaction.atomic
def begin(*, set_id: int, actor: Actor, now: datetime, wanted: Wanted | None = None) -> Drill:
    """Start a drill of a set: each live machine simulates an event. Nothing is sent to Azure.

    Raises Refused: `not-permitted`, `validation`, `unknown-set`, `real-event-open` (details `event`), `drill-open`
    (details `drill`), `no-live-machine`.
    """
    wanted = wanted or Wanted()
    actor = acting(actor, Right.APPROVE, doing="drill")
    found = AvailabilitySet.objects.select_related("merged_into").filter(pk=set_id).first()
    home = require_found(found, "unknown-set", Reason("drill-of-no-set"))
    home = home.merged_into or home
    require(actor, Right.APPROVE, place_of(home), doing="drill")
    _check(wanted)
    # Two people may want to drill one set at once.
    take(Lock.DRILLS, of=str(home.pk))
    _nothing_else(home)
    machines = _machines_of(home.pk)
    presences = {machine.pk: machine_presence(machine, now=now) for machine in machines}
    live = [machine for machine in machines if presences[machine.pk] is Presence.LIVE]
    hit = _hit(wanted, machines, live)
    not_before = (now + timedelta(seconds=wanted.notice_seconds)).replace(microsecond=0)
    event = _event(home, hit, wanted, actor.why, not_before, now)
    drill = Drill.objects.create(
        event=event,
        started_by=actor.person,
        via=actor.via,
        token_name=actor.token_name,
        comment=actor.why,
        created_at=now,
        ends_by=now + timedelta(seconds=wanted.notice_seconds + wanted.duration_seconds) + GRACE,
    )
    _ask(drill, event, machines, presences, now=now)
    names = [machine.resource_name for machine in hit]
    tell(
        EntryKind.DRILL_BEGAN,
        actor,
        at=now,
        event_id=event.pk,
        set_id=home.pk,
        before={"drill": None},
        after={"drill": drill.pk, "type": wanted.event_type, "machines": ", ".join(names)},
        set=home.name,
        type=wanted.event_type,
        machines=names,
        not_before=not_before,
        live=len(live),
    )
    return drill


@transaction.atomic
def stop(*, drill_id: int, actor: Actor, now: datetime) -> Drill:
    """Stop a running drill. Raises Refused: `not-permitted`, `validation`, `unknown-drill`, `too-late`."""
    actor = acting(actor, Right.APPROVE, doing="stop-drill")
    found = Drill.objects.select_related("event__availability_set").filter(pk=drill_id).first()
    drill = require_found(found, "unknown-drill", Reason("unknown-drill"))
    require(actor, Right.APPROVE, place_of(drill.event.availability_set), doing="stop-drill")
    compute.lock([drill.event_id])
    drill.refresh_from_db()
    ending = Ending(Outcome.STOPPED, Reason("drill-stopped-by", by=actor.name, comment=actor.why))
    if drill.closed_at is not None or not advance.close(drill, ending, actor, now=now):
        raise Refused("too-late", Reason("drill-over"))
    drill.refresh_from_db()
    return drill


def _ask(
    drill: Drill,
    event: ScheduledEvent,
    machines: Sequence[Machine],
    presences: Mapping[int, Presence],
    *,
    now: datetime,
) -> None:
    """Write the rows of the drill's machines, and instruct every live machine to rehearse."""
    rehearsals = Rehearsal.objects.bulk_create(
        [Rehearsal(drill=drill, machine=machine, left_out=_left_out(presences[machine.pk])) for machine in machines]
    )
    queue.instruct(
        [row for row in rehearsals if not row.left_out],
        queue.REHEARSE,
        now=now,
        expires_at=event.not_before,
        data={
            "event": _as_azure_words_it(event),
            "not_before": iso(event.not_before) if event.not_before else "",
            "duration_seconds": event.duration_seconds,
        },
    )


def _check(wanted: Wanted) -> None:
    if wanted.event_type not in KINDS:
        raise Refused("validation", Reason("drill-of-no-type", types=list(KINDS)))
    for what, seconds, (least, most) in (
        ("notice", wanted.notice_seconds, NOTICE_SECONDS),
        ("duration", wanted.duration_seconds, DURATION_SECONDS),
    ):
        if not least <= seconds <= most:
            raise Refused("validation", Reason("drill-out-of-bounds", what=what, least=least, most=most))


def _nothing_else(home: AvailabilitySet) -> None:
    open_events = ScheduledEvent.objects.filter(availability_set=home, status__in=OPEN_EVENTS)
    real = open_events.filter(drill=False).order_by("pk").first()
    if real is not None:
        raise Refused(
            "real-event-open",
            Reason("real-event-open", event_type=real.event_type),
            event=real.event_id,
        )
    other = Drill.objects.filter(event__availability_set=home, closed_at__isnull=True).first()
    if other is not None:
        raise Refused("drill-open", Reason("drill-open"), drill=other.pk)


def _hit(wanted: Wanted, machines: Sequence[Machine], live: Sequence[Machine]) -> list[Machine]:
    if not live:
        raise Refused("no-live-machine", Reason("drill-no-live-machine"))
    if not wanted.machines:
        return [live[0]]
    by_name = {machine.resource_name.lower(): machine for machine in machines}
    unknown = [name for name in wanted.machines if name.strip().lower() not in by_name]
    if unknown:
        raise Refused("validation", Reason("drill-of-no-machine", machines=unknown))
    chosen = {by_name[name.strip().lower()].pk: by_name[name.strip().lower()] for name in wanted.machines}
    silent = [machine.resource_name for machine in chosen.values() if machine not in live]
    if silent:
        raise Refused("validation", Reason("drill-of-silent-machines", machines=silent))
    return list(chosen.values())


def _left_out(presence: Presence) -> str:
    return "" if presence is Presence.LIVE else Reason("drill-left-out", presence=presence.value).stored


def _event(
    home: AvailabilitySet, hit: Sequence[Machine], wanted: Wanted, comment: str, not_before: datetime, now: datetime
) -> ScheduledEvent:
    return ScheduledEvent.objects.create(
        event_id=f"{wire.DRILL_PREFIX}{uuid.uuid4()}".upper(),
        availability_set=home,
        drill=True,
        created_at=now,
        first_seen_at=now,
        event_type=wanted.event_type,
        resource_type="VirtualMachine",
        source=SOURCE,
        description=f"Drill. {comment}".strip(),
        duration_seconds=wanted.duration_seconds,
        not_before=not_before,
        resources=[machine.resource_name for machine in hit],
        watched=False,
    )


def _as_azure_words_it(event: ScheduledEvent) -> dict[str, Any]:
    """Return the event in the form of Azure's document, which hooks get on standard input."""
    return {
        "EventId": event.event_id,
        "EventStatus": "Scheduled",
        "EventType": event.event_type,
        "ResourceType": event.resource_type,
        "Resources": event.resources,
        "NotBefore": format_datetime(event.not_before, usegmt=True) if event.not_before else "",
        "Description": event.description,
        "EventSource": event.source,
        "DurationInSeconds": event.duration_seconds,
    }


def _machines_of(set_id: int) -> list[Machine]:
    """Return the machines of a set (row id) that are not revoked, by name."""
    rows = Machine.objects.filter(availability_set=set_id, revoked_at__isnull=True)
    return list(rows.select_related("presence", "latest_document").defer("compute").order_by("resource_name", "pk"))
