"""`drydock-fleet revoke_machine`: revoke the credential of a machine."""

from fleet.management.helpers import WHY, OperationCommand
from fleet.operations.machines import decommission
from fleet.projections.machines import row_id


class Command(OperationCommand):
    help = "Revoke a machine: its calls are rejected, and it has no vote and gets no order."
    arguments = {"vm_id": {"help": "its vmId, as its page shows it"}, **WHY}

    def run(self, *, vm_id: str) -> None:
        decommission.revoke(machine_id=row_id(vm_id=vm_id), actor=self.actor, now=self.now)
        self.stdout.write("The machine is revoked, and what it reported no longer counts.")
