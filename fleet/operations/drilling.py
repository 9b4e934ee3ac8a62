"""Drilling: people begin a drill and stop one. What happens in between is `rehearsing`."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction
from drydock_agent import wire

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
from fleet.domain.entries import EntryKind
from fleet.domain.states import LOOKS, EventStatus, Presence
from fleet.models import AvailabilitySet, Drill, Machine, Rehearsal, ScheduledEvent
from fleet.models.facts import machine_presence, place_of, presence_limits
from fleet.operations import folding, instructing, rehearsing
from fleet.operations.deciding import cleaned
from fleet.operations.entries import entry, write
from fleet.operations.errors import Refused
from fleet.operations.rights import require_approve

# The first key of the advisory lock that keeps two people from drilling one set at once.
DRILL_LOCK = 7_001_180
SOURCE = "Platform"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be rehearsed. Without `machines` (resource names) the set's first live machine is hit."""

    event_type: str = DEFAULT_TYPE
    machines: Sequence[str] = ()
    notice_seconds: int = DEFAULT_NOTICE_SECONDS
    duration_seconds: int = DEFAULT_DURATION_SECONDS


@transaction.atomic
def begin(
    *, set_id: int, by: User, via: str, now: datetime, comment: str, wanted: Wanted | None = None, token_name: str = ""
) -> Drill:
    """Begin a drill of a set: an event that every live machine of the set pretends, and nobody tells Azure of.

    `via` is `page` or `api`. Raises Refused: `not-permitted`, `validation`, `unknown-set`, `real-event-open` (details
    `event`), `drill-open` (details `drill`), `no-live-machine`.
    """
    wanted = wanted or Wanted()
    require_approve(by, verb="Rehearsing")
    comment = cleaned(comment)
    home = AvailabilitySet.objects.select_related("merged_into").filter(pk=set_id).first()
    if home is None:
        raise Refused("unknown-set", "There is no such set.")
    home = home.merged_into or home
    require_approve(by, place_of(home), verb="Rehearsing")
    _check(wanted)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [DRILL_LOCK, home.pk])
    _nothing_else(home)
    limits = presence_limits()
    machines = rehearsing.machines_of(home.pk)
    presences = {machine.pk: machine_presence(machine, now=now, limits=limits) for machine in machines}
    live = [machine for machine in machines if presences[machine.pk] is Presence.LIVE]
    hit = _hit(wanted, machines, live)
    not_before = (now + timedelta(seconds=wanted.notice_seconds)).replace(microsecond=0)
    event = _event(home, hit, wanted, comment, not_before, now)
    drill = Drill.objects.create(
        event=event,
        started_by=by,
        via=via,
        token_name=token_name,
        comment=comment,
        created_at=now,
        ends_by=now + timedelta(seconds=wanted.notice_seconds + wanted.duration_seconds) + GRACE,
    )
    rehearsals = Rehearsal.objects.bulk_create(
        [Rehearsal(drill=drill, machine=machine, left_out=_left_out(presences[machine.pk])) for machine in machines]
    )
    instructing.instruct(
        [row for row in rehearsals if not row.left_out],
        instructing.REHEARSE,
        now=now,
        expires_at=not_before,
        data={
            "event": _as_azure_words_it(event),
            "not_before": rehearsing.wire_time(not_before),
            "duration_seconds": wanted.duration_seconds,
        },
    )
    said = f" “{comment}”" if comment else ""
    names = ", ".join(machine.resource_name for machine in hit)
    write(
        [
            entry(
                EntryKind.DRILL_BEGAN,
                f"{by.get_username()} began a drill of {home.name}: {wanted.event_type} for {names}, "
                f"not before {not_before:%H:%M:%S} UTC, with {len(live)} machines.{said}",
                at=now,
                event_id=event.pk,
                set_id=home.pk,
                actor=by.get_username(),
                via=via,
                token_name=token_name,
                why=comment,
                before={"drill": None},
                after={"drill": drill.pk, "type": wanted.event_type, "machines": names},
            )
        ]
    )
    return drill


@transaction.atomic
def stop(*, drill_id: int, by: User, via: str, now: datetime, comment: str = "", token_name: str = "") -> Drill:
    """End a drill before its time. Raises Refused: `not-permitted`, `validation`, `unknown-drill`, `too-late`."""
    require_approve(by, verb="Stopping a drill")
    comment = cleaned(comment)
    drill = Drill.objects.select_related("event__availability_set").filter(pk=drill_id).first()
    if drill is None:
        raise Refused("unknown-drill", "There is no such drill.")
    require_approve(by, place_of(drill.event.availability_set), verb="Stopping a drill")
    folding.lock([drill.event_id])
    drill.refresh_from_db()
    reason = f"{by.get_username()} stopped it." + (f" “{comment}”" if comment else "")
    ending = Ending(Outcome.STOPPED, reason)
    closed = drill.closed_at is None and rehearsing.close(
        drill, ending, now=now, actor=by.get_username(), via=via, token_name=token_name, why=comment
    )
    if not closed:
        raise Refused("too-late", "The drill is over already.")
    drill.refresh_from_db()
    return drill


def _check(wanted: Wanted) -> None:
    if wanted.event_type not in KINDS:
        raise Refused("validation", f"The type has to be one of {', '.join(KINDS)}.")
    for what, seconds, (least, most) in (
        ("notice", wanted.notice_seconds, NOTICE_SECONDS),
        ("duration", wanted.duration_seconds, DURATION_SECONDS),
    ):
        if not least <= seconds <= most:
            raise Refused("validation", f"The {what} of a drill has to be {least} to {most:,} seconds.")


def _nothing_else(home: AvailabilitySet) -> None:
    open_events = ScheduledEvent.objects.filter(availability_set=home).exclude(status=EventStatus.ENDED.value)
    real = open_events.filter(drill=False).order_by("pk").first()
    if real is not None:
        raise Refused(
            "real-event-open",
            f"A real event of this set is open ({real.event_type or 'of unknown type'}): rehearse when it is over.",
            event=real.event_id,
        )
    other = Drill.objects.filter(event__availability_set=home, closed_at__isnull=True).first()
    if other is not None:
        raise Refused("drill-open", "A drill of this set is under way already.", drill=other.pk)


def _hit(wanted: Wanted, machines: Sequence[Machine], live: Sequence[Machine]) -> list[Machine]:
    if not live:
        raise Refused("no-live-machine", "No machine of this set is live, so none could take part in a drill.")
    if not wanted.machines:
        return [live[0]]
    by_name = {machine.resource_name.lower(): machine for machine in machines}
    unknown = [name for name in wanted.machines if name.strip().lower() not in by_name]
    if unknown:
        raise Refused("validation", f"The set has no machine {', '.join(unknown)}.")
    chosen = {by_name[name.strip().lower()].pk: by_name[name.strip().lower()] for name in wanted.machines}
    silent = [machine.resource_name for machine in chosen.values() if machine not in live]
    if silent:
        raise Refused("validation", f"{', '.join(silent)} cannot rehearse: only live machines can.")
    return list(chosen.values())


def _left_out(presence: Presence) -> str:
    return "" if presence is Presence.LIVE else f"it was {LOOKS[presence].label} when the drill began"


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
    """What hooks are given on their standard input."""
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
