"""What happens if nobody acts, in one sentence."""

from datetime import datetime, timedelta

from fleet.domain.states import EventStatus

# Ordinary maintenance is announced minutes ahead.
FAR_AHEAD = timedelta(hours=24)


def advice(
    *,
    status: EventStatus,
    source: str,
    not_before: datetime | None,
    now: datetime,
) -> str:
    """What Microsoft advises for such an event, in one or two sentences; empty where there is nothing special to say.

    Source: "Scheduled Events for Linux VMs in Azure", Microsoft, dated 01/25/2023.
    """
    if status is not EventStatus.SCHEDULED:
        return ""
    if source == "User":
        return (
            "Somebody of your own organisation asked for this: like every event it waits until it is approved or "
            "NotBefore comes. Microsoft advises to approve such events at once."
        )
    if not_before is not None and not_before - now > FAR_AHEAD:
        return (
            "Announced days ahead: the host's hardware is predicted to fail. Microsoft advises to redeploy the machine "
            "yourself as soon as possible, before it fails."
        )
    return ""


def if_nobody_acts(
    *, status: EventStatus, not_before: datetime | None, watched: bool, now: datetime, drill: bool = False
) -> str:
    """Nobody can postpone: Azure may start the event from NotBefore on. A drill starts by itself then."""
    if status is EventStatus.ENDED:
        return "Nothing: the event is over."
    if drill and status is EventStatus.SCHEDULED and not_before is not None:
        return f"A drill: it starts by itself at {not_before:%H:%M:%S} UTC, and Azure knows nothing of it."
    if status is EventStatus.STARTED:
        return "It runs and ends by itself; until it is gone there may be further, shorter impacts."
    if not_before is None:
        return "Azure has stated no time: it may start at any moment."
    at = f"{not_before:%H:%M:%S} UTC" if not_before.date() == now.date() else f"{not_before:%Y-%m-%d %H:%M:%S} UTC"
    if not_before <= now:
        return f"Approved by itself at {at}: Azure may start it at any moment."
    unseen = "" if watched else " No live agent watches it, so Drydock may not see it start."
    return f"Approved by itself at {at}; Azure may start it from then on.{unseen}"
