"""`manage.py end_token`: ends a token of the REST API at once."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from fleet.domain.refusal import Refused
from fleet.operations.people import tokens
from fleet.wording.reader import API
from fleet.wording.say import say


class Command(BaseCommand):
    help = "End an API token at once. Name it by its public beginning, `dd_` and the twelve characters after it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("prefix")

    def handle(self, *args: Any, prefix: str, **options: Any) -> None:
        try:
            token = tokens.end_token(prefix=prefix, now=timezone.now())
        except Refused as refused:
            raise CommandError(say(refused.reason, API)) from refused
        self.stdout.write(f"The token “{token.name}” of {token.user.get_username()} has ended.")
