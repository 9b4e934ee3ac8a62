"""No-approval windows: hours in which nothing is approved without a reason. Admins make and delete them."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from django.db import transaction

from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.policy.faults import refuse
from fleet.domain.policy.values import tidied
from fleet.domain.policy.windows import Window, window_faults, window_wording
from fleet.domain.reason import Reason
from fleet.domain.refusal import or_refuse
from fleet.domain.timeline import EntryKind
from fleet.models import NoApprovalWindow
from fleet.models.policy import window_of
from fleet.operations.people.rights import require
from fleet.operations.policy.changes import note, refuse_unknown, values_of

STATED = tuple(field.name for field in fields(Window))


@transaction.atomic
def create(*, actor: Actor, now: datetime, values: Mapping[str, Any]) -> NoApprovalWindow:
    """A new window; `values` are the fields of `Window`. Raises Refused: `not-permitted`, `validation` (details
    `errors`).
    """
    require(actor, Right.ADMINISTER)
    refuse_unknown(values, STATED)
    window = Window(**{name: tidied(value, name) for name, value in values.items()})
    refuse(list(window_faults(window, now=now)))
    columns = {name: getattr(window, name) for name in STATED} | {"weekdays": list(window.weekdays)}
    row = NoApprovalWindow.objects.create(**columns, author=actor.person, created_at=now)
    actor = actor.because(actor.why or row.reason)
    wording = window_wording(window)
    note(EntryKind.WINDOW_CREATED, row, actor, wording, now=now, before=None, after=values_of(row, STATED))
    return row


@transaction.atomic
def delete(*, window_id: int, actor: Actor, now: datetime) -> NoApprovalWindow:
    """End a window for good. Raises Refused: `not-permitted`, `not-found`."""
    require(actor, Right.ADMINISTER)
    found = NoApprovalWindow.objects.select_for_update().filter(pk=window_id, deleted_at__isnull=True).first()
    row = or_refuse(found, "not-found", Reason("window-unknown"))
    row.deleted_at = now
    row.save(update_fields=["deleted_at"])
    wording = window_wording(window_of(row))
    note(EntryKind.WINDOW_DELETED, row, actor, wording, now=now, before=values_of(row, STATED), after=None)
    return row
