"""When something that runs again and again last ran: the reconciling, the sealing of the timeline."""

from django.db import models


class LastRun(models.Model):
    """One row by name: when it last ran, and who ran it (`beat`, `ticker`)."""

    name = models.TextField(primary_key=True)
    ran_at = models.DateTimeField()
    via = models.TextField()

    class Meta:
        # The name that it had first: processes of the release before read it while a new one is rolled out.
        db_table = "fleet_sweep"

    def __str__(self) -> str:
        return self.name
