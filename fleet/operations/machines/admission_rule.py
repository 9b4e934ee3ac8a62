"""A standing rule for one set: its machines that come back without their credential are admitted by themselves."""

from datetime import datetime, timedelta

from django.db import transaction

from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused, or_refuse
from fleet.domain.sets import PROVISIONAL, SetKey, agree, read_stated
from fleet.domain.states import Presence
from fleet.domain.texts import cleaned
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, Machine
from fleet.models.facts.events import machine_presence, presence_limits
from fleet.operations.machines.admissions import Asker
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


def admits(asker: Asker, *, now: datetime) -> SetKey | None:
    """The set whose rule lets whoever asks in, and into no other set; then the timeline has it. Else None.

    It wants a join token that confines to this very set, or a document of Azure's that names the set's subscription.
    A machine that is live, or got its key just now, does not come back; a revoked one is admitted by a person alone.
    """
    machine = asker.known
    home = placement.final(machine.availability_set) if machine is not None else _named(asker)
    if home is None or home.admits_until is None or home.admits_until <= now or not _speaks_for(asker, home):
        return None
    if machine is not None:
        row = Machine.objects.select_related("presence", "latest_document").defer("compute").get(pk=machine.pk)
        limits = presence_limits()
        # Of several that ask at once the first has its key already, and no other replaces it.
        enrolled_now = now - machine.enrolled_at < timedelta(seconds=limits.live)
        live = enrolled_now or machine_presence(row, now=now, limits=limits) is Presence.LIVE
        if live or machine.revoked_at is not None:
            return None
    tell(
        EntryKind.MACHINE_ADMITTED,
        DRYDOCK,
        at=now,
        machine_id=machine.pk if machine is not None else None,
        set_id=home.pk,
        before={"admission": "waits"},
        after={"admission": "admitted"},
        name=machine.resource_name if machine is not None else asker.request.resource_name[:200] or asker.vm_id,
        address=asker.address[:100],
        until=home.admits_until,
    )
    return placement.whole(placement.key_of(home))


def _speaks_for(asker: Asker, home: AvailabilitySet) -> bool:
    """Whether a join token or Azure says that it belongs to this set."""
    confined = placement.confinement_of(asker.token) if asker.token is not None else None
    if confined is not None and confined.placed and agree(confined, placement.key_of(home)):
        return True
    return bool(asker.attested) and asker.attested == home.subscription.lower()


def _named(asker: Asker) -> AvailabilitySet | None:
    """The set that a machine which nobody knows says it is in, where that is here and admits."""
    named = read_stated(asker.request.availability_set.strip())
    if named is None:
        return None
    rows = AvailabilitySet.objects.filter(merged_into=None, admits_until__isnull=False, kind=named[0])
    return rows.filter(name__iexact=named[1], subscription__iexact=asker.attested).order_by("pk").first()
