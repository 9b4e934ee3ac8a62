"""The machines of sets as facts read them: plain rows, since thousands are read at a time."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from fleet.domain.intake.presence import Limits, presence_of
from fleet.domain.states import Presence
from fleet.models.machines import Machine


@dataclass(frozen=True, slots=True)
class MachineBasics:
    """What facts say of a machine, whatever it is to an event. A document is a good poll, too."""

    machine_id: int
    name: str
    fault_domain: int | None
    update_domain: int | None
    revoked_at: datetime | None
    heard_at: datetime | None
    polled_at: datetime | None
    presence: Presence


COLUMNS = (
    "availability_set_id", "id", "resource_name", "fault_domain", "update_domain", "revoked_at",
    "presence__last_heard_at", "presence__last_poll_at", "latest_document__at",
)  # fmt: skip


def machine_rows(set_ids: Collection[int], *, now: datetime, limits: Limits) -> dict[int, list[MachineBasics]]:
    """The machines of these sets (row ids), by set and in the order of their names. One query."""
    found: dict[int, list[MachineBasics]] = defaultdict(list)
    rows = Machine.objects.filter(availability_set_id__any=set_ids).order_by("resource_name", "id")
    for set_id, pk, name, fault_domain, update_domain, revoked_at, *times in rows.values_list(*COLUMNS):
        heard_at, told_at, document_at = times
        polled_at = max((at for at in (told_at, document_at) if at is not None), default=None)
        presence = presence_of(
            last_heard_at=heard_at, last_poll_at=polled_at, revoked=revoked_at is not None, now=now, limits=limits
        )
        found[set_id].append(
            MachineBasics(pk, name, fault_domain, update_domain, revoked_at, heard_at, polled_at, presence)
        )
    return found
