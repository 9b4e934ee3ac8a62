"""What the core shows of notifications, registered when the app is loaded."""

from django.db.models import Exists, OuterRef, Q

from fleet.notifications import labels, models, payloads
from fleet.projections import visibility
from fleet.projections.visibility import Sight, everything, nothing, rows_of
from fleet.wording import say


def own_or_shared(sight: Sight) -> Q:
    """Everyone sees the installation's channels and routes; only its owner sees a personal one."""
    return Q(owner=None) | Q(owner__username=sight.name)


def deliveries(sight: Sight) -> Q:
    """Deliveries that carry nothing out of sight. A personal channel also shows its tests, which carry nothing."""
    carried = models.Message.objects.filter(delivery=OuterRef("pk"))
    inside = Q(Exists(carried.filter(rows_of("event__availability_set")(sight)))) | Q(
        channel__owner__username=sight.name
    )
    return inside & ~Q(Exists(carried.exclude(event__availability_set__in=sight.sets)))


say.register(labels)
say.register(payloads)
visibility.register(
    {
        models.Channel: own_or_shared,
        models.Route: own_or_shared,
        models.RouteVersion: lambda sight: Q(route__owner=None) | Q(route__owner__username=sight.name),
        models.Message: rows_of("event__availability_set"),
        models.MessageDelivery: deliveries,
        models.DeliveryAttempt: lambda sight: Q(
            delivery__in=models.MessageDelivery.objects.filter(deliveries(sight)).order_by().values("pk")
        ),
        # Identifiers at the receiver; no page shows them.
        models.Reference: nothing,
        models.Cursor: everything,
        models.PushKey: everything,
    }
)
