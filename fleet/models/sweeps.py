"""When something that runs again and again last ran: the look for what is due, the sealing of the timeline."""

from django.db import models


class Sweep(models.Model):
    """One row by name: when it last ran, and who ran it (`beat`, `ticker`)."""

    name = models.TextField(primary_key=True)
    ran_at = models.DateTimeField()
    via = models.TextField()

    def __str__(self) -> str:
        return self.name
