"""`drydock-fleet create_person NAME --group GROUP`: somebody who may log in."""

from argparse import ArgumentParser
from typing import Any

from fleet.accounts.services import make_person
from fleet.domain.people import GROUPS
from fleet.management.helpers import OperationCommand
from fleet.operations import clock


class Command(OperationCommand):
    help = "Make a person and print the password. It is shown this once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--group", choices=GROUPS, required=True, help="what they may")

    def handle(self, *args: Any, username: str, group: str, **options: Any) -> None:
        _, password = make_person(username=username, group=group, now=clock.now())
        self.stdout.write(password)
        self.stderr.write("It is shown this once; they change it on their own page.")
