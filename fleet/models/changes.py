"""When a row was last changed, as the database keeps it."""

from django.db import models
from django.db.models.functions import Now


class ChangeColumn(models.Model):
    """`changed_at` is when the row was written last, by the database's clock: a trigger sets it whoever writes, and
    leaves it where nothing changed that people are told (`fleet.migrations.0046`). A transaction may commit it later.
    """

    changed_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        abstract = True
