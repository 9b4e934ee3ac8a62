"""What whoever asks may see: every projection takes its rows from here."""

from typing import TypeVar

from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)


def seen(model: type[M]) -> QuerySet[M]:
    """The rows of a table that the reader may see."""
    return model._default_manager.all()
