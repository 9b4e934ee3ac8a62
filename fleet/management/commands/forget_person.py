"""`drydock-fleet forget_person NAME [--yes]`: erase a person's name, after a look at what goes and what stays."""

from argparse import ArgumentParser
from typing import Any

from fleet.accounts.privacy import forget, preview
from fleet.accounts.text import counted_part
from fleet.management.helpers import OperationCommand
from fleet.operations import clock


class Command(OperationCommand):
    help = "Says what is erased and what stays when a person is forgotten; with --yes it is done, for good."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", metavar="NAME")
        parser.add_argument("--yes", action="store_true", help="erase; without it nothing is changed")

    def handle(self, *args: Any, username: str, yes: bool, **options: Any) -> None:
        plan = forget(username=username, now=clock.now()) if yes else preview(username=username)
        self.stdout.write("Erased:" if yes else "Would be erased:")
        self.stdout.write("  the name, the password, the e-mail address")
        for part in plan.goes:
            self.stdout.write(f"  {counted_part(part.what, part.count)}")
        self.stdout.write(f"Stays, as done by “{plan.former}”:")
        for part in plan.stays:
            self.stdout.write(f"  {counted_part(part.what, part.count, more=part.most)}")
        if plan.older:
            self.stdout.write(
                f"{plan.older} acts stand in lines of before 0.2.0, which hold the name under their seal."
            )
        if not yes:
            self.stdout.write("Nothing was changed. Run it with --yes to erase; it cannot be taken back.")
