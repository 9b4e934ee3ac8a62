"""`drydock-fleet move_machine`: move a machine into another set and confine it there, or lift its confinement."""

from argparse import ArgumentParser

from fleet.management.helpers import WHY, OperationCommand
from fleet.operations.sets.changes import move_machine
from fleet.projections.machines import row_id


class Command(OperationCommand):
    help = "Move a machine into a set and confine it there, whatever else states its set; or lift that."
    arguments = {"vm_id": {"help": "its vmId, as its page shows it"}, **WHY}

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        to = parser.add_mutually_exclusive_group(required=True)
        to.add_argument("--set-id", type=int, metavar="ID", help="the id of a set that has a name")
        to.add_argument("--lift", action="store_true", help="the stated set of the machine counts again")
        self.names += ("set_id",)

    def run(self, *, vm_id: str, set_id: int | None) -> None:
        move_machine(machine_id=row_id(vm_id=vm_id), set_id=set_id, actor=self.actor, now=self.now)
        self.stdout.write(
            "Moved, and confined there." if set_id else "Lifted: the stated set of the machine counts again."
        )
