"""`drydock-fleet end_token`: ends a token of the REST API at once."""

from argparse import ArgumentParser
from typing import Any

from fleet.accounts import tokens
from fleet.management.helpers import OperationCommand
from fleet.operations import clock


class Command(OperationCommand):
    help = "End an API token at once. Name it by its public beginning, `dd_` and the twelve characters after it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("prefix")

    def handle(self, *args: Any, prefix: str, **options: Any) -> None:
        token = tokens.end_token(prefix=prefix, now=clock.now())
        self.stdout.write(f"The token “{token.name}” of {token.user.get_username()} has ended.")
