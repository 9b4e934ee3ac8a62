"""Django's `makemigrations`, limited to what the database stores. Texts, choices and validators of fields cause no
migration.
"""

from typing import Any

from django.core.management.commands import makemigrations
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.models import Field

NOT_STORED = ("blank", "choices", "help_text", "validators", "verbose_name")


class StoredChanges(MigrationAutodetector):
    """Detector of model changes that ignores changes which the database does not store."""

    def deep_deconstruct(self, obj: Any) -> Any:
        found = super().deep_deconstruct(obj)
        if isinstance(obj, Field):
            path, args, kwargs = found
            return path, args, {name: value for name, value in kwargs.items() if name not in NOT_STORED}
        return found


class Command(makemigrations.Command):
    autodetector = StoredChanges
