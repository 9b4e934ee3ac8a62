"""`drydock-fleet create_service_account NAME --group GROUP --owner NAME --purpose TEXT`: an account of no person."""

from argparse import ArgumentParser
from typing import Any

from fleet.accounts import service_accounts
from fleet.domain.people import GROUPS
from fleet.management.helpers import OperationCommand
from fleet.operations import clock


class Command(OperationCommand):
    help = "Make an account for a script or a pipeline. It comes in by tokens alone: see create_token."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--group", choices=GROUPS, required=True, help="what it may")
        parser.add_argument("--owner", required=True, metavar="NAME", help="the person who answers for it")
        parser.add_argument("--purpose", required=True, help="what it is for")

    def handle(self, *args: Any, username: str, group: str, owner: str, purpose: str, **options: Any) -> None:
        row = service_accounts.make(username=username, group=group, owner=owner, purpose=purpose, now=clock.now())
        self.stderr.write(f"{row.user.get_username()} is there. Make it a token: create_token {username} --scope read")
