"""Beginning a wave: all of its events are decided at once, or none."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from django.db import transaction

from fleet.domain.actor import Actor
from fleet.domain.approvals.conditions import When
from fleet.domain.approvals.guards import EventFacts, Need, guards
from fleet.domain.events.types import is_advice
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused
from fleet.domain.states import LIVE_APPROVALS, EventStatus
from fleet.domain.texts import cleaned_reasons
from fleet.domain.timeline import EntryKind
from fleet.domain.waves import WaveState
from fleet.models import Approval, ScheduledEvent, Wave
from fleet.models.facts.events import place_of
from fleet.operations.approvals import conditions
from fleet.operations.approvals.approve import Plan, alone_with, decide, home_name, judged, take_over
from fleet.operations.approvals.override import told
from fleet.operations.people.rights import acting, require, sees
from fleet.operations.timeline.entries import tell

MOST = 100


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
    """Approve these events (EventIds, in this order), or all open undecided ones of a service (soonest first), in turn.

    `overrides` are reasons by guard code, for every event that needs one, `shown` the digests of the guards that were
    looked at. `versions` are those of the events that were
    looked at, by EventId; with them, an event of the service that is not among them was not seen and stands in the way.
    All or nothing. Raises Refused:
    `not-permitted`, `validation`, `unknown-event`, `wave-running` (details `wave`), `guarded` and the other codes of
    `approve.grant`, with details `events`: `event_id`, `code`, `sentence` of each one that stands in the way.
    """
    actor = acting(actor, Right.APPROVE, doing="begin-wave")
    reasons = cleaned_reasons(overrides)
    rows = _of_service(service, actor, now) if service else _named(events, actor)
    for row in rows:
        require(actor, Right.APPROVE, place_of(row.availability_set), doing="approve")
    if len(rows) < 2:
        raise Refused("validation", Reason("wave-of-one"))
    if len(rows) > MOST:
        raise Refused("validation", Reason("wave-of-many", most=MOST))
    home = {home_name(row.availability_set.service, row.availability_set_id) for row in rows}
    if len(home) > 1:
        raise Refused("validation", Reason("wave-of-services"))
    with alone_with(*[row.pk for row in rows], meanwhile=Reason("wave-already-decided")):
        wave = _begun(
            rows, actor, Plan(overrides=reasons, shown=shown or {}), _seen(rows, versions, every=bool(service)), now=now
        )
    # The first one goes at once, not when time comes round to it.
    conditions.advance(now=now, event_pks=[row.pk for row in rows])
    wave.refresh_from_db()
    return wave


def _seen(rows: Sequence[ScheduledEvent], versions: Mapping[str, int] | None, *, every: bool) -> dict[int, int]:
    """The versions that were looked at, by row id; with `every`, one that no event has for what was not looked at."""
    wanted = {event_id.strip().upper(): version for event_id, version in (versions or {}).items()}
    if wanted and every:
        return {row.pk: wanted.get(row.event_id, -1) for row in rows}
    return {row.pk: wanted[row.event_id] for row in rows if row.event_id in wanted}


def _named(event_ids: Sequence[str], actor: Actor) -> list[ScheduledEvent]:
    wanted = list(dict.fromkeys(event_id.strip().upper() for event_id in event_ids))
    found = {
        row.event_id: row
        for row in ScheduledEvent.objects.filter(event_id__in=wanted).select_related("availability_set")
    }
    for event_id in wanted:
        # One that the actor may not see is answered as one that is not there, before anything else is said of any.
        if event_id not in found or not sees(actor, place_of(found[event_id].availability_set)):
            raise Refused("unknown-event", Reason("wave-unknown-event", event_id=event_id[:200]))
    for event_id in wanted:
        if found[event_id].drill:
            raise Refused("validation", Reason("wave-takes-no-drill"))
    return [found[event_id] for event_id in wanted]


def _of_service(service: str, actor: Actor, now: datetime) -> list[ScheduledEvent]:
    decided = Approval.objects.filter(
        state__in=[state.value for state in LIVE_APPROVALS], decided_by__isnull=False
    ).values("event_id")
    rows = ScheduledEvent.objects.filter(
        availability_set__service=service, status=EventStatus.SCHEDULED.value, drill=False
    ).exclude(pk__in=decided)
    # In this order as many as possible get their turn before NotBefore.
    known = [row for row in rows.select_related("availability_set") if sees(actor, place_of(row.availability_set))]
    # About advice there is nothing to decide.
    in_time = [
        row for row in known if not is_advice(row.event_type) and (row.not_before is None or row.not_before > now)
    ]
    return sorted(in_time, key=lambda row: (row.not_before is None, row.not_before or now, row.pk))


def _begun(
    rows: Sequence[ScheduledEvent],
    actor: Actor,
    said: Plan,
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
        if all(sees(actor, place_of(member.availability_set)) for member in members):
            raise Refused("wave-running", Reason("wave-running", wave=running), wave=running)
        raise Refused("wave-running", Reason("wave-running-elsewhere"))
    wave = Wave.objects.create(
        service=home.service,
        state=WaveState.RUNNING.value,
        created_by=actor.person,
        via=actor.via,
        token_name=actor.token_name,
        comment=actor.why,
        created_at=now,
    )
    against: list[dict[str, object]] = []
    # Locked in the order of their row ids, then decided in turn.
    facts = {pk: judged(pk, now=now) for pk in sorted(row.pk for row in rows)}
    for turn, row in enumerate(rows, 1):
        require(actor, Right.APPROVE, facts[row.pk].place, doing="approve")
        try:
            # A savepoint: a refusal leaves nothing of this event, and the next one is still judged.
            with transaction.atomic():
                current = take_over(row.pk, facts[row.pk], actor, now=now)
                _needs_no_second_person(current, now)
                plan = replace(said, when=When.TURN, expected_version=versions.get(row.pk), wave=wave, turn=turn)
                decide(row.pk, actor, plan, now=now)
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
    tell(
        EntryKind.WAVE_BEGAN,
        actor,
        at=now,
        set_id=min(sets) if len(sets) == 1 else None,
        before={"wave": None},
        after={"wave": WaveState.RUNNING.value},
        wave=wave.pk,
        events=[row.event_id for row in rows],
        named=[{"type": row.event_type, "resources": row.resources} for row in rows],
    )


def _needs_no_second_person(facts: EventFacts, now: datetime) -> None:
    second = [guard for guard in guards(facts, now=now) if guard.needs is Need.SECOND]
    if second:
        raise Refused(
            "guarded",
            Reason("wave-waits-for-no-second", guard=second[0].sentence),
            guards=told(second),
        )
