"""`drydock-fleet admit_machine`: list the machines that wait for admission, or admit some of them."""

from fleet.management.helpers import WHY, OperationCommand
from fleet.operations.machines import admissions
from fleet.projections import machines


class Command(OperationCommand):
    help = "Admit unknown machines, known ones without their credential, and revoked ones. Without a vmId: list them."
    arguments = {
        "vm_ids": {
            "nargs": "*",
            "metavar": "VMID",
            "help": "vmIds to admit; where several agents wait with one vmId, the number of one request in the list",
        },
        **WHY,
    }

    def run(self, *, vm_ids: list[str]) -> None:
        waiting = machines.waiting()
        if vm_ids:
            ids = [request_id for vm_id in vm_ids for request_id in _requests(vm_id, waiting)]
            admissions.admit(ids=ids, actor=self.actor, now=self.now)
            self.stdout.write("Admitted: each gets its credential at its next request, within a minute.")
            return
        for row in waiting:
            state = "admitted" if row.admitted_at else "revoked" if row.revoked else "waits"
            self.stdout.write(
                f"{row.id}  {state}  {row.name}  {row.vm_id}  from {row.address or 'an unknown address'}"
                f"  since {row.first_requested_at:%Y-%m-%d %H:%M} UTC  calls itself {row.resource_name!r}"
                f"  in {row.placed_set or 'a set of its own'}"
                f"  by {'Azure, ' + row.attested if row.attested else row.join_token or 'nothing'}"
            )


def _requests(vm_id: str, waiting: tuple[machines.AdmissionRow, ...]) -> list[int]:
    """Return the requests (row ids) of a vmId that no administrator has admitted yet, or the one with this number.

    If there is none, return the id 0, which the operation refuses; it also refuses several of one machine.
    """
    found = [row.id for row in waiting if row.vm_id == vm_id.strip().lower() and row.admitted_at is None]
    return found or [int(vm_id) if vm_id.isdecimal() else 0]
