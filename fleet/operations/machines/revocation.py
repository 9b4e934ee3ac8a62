"""How a machine loses its credential. Only an admission brings it back."""

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import or_refuse
from fleet.domain.states import OPEN_ORDERS, EventStatus
from fleet.domain.texts import cleaned
from fleet.domain.timeline import EntryKind
from fleet.models import Machine, ScheduledEvent
from fleet.operations import wake_up
from fleet.operations.events import compute
from fleet.operations.machines import admissions
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
    found = Machine.objects.defer("compute").filter(pk=machine_id).first()
    machine = or_refuse(found, "unknown-machine", Reason("machine-unknown"))
    if not Machine.objects.filter(pk=machine_id, revoked_at__isnull=True).update(revoked_at=now, credential_hash=""):
        return
    # Whoever was admitted as this machine before has to ask a person again.
    admissions.done(machine.vm_id)
    tell(
        EntryKind.MACHINE_REVOKED,
        actor,
        at=now,
        machine_id=machine_id,
        set_id=machine.availability_set_id,
        before={"credential": "valid"},
        after={"credential": "revoked"},
        name=machine.resource_name,
    )
    ordered = Q(approvals__orders__machine=machine_id, approvals__orders__state__in=[one.value for one in OPEN_ORDERS])
    said = ScheduledEvent.objects.filter(Q(sightings__machine=machine_id) | ordered)
    events = compute.lock(said.exclude(status=EventStatus.ENDED.value).values_list("pk", flat=True))
    compute.compute_state(events, now=now)
    advance.advance_events(events, now=now, via="report")
    transaction.on_commit(lambda: wake_up.forget_credentials([machine_id]))
    transaction.on_commit(lambda: wake_up.hint_events([event.pk for event in events]))
