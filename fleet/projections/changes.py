"""Time of the last change of a row and its parts. Polling clients request what changed after it.

Values that change only with time, such as the seconds left, do not count as a change. Neither do the names of other
objects that a row mentions.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import F, Model, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Greatest

from fleet import models
from fleet.projections.places import TimeFilter
from fleet.projections.visibility import visible

M = TypeVar("M", bound=Model)
# Other tables that belong to a row of each table, with the lookup path from there to that row.
PARTS: Mapping[type[Model], tuple[tuple[type[Model], str], ...]] = {
    models.ScheduledEvent: (
        (models.Approval, "event"),
        (models.Order, "approval__event"),
        (models.Claim, "event"),
        (models.Hold, "event"),
    ),
    models.Approval: ((models.Order, "approval"), (models.ScheduledEvent, "approvals")),
    models.Machine: ((models.PresenceRow, "machine"),),
    models.AvailabilitySet: (
        (models.Machine, "availability_set"),
        (models.PresenceRow, "machine__availability_set"),
        (models.ScheduledEvent, "availability_set"),
    ),
    models.Cache: ((models.Coverage, "cache"), (models.Maintenance, "cache")),
    models.Maintenance: (),
    models.Wave: ((models.Approval, "wave"), (models.ScheduledEvent, "approvals__wave")),
    models.Drill: ((models.ScheduledEvent, "rehearsed_as"),),
}


class ChangeFilter(TimeFilter):
    """Filter of rows that changed at or after a time, in the row itself or in one of its parts."""

    def filter(self, qs: QuerySet[Any], value: datetime | None) -> QuerySet[Any]:
        return qs.filter(_since(qs.model, value)) if value is not None else qs


def _since(model: type[Model], at: datetime) -> Q:
    # Each table by its own index: few rows have changed, and they are found before sorting.
    found = [visible(model, every=True).filter(changed_at__gte=at).order_by().values("pk")]
    for part, path in PARTS[model]:
        rows = visible(part, every=True).filter(changed_at__gte=at, **{f"{path}__isnull": False})
        found.append(rows.order_by().values(path))
    return Q(pk__in=found[0].union(*found[1:]) if len(found) > 1 else found[0])


def with_changes(rows: QuerySet[M]) -> QuerySet[M]:
    """Add the column `changed` to the query: the time of the last change of the row or of one of its parts."""
    parts = [
        visible(part, every=True).filter(**{path: OuterRef("pk")}).order_by("-changed_at").values("changed_at")
        for part, path in PARTS[rows.model]
    ]
    newest = [Subquery(part[:1]) for part in parts]
    found: QuerySet[M] = rows.annotate(changed=Greatest(F("changed_at"), *newest))  # type: ignore[assignment]
    return found


def changed_at(row: Any, *parts: Any) -> datetime:
    """Return when a row last changed: its column `changed` (see `with_changes`), else the newest time of the row and of
    these parts.
    """
    found: datetime | None = row.__dict__.get("changed")
    return found or max(row.changed_at, *(part.changed_at for part in parts if part is not None), row.changed_at)
