"""Base classes of all tables."""

from django.db import models
from django.db.models.functions import Now


class Row(models.Model):
    """Base class of all tables. Django's admin pages name a row by its table and key, if the row has no name."""

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"


class ChangeColumn(Row):
    """Column with the time of the row's last change, by the database's clock.

    A trigger sets `changed_at` for every writer, except for changes only to columns that pages do not show
    (`fleet/migrations/0013_data_0_2.py`). The transaction may be committed later than this time.
    """

    changed_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        abstract = True
