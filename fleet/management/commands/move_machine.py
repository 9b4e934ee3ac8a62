"""`drydock-fleet move_machine`: a machine goes into another set and is confined there, or its confinement is lifted."""

from argparse import ArgumentParser
from typing import Any

from fleet.domain.actor import COMMAND_LINE
from fleet.management.helpers import OperationCommand
from fleet.operations import clock
from fleet.operations.machines.move import move_machine
from fleet.projections.machines import row_id


class Command(OperationCommand):
    help = "Move a machine into a set and confine it there, whatever else is stated of it; or lift that."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("vm_id", help="its vmId, as its page shows it")
        to = parser.add_mutually_exclusive_group(required=True)
        to.add_argument("--set-id", type=int, metavar="ID", help="the id of a set that has a name")
        to.add_argument("--lift", action="store_true", help="what is stated of its set counts again")
        parser.add_argument("--why", default="", help="for those who read the timeline later")

    def handle(self, *args: Any, vm_id: str, set_id: int | None, lift: bool, why: str, **options: Any) -> None:
        machine_id = row_id(vm_id=vm_id)
        move_machine(machine_id=machine_id, set_id=set_id, actor=COMMAND_LINE.because(why), now=clock.now())
        self.stdout.write("Lifted: what is stated of its set counts again." if lift else "Moved, and confined there.")
