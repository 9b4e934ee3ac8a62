"""Sets of one name: what is written beside each, so that people tell them apart wherever they are named."""

from collections import defaultdict

from django.db.models.functions import Lower

from fleet.domain.sets import PROVISIONAL, told_apart
from fleet.models import AvailabilitySet


def tell_apart(*names: str) -> None:
    """After a set of one of these names (in any case) was made, named or merged away. Two queries, and one for each set
    whose words change.
    """
    named = AvailabilitySet.objects.alias(lower=Lower("name")).filter(lower__in=[name.lower() for name in names])
    twins: dict[str, list[AvailabilitySet]] = defaultdict(list)
    for row in AvailabilitySet.objects.filter(pk__in=named.values("pk")).order_by("pk"):
        if row.merged_into_id is None and row.kind != PROVISIONAL:
            twins[row.name.lower()].append(row)
        elif row.apart:
            AvailabilitySet.objects.filter(pk=row.pk).update(apart="")
    for found in twins.values():
        places = [(row.kind, row.resource_group, row.subscription) for row in found]
        for row, apart in zip(found, told_apart(places), strict=True):
            if row.apart != apart:
                AvailabilitySet.objects.filter(pk=row.pk).update(apart=apart)
