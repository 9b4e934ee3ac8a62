"""`drydock-fleet list_signing_keys`: list the current keys that sign orders, in the form that `drydock-agent trust`
reads.
"""

from fleet.management.helpers import OperationCommand
from fleet.operations.orders import sign


class Command(OperationCommand):
    help = "List the public halves of the keys that sign orders now: id, and the key as `drydock-agent trust` takes it."

    def run(self) -> None:
        for key in sign.public_keys(now=self.now):
            self.stdout.write(f"{key.id}  {key.public_key}")
