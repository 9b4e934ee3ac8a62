"""A standing rule for one set: its machines that come back without their credential are admitted by themselves."""

from datetime import datetime, timedelta

from django.db import transaction

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused, or_refuse
from fleet.domain.sets import PROVISIONAL, agree
from fleet.domain.states import Presence
from fleet.domain.texts import cleaned
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, JoinToken, Machine
from fleet.models.facts.events import machine_presence, presence_limits
from fleet.operations.people.rights import require
from fleet.operations.sets import placement
from fleet.operations.timeline.entries import tell

LONGEST = timedelta(days=7)


@transaction.atomic
def set_rule(*, set_id: int, until: datetime | None, actor: Actor, now: datetime) -> None:
    """From now until then machines of this set that come back are admitted; None ends that at once.

    Raises Refused `not-permitted`, `validation`, `not-found`.
    """
    require(actor, Right.ADMINISTER)
    actor = actor.because(cleaned(actor.why))
    rows = AvailabilitySet.objects.select_for_update().filter(pk=set_id, merged_into=None)
    home = or_refuse(rows.first(), "not-found", Reason("set-unknown"))
    if until is not None and home.kind == PROVISIONAL:
        raise Refused("validation", Reason("admission-rule-unnamed"))
    if until is not None and not now < until <= now + LONGEST:
        raise Refused("validation", Reason("admission-rule-time", days=LONGEST.days))
    before = home.admits_until if home.admits_until is not None and home.admits_until > now else None
    if before == until:
        return
    AvailabilitySet.objects.filter(pk=set_id).update(admits_until=until)
    tell(
        EntryKind.SET_CHANGED,
        actor,
        at=now,
        set_id=set_id,
        before={"admits_until": before},
        after={"admits_until": until},
        name=home.name,
    )


def admits(machine: Machine, token: JoinToken, *, now: datetime, address: str) -> bool:
    """Whether the rule of its set lets somebody in as this machine, whose row is locked; then the timeline has it.

    It wants a join token that confines to this very set. Who is live does not come back, and who was revoked is
    admitted by a person alone.
    """
    home = placement.final(machine.availability_set)
    if machine.revoked_at is not None or home.admits_until is None or home.admits_until <= now:
        return False
    confined = placement.confinement_of(token)
    if confined is None or not confined.placed or not agree(confined, placement.key_of(home)):
        return False
    row = Machine.objects.select_related("presence", "latest_document").defer("compute").get(pk=machine.pk)
    if machine_presence(row, now=now, limits=presence_limits()) is Presence.LIVE:
        return False
    tell(
        EntryKind.MACHINE_ADMITTED,
        DRYDOCK,
        at=now,
        machine_id=machine.pk,
        set_id=home.pk,
        before={"admission": "waits"},
        after={"admission": "admitted"},
        name=machine.resource_name,
        address=address[:100],
        until=home.admits_until,
    )
    return True
