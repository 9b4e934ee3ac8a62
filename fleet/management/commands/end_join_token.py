"""`drydock-fleet end_join_token`: admits nobody more by a join token."""

from argparse import ArgumentParser
from typing import Any

from fleet.management.helpers import OperationCommand
from fleet.operations import clock
from fleet.operations.machines import entrance


class Command(OperationCommand):
    help = "End a join token at once. Name it by its public beginning, `join_` and the twelve characters after it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("prefix")

    def handle(self, *args: Any, prefix: str, **options: Any) -> None:
        token = entrance.end_join_token(prefix=prefix, now=clock.now())
        self.stdout.write(f"{token.prefix} admits nobody more. Machines that enrolled by it stay.")
