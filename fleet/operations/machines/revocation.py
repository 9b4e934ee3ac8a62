"""How a machine loses its credential, and how an admin lets it come back."""

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused, or_refuse
from fleet.domain.states import OPEN_ORDERS, EventStatus
from fleet.domain.texts import cleaned
from fleet.domain.timeline import EntryKind
from fleet.models import Machine, ScheduledEvent
from fleet.operations import wake_up
from fleet.operations.events import compute
from fleet.operations.orders import advance
from fleet.operations.people.rights import require
from fleet.operations.timeline.entries import tell


@transaction.atomic
def revoke(*, machine_id: int, actor: Actor, now: datetime) -> None:
    """Cut a machine off: its credential ends, and every open event is computed without its word, in one transaction.

    Gateways forget it by a wake-up, and within about a second without Redis; nothing that it sends in between is taken.
    Raises Refused `not-permitted`, `validation` or `unknown-machine`.
    """
    require(actor, Right.ADMINISTER)
    actor = actor.because(cleaned(actor.why))
    machine = _known(machine_id)
    if not Machine.objects.filter(pk=machine_id, revoked_at__isnull=True).update(revoked_at=now, credential_hash=""):
        return
    _tell(EntryKind.MACHINE_REVOKED, machine, actor, now, before="valid", after="revoked")
    ordered = Q(approvals__orders__machine=machine_id, approvals__orders__state__in=[one.value for one in OPEN_ORDERS])
    said = ScheduledEvent.objects.filter(Q(sightings__machine=machine_id) | ordered)
    events = compute.lock(said.exclude(status=EventStatus.ENDED.value).values_list("pk", flat=True))
    compute.compute_state(events, now=now)
    advance.advance_events(events, now=now, via="report")
    transaction.on_commit(lambda: wake_up.forget_credentials([machine_id]))
    transaction.on_commit(lambda: wake_up.hint_events([event.pk for event in events]))


@transaction.atomic
def readmit(*, machine_id: int, actor: Actor, now: datetime) -> None:
    """Let a revoked machine enrol again. Raises Refused `not-permitted`, `validation`, `unknown-machine`,
    `not-revoked`.
    """
    require(actor, Right.ADMINISTER)
    actor = actor.because(cleaned(actor.why))
    machine = _known(machine_id)
    if not Machine.objects.filter(pk=machine_id, revoked_at__isnull=False).update(revoked_at=None, credential_hash=""):
        raise Refused("not-revoked", Reason("not-revoked", name=machine.resource_name))
    _tell(EntryKind.MACHINE_READMITTED, machine, actor, now, before="revoked", after="none yet")


def _known(machine_id: int) -> Machine:
    found = Machine.objects.defer("compute").filter(pk=machine_id).first()
    return or_refuse(found, "unknown-machine", Reason("machine-unknown"))


def _tell(kind: EntryKind, machine: Machine, actor: Actor, now: datetime, *, before: str, after: str) -> None:
    tell(
        kind,
        actor,
        at=now,
        machine_id=machine.pk,
        set_id=machine.availability_set_id,
        before={"credential": before},
        after={"credential": after},
        name=machine.resource_name,
    )
