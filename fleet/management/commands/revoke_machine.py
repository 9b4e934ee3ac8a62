"""`drydock-fleet revoke_machine`: cuts a machine off."""

from argparse import ArgumentParser
from typing import Any

from fleet.domain.actor import COMMAND_LINE
from fleet.management.helpers import OperationCommand
from fleet.operations import clock
from fleet.operations.machines import keys
from fleet.projections.machines import row_id


class Command(OperationCommand):
    help = "Cut a machine off at once: no call, no order, no vote."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("vm_id", help="its vmId, as its page shows it")
        parser.add_argument("--why", default="", help="for those who read the timeline later")

    def handle(self, *args: Any, vm_id: str, why: str, **options: Any) -> None:
        keys.revoke(machine_id=row_id(vm_id=vm_id), actor=COMMAND_LINE.because(why), now=clock.now())
        self.stdout.write("Revoked: it is cut off, and nothing that it said counts any more.")
