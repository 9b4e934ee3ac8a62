"""Whether somebody could be told, for the head of every page and for the watchdog."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q

from fleet.domain.messages.alarms import LATELY, TellHealth, Telling, tell_health
from fleet.domain.messages.retry import FAILING_AFTER
from fleet.domain.messages.states import DeliveryState, MessageState
from fleet.models import Channel, LastRun, Message, MessageDelivery
from fleet.projections.messages.gauges import ROUTER
from fleet.projections.sight import seen

# More are not counted: one is an alarm.
MOST = 100


@dataclass(frozen=True, slots=True)
class TellAlarm:
    """How telling stands, with the numbers behind it."""

    health: TellHealth
    channels: int
    failing: int
    untold: int

    @property
    def quiet(self) -> bool:
        return self.health is TellHealth.WORKS


def tell_alarm(*, now: datetime) -> TellAlarm:
    """Four queries, each by index or over the few channels."""
    counted = (
        seen(Channel)
        .filter(enabled=True, deleted_at=None)
        .aggregate(channels=Count("pk"), failing=Count("pk", filter=Q(failures__gte=FAILING_AFTER)))
    )
    unrouted = seen(Message).filter(state=MessageState.UNROUTED.value, event__isnull=False).order_by("-id")
    found = sum(at > now - LATELY for at in unrouted.values_list("created_at", flat=True)[:MOST])
    newest = seen(MessageDelivery).filter(created_at__gt=now - LATELY, state=DeliveryState.GIVEN_UP.value)
    found += newest.exclude(moment="test").order_by()[:MOST].count()
    routed_at = seen(LastRun).filter(name=ROUTER).values_list("ran_at", flat=True).first()
    telling = Telling(**counted, untold=found, routed_at=routed_at)
    return TellAlarm(tell_health(telling, now=now), telling.channels, telling.failing, telling.untold)
