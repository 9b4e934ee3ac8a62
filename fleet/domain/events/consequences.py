"""What happens if nobody acts, and what Microsoft advises for an event."""

from datetime import datetime, timedelta

from fleet.domain.events.types import is_advice
from fleet.domain.reason import Reason
from fleet.domain.states import EventStatus

# Ordinary maintenance is announced minutes ahead.
FAR_AHEAD = timedelta(hours=24)


def advice(
    *, status: EventStatus, source: str, not_before: datetime | None, now: datetime, event_type: str = ""
) -> Reason | str:
    """What Microsoft advises for such an event; empty where there is nothing special to say.

    Source: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023.
    """
    if status is not EventStatus.SCHEDULED:
        return ""
    if is_advice(event_type):
        return Reason("advice-spot-rebalance")
    if source == "User":
        return Reason("advice-own-event")
    return Reason("advice-hardware-fails") if not_before is not None and not_before - now > FAR_AHEAD else ""


def if_nobody_acts(
    *,
    status: EventStatus,
    not_before: datetime | None,
    watched: bool,
    now: datetime,
    drill: bool = False,
    event_type: str = "",
) -> Reason:
    """Nobody can postpone: Azure may start the event from NotBefore on. A drill starts by itself then."""
    if status is EventStatus.ENDED:
        return Reason("event-over")
    if is_advice(event_type):
        return Reason("advice-starts-nothing")
    if status is EventStatus.STARTED:
        return Reason("event-runs")
    if not_before is None:
        return Reason("starts-any-moment")
    if drill:
        return Reason("drill-starts", at=not_before)
    if not_before <= now:
        return Reason("starts-overdue", at=not_before)
    return Reason("starts-after", at=not_before, watched=watched)
