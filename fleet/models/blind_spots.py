"""What hides news now, as far as it is told by itself."""

from django.db import models

from fleet.models.caches import Cache
from fleet.models.sets import AvailabilitySet


class OpenTrouble(models.Model):
    """One row while it lasts (`fleet.domain.blind_spots.troubles`). `told_at`: when its entry was written; NULL while
    it may yet pass by itself. The other columns are what its sentence names.
    """

    key = models.TextField(primary_key=True)
    code = models.TextField()
    availability_set = models.ForeignKey(
        AvailabilitySet, null=True, blank=True, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    cache = models.ForeignKey(Cache, null=True, blank=True, on_delete=models.CASCADE, related_name="+", db_index=False)
    of = models.TextField(blank=True, default="")
    names = models.JSONField(default=list)
    count = models.IntegerField(default=0)
    values = models.JSONField(default=dict)
    since = models.DateTimeField()
    told_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.key
