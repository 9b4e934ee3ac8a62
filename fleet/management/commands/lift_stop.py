"""`drydock-fleet lift_stop`: approvals go on."""

from argparse import ArgumentParser
from typing import Any

from fleet.domain.actor import COMMAND_LINE
from fleet.management.helpers import OperationCommand
from fleet.operations import clock
from fleet.operations.policy import rules


class Command(OperationCommand):
    help = "Lift the stop of all approvals: what was decided before it goes on, unless NotBefore is past."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--why", default="", help="for those who read the timeline later")

    def handle(self, *args: Any, why: str, **options: Any) -> None:
        rules.lift(actor=COMMAND_LINE.because(why), now=clock.now())
        self.stdout.write("The stop is lifted: approvals go on.")
