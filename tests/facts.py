"""Facts about an event against which no guard stands: a Freeze of vm1, one of three live machines of the set web."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from fleet.domain.approvals.guards import EventFacts, MachineFacts
from fleet.domain.states import EventStatus, Presence
from tests.factories import NOW


def machine(number: int, presence: Presence = Presence.LIVE, **fields: Any) -> MachineFacts:
    return MachineFacts(number, f"vm{number}", presence, **{"lists_it": True, **fields})


CALM = EventFacts(
    event_id="E",
    status=EventStatus.SCHEDULED,
    event_type="Freeze",
    version=1,
    not_before=NOW + timedelta(minutes=15),
    resources=("vm1",),
    set_id=1,
    set_kind="availability_set",
    set_name="web",
    set_service="shop",
    source="Platform",
    duration_seconds=5,
    machines=(machine(1), machine(2), machine(3)),
)


def calm(**fields: Any) -> EventFacts:
    return replace(CALM, **fields)
