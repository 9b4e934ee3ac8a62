"""What happens if nobody acts, in one sentence."""

from datetime import datetime

from fleet.domain.states import EventStatus


def if_nobody_acts(*, status: EventStatus, not_before: datetime | None, watched: bool, now: datetime) -> str:
    """Nobody can postpone: Azure may start the event from NotBefore on."""
    if status is EventStatus.ENDED:
        return "Nothing: the event is over."
    if status is EventStatus.STARTED:
        return "It runs and ends by itself; until it is gone there may be further, shorter impacts."
    if not_before is None:
        return "Azure has stated no time: it may start at any moment."
    at = f"{not_before:%H:%M:%S} UTC" if not_before.date() == now.date() else f"{not_before:%Y-%m-%d %H:%M:%S} UTC"
    if not_before <= now:
        return f"Approved by itself at {at}: Azure may start it at any moment."
    unseen = "" if watched else " No live agent watches it, so Drydock may not see it start."
    return f"Approved by itself at {at}; Azure may start it from then on.{unseen}"
