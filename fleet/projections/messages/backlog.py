"""What waits to be sent, by channel."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min

from fleet.domain.messages.states import DeliveryState, MessageState
from fleet.models import Message, MessageDelivery
from fleet.projections.sight import seen


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for one channel: how much, and since when the oldest."""

    count: int
    since: datetime


def backlog(*, now: datetime) -> dict[int, Backlog]:
    """What has come due and is not sent yet, by channel (row id). Two queries."""
    due = seen(Message).filter(state=MessageState.WAITING.value, due_at__lte=now)
    packed = seen(MessageDelivery).filter(state__in=[DeliveryState.QUEUED.value, DeliveryState.SENDING.value])
    found: dict[int, Backlog] = {}
    for rows, column in ((due, "due_at"), (packed, "created_at")):
        grouped = rows.order_by().values_list("channel").annotate(count=Count("pk"), since=Min(column))
        for channel_id, count, since in grouped:
            known = found.get(channel_id, Backlog(0, since))
            found[channel_id] = Backlog(known.count + count, min(known.since, since))
    return found
