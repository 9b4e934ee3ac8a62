"""Registers the functions of notifications that the core calls. Imported when the app is loaded; `urls.py` registers
additions to pages.
"""

from importlib import import_module

from django.db.models import Exists, OuterRef, Q

from fleet.accounts import privacy, sessions
from fleet.models import partitions
from fleet.notifications import channel_services, delivery, labels, models, queries
from fleet.notifications.grouping import ROUTED_WITHIN
from fleet.notifications.notification_types import ROUTED_ENTRIES
from fleet.operations import reconcile
from fleet.operations.timeline import entries
from fleet.projections import visibility
from fleet.projections.desk import gauges, readiness, status_bar
from fleet.projections.visibility import LimitedReader, everything, nothing, rows_of, visible
from fleet.wording import badges, say


def own_or_shared(reader: LimitedReader) -> Q:
    """Return the condition for the channels and routes that this reader may see: those of the installation, and their
    own.
    """
    return Q(owner=None) | Q(owner__username=reader.name)


def deliveries(reader: LimitedReader) -> Q:
    """Return the condition for the deliveries that this reader may see: those of which every message is visible. Owners
    also see the tests of their personal channels, which have no messages.
    """
    carried = models.Message.objects.filter(delivery=OuterRef("pk"))
    inside = Q(Exists(carried.filter(rows_of("event__availability_set")(reader)))) | Q(
        channel__owner__username=reader.name
    )
    return inside & ~Q(Exists(carried.exclude(event__availability_set__in=reader.sets)))


# In the order in which pages offer them.
for kind in ("slack", "pagerduty", "mail", "apprise", "webhook", "alertmanager", "webpush"):
    import_module(f"fleet.notifications.channels.{kind}")
partitions.register(models.MESSAGES, archived_as="messages")
partitions.keep_while(models.MESSAGES, models.any_unsent)
partitions.keep_while(partitions.ENTRIES, models.any_unrouted)
entries.ROUTED |= {kind.value for kind in ROUTED_ENTRIES}
reconcile.REPAIRS.append(delivery.repair)
sessions.END_MADE_WITH.append(channel_services.end_made_with)
own_tables = (models.Channel, models.Route)
privacy.OWN.append(
    privacy.Own("channels", own_tables, lambda person: person.channels.count(), channel_services.empty_own)
)
gauges.MEASURES.append(queries.measure)
readiness.WAYS_OUT.append(lambda: visible(models.Channel).filter(owner=None, enabled=True, deleted_at=None).exists())
readiness.JOBS["routing"] = (queries.ROUTER, ROUTED_WITHIN)
readiness.UNUSABLE["channels_unreadable"] = lambda: len(channel_services.unreadable())
status_bar.ITEMS["messages/status_bar_item.html"] = lambda now: queries.notification_health(now=now)
badges.BY_KIND.update(labels.BADGES)
say.register(labels)
visibility.register(
    {
        models.Channel: own_or_shared,
        models.Route: own_or_shared,
        models.Message: rows_of("event__availability_set"),
        models.MessageDelivery: deliveries,
        models.DeliveryAttempt: lambda reader: Q(
            delivery__in=models.MessageDelivery.objects.filter(deliveries(reader)).order_by().values("pk")
        ),
        # Identifiers at the receiver; no page shows them.
        models.Reference: nothing,
        models.Cursor: everything,
        models.PushKey: everything,
    }
)
