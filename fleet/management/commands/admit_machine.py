"""`drydock-fleet admit_machine`: lists who waits for admission, or admits some of them."""

from argparse import ArgumentParser
from typing import Any

from fleet.domain.actor import COMMAND_LINE
from fleet.management.helpers import OperationCommand
from fleet.operations import clock
from fleet.operations.machines import admissions
from fleet.projections import machines


class Command(OperationCommand):
    help = (
        "Admit who waits: strangers, known machines without their credential, revoked ones. Without an id: list them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("ids", nargs="*", type=int, metavar="ID", help="whom to admit, by the ids of the list")
        parser.add_argument("--why", default="", help="for those who read the timeline later")

    def handle(self, *args: Any, ids: list[int], why: str, **options: Any) -> None:
        if ids:
            admissions.admit(ids=ids, actor=COMMAND_LINE.because(why), now=clock.now())
            self.stdout.write("Admitted: each gets its credential when it asks again, within a minute.")
            return
        for row in machines.waiting():
            state = "admitted" if row.admitted_at else "revoked" if row.revoked else "waits"
            self.stdout.write(
                f"{row.id}  {state}  {row.name}  {row.vm_id}  from {row.address or 'an unknown address'}"
                f"  since {row.first_asked_at:%Y-%m-%d %H:%M} UTC  calls itself {row.resource_name!r}"
                f"  in {row.placed_set or 'a set of its own'}"
                f"  by {'Azure, ' + row.attested if row.attested else row.join_token or 'nothing'}"
            )
