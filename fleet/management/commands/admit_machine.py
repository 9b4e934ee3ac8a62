"""`drydock-fleet admit_machine`: list the machines that wait for admission, or admit some of them."""

from datetime import datetime

from fleet.domain.actor import COMMAND_LINE
from fleet.management.helpers import WHY, OperationCommand
from fleet.operations.machines import admissions
from fleet.projections import machines


class Command(OperationCommand):
    help = "Admit unknown machines, known ones without their credential, and revoked ones. Without an id: list them."
    arguments = {"ids": {"nargs": "*", "type": int, "metavar": "ID", "help": "ids of the list to admit"}, **WHY}

    def run(self, *, ids: list[int], why: str, now: datetime) -> None:
        if ids:
            admissions.admit(ids=ids, actor=COMMAND_LINE.because(why), now=now)
            self.stdout.write("Admitted: each gets its credential at its next request, within a minute.")
            return
        for row in machines.waiting():
            state = "admitted" if row.admitted_at else "revoked" if row.revoked else "waits"
            self.stdout.write(
                f"{row.id}  {state}  {row.name}  {row.vm_id}  from {row.address or 'an unknown address'}"
                f"  since {row.first_requested_at:%Y-%m-%d %H:%M} UTC  calls itself {row.resource_name!r}"
                f"  in {row.placed_set or 'a set of its own'}"
                f"  by {'Azure, ' + row.attested if row.attested else row.join_token or 'nothing'}"
            )
