"""When the relay last looked for what is due."""

from django.db import models


class Sweep(models.Model):
    """One row by name: when it last ran, and who ran it (`beat`, `ticker`)."""

    name = models.TextField(primary_key=True)
    ran_at = models.DateTimeField()
    via = models.TextField()

    def __str__(self) -> str:
        return self.name
