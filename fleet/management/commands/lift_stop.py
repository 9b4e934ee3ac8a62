"""`drydock-fleet lift_stop`: lift the stop of all approvals."""

from datetime import datetime

from fleet.domain.actor import COMMAND_LINE
from fleet.management.helpers import WHY, OperationCommand
from fleet.operations.policy import rules


class Command(OperationCommand):
    help = "Lift the stop of all approvals: earlier decisions continue, unless NotBefore is past."
    arguments = WHY

    def run(self, *, why: str, now: datetime) -> None:
        rules.lift(actor=COMMAND_LINE.because(why), now=now)
        self.stdout.write("The stop is lifted: approvals continue.")
