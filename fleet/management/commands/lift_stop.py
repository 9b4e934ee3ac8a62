"""`drydock-fleet lift_stop`: lift the stop of all approvals."""

from fleet.management.helpers import WHY, OperationCommand
from fleet.operations.policy import rules


class Command(OperationCommand):
    help = "Lift the stop of all approvals: earlier decisions continue, unless NotBefore is past."
    arguments = WHY

    def run(self) -> None:
        rules.lift(actor=self.actor, now=self.now)
        self.stdout.write("The stop is lifted: approvals continue.")
