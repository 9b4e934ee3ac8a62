"""`drydock-fleet stop_all_approvals --why …`: stop all approvals in the installation until the stop is lifted."""

from fleet.management.helpers import OperationCommand
from fleet.operations.policy import rules


class Command(OperationCommand):
    help = "Stop all rules, waves, approvals and orders that no agent has yet, until `lift_stop`. Needs no Redis."
    arguments = {"--why": {"required": True, "help": "shown on every page until the stop is lifted"}}

    def run(self) -> None:
        rules.stop_all(actor=self.actor, now=self.now)
        self.stdout.write("All approvals are stopped. Requests that Azure has received continue.")
