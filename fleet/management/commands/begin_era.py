"""`drydock-fleet begin_era`: after the database was restored from a backup."""

from argparse import ArgumentParser
from typing import Any

from fleet.audit import archive
from fleet.domain.actor import COMMAND_LINE
from fleet.management.helpers import OperationCommand
from fleet.operations import clock


class Command(OperationCommand):
    help = (
        "Begin a new era of the timeline, after the database was restored from a backup and before anything else runs:"
        " what is written then comes after all that is there. Twice in a row is once. Needs the owner of the tables."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--why", default="", help="for those who read the timeline later")

    def handle(self, *args: Any, why: str, **options: Any) -> None:
        begun = archive.mark_database_restored(actor=COMMAND_LINE.because(why), now=clock.now())
        if not begun.now:
            self.stdout.write(f"Era {begun.era} has only just begun: nothing to do.")
            return
        if begun.fallen:
            found = f"its newest line names transaction {begun.newest}, this server is at {begun.next}: of a dump"
        else:
            found = f"this server's transactions go on at {begun.next}, behind the newest line's {begun.newest}"
        self.stdout.write(f"Found: {found}.")
        self.stdout.write(f"Era {begun.era} of the timeline begins.")
