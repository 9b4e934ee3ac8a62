"""What people keep of the desk: views of its lists."""

from django.conf import settings
from django.db import models


class SavedView(models.Model):
    """A list with its filters under a name. `page` is the list (`fleet.domain.desk.LISTS`), `query` its filters as they
    stand in the address. A `shared` one is shown to everybody.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_views")
    name = models.TextField()
    page = models.TextField()
    query = models.TextField(blank=True, default="")
    shared = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "page", "name"], name="view_once")]
        indexes = [models.Index(fields=["page", "name"], name="view_shared", condition=models.Q(shared=True))]

    def __str__(self) -> str:
        return self.name
