"""What the commands have in common that make one call of an operation."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from fleet.domain.refusal import Refused
from fleet.wording.reader import API
from fleet.wording.say import say


class OperationCommand(BaseCommand):
    """What the operation refuses is said, and the command ends with status 1."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except Refused as refused:
            raise CommandError(say(refused.reason, API)) from refused
