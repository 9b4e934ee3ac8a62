"""The switch for the worst hour: one row in Postgres stops every rule, wave, approval and order, in every process.

Whoever sets something off asks for the row at that moment (`models.policy.stop_in_force`), so it needs no Redis.
"""

from collections.abc import Collection
from datetime import datetime

from django.db import IntegrityError, transaction

from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused, or_refuse, refuse_other
from fleet.domain.timeline import EntryKind
from fleet.models import Stop
from fleet.models.policy import stop_in_force
from fleet.operations.people.rights import acting
from fleet.operations.timeline.entries import tell


def stop_all(*, actor: Actor, now: datetime) -> Stop:
    """Stop all approvals, until somebody lifts it. What Azure was asked already goes on.

    Approvers and admins may, wherever their scopes end. Raises Refused: `not-permitted`, `validation` (no reason),
    `stopped` (it is stopped already).
    """
    actor = acting(actor, Right.OVERRIDE, doing="stop-all")
    if not actor.why:
        raise Refused("validation", Reason("stop-without-why"))
    try:
        with transaction.atomic():
            row = Stop.objects.create(stopped_at=now, stopped_by=actor.name, why=actor.why)
            before, after = {"approvals": "possible"}, {"approvals": "stopped"}
            tell(EntryKind.APPROVALS_STOPPED, actor, at=now, before=before, after=after)
    except IntegrityError as error:
        first = stop_in_force()
        if first is None:
            raise
        raise Refused("stopped", Reason("stopped-already", by=first.by, at=first.at)) from error
    return row


@transaction.atomic
def lift(*, actor: Actor, now: datetime, expected: Collection[str] | None = None) -> Stop:
    """Let approvals go on: what was decided before the stop goes its way, as far as NotBefore is not past. `expected`:
    times of the stop that was looked at.

    Raises Refused: `not-permitted`, `validation`, `not-stopped`, `precondition-failed`.
    """
    actor = acting(actor, Right.ADMINISTER, doing="lift-stop")
    found = Stop.objects.select_for_update().filter(lifted_at__isnull=True).first()
    row = or_refuse(found, "not-stopped", Reason("not-stopped"))
    refuse_other(row.stopped_at, expected)
    row.lifted_at, row.lifted_by, row.lifted_why = now, actor.name, actor.why
    row.save(update_fields=["lifted_at", "lifted_by", "lifted_why"])
    before, after = {"approvals": "stopped"}, {"approvals": "possible"}
    tell(EntryKind.STOP_LIFTED, actor, at=now, before=before, after=after, by=row.stopped_by)
    return row
