"""What the log of messages out may be narrowed down to.

The library ships no types, hence the ignores at its base class.
"""

from typing import Any

import django_filters
from django.db.models import Exists, OuterRef, Q, QuerySet

from fleet.domain.messages.moments import GROUP, TEST, Moment
from fleet.domain.messages.states import DeliveryState
from fleet.models import Message, MessageDelivery
from fleet.projections.messages.posts import UNSENT
from fleet.projections.sight import seen

MOMENTS = [(moment.value, moment.value) for moment in Moment]


class DeliveryFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Posts. `event` is an EventId in any case; `moment` also finds posts that carry it among others."""

    channel = django_filters.NumberFilter(label="Channel")
    state = django_filters.MultipleChoiceFilter(choices=[(state.value, state.value) for state in DeliveryState])
    event = django_filters.CharFilter(method="filter_event", label="Event")
    moment = django_filters.ChoiceFilter(
        method="filter_moment", choices=[*MOMENTS, (GROUP, GROUP), (TEST, TEST)], label="Moment"
    )

    class Meta:
        model = MessageDelivery
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(MessageDelivery) if queryset is None else queryset, **kwargs)

    def filter_event(self, queryset: QuerySet[MessageDelivery], name: str, value: str) -> QuerySet[MessageDelivery]:
        of_event = seen(Message).filter(event__event_id=value.upper(), delivery__isnull=False)
        return queryset.filter(pk__in=of_event.order_by().values("delivery"))

    def filter_moment(self, queryset: QuerySet[MessageDelivery], name: str, value: str) -> QuerySet[MessageDelivery]:
        carried = seen(Message).filter(delivery=OuterRef("pk"), moment=value).order_by()
        return queryset.filter(Q(moment=value) | Q(Exists(carried), moment=GROUP))


class UnsentFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Messages that no post carries. `event` is an EventId in any case."""

    channel = django_filters.NumberFilter(label="Channel")
    state = django_filters.MultipleChoiceFilter(choices=[(state.value, state.value) for state in UNSENT])
    event = django_filters.CharFilter(method="filter_event", label="Event")
    moment = django_filters.ChoiceFilter(choices=MOMENTS, label="Moment")

    class Meta:
        model = Message
        fields: list[str] = []

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, seen(Message) if queryset is None else queryset, **kwargs)

    def filter_event(self, queryset: QuerySet[Message], name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(event__event_id=value.upper())
