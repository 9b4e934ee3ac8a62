"""`drydock-fleet rotate_signing_key`: create a new key with which Drydock signs orders."""

from datetime import timedelta

from fleet.management.helpers import WHY, OperationCommand, duration
from fleet.operations.orders import sign


class Command(OperationCommand):
    help = "Create a new key that signs orders. The old one also signs until the overlap ends."
    arguments = {
        "--overlap": {
            "type": duration,
            "default": timedelta(days=7),
            "metavar": "SPAN",
            "help": "how long the old key signs on: 1s, 12h, 7d (default: 7d)",
        },
        **WHY,
    }

    def run(self, *, overlap: timedelta) -> None:
        key = sign.rotate(overlap=overlap, actor=self.actor, now=self.now)
        self.stdout.write(
            f"The key {key.key_id} signs orders now. Agents that check signatures receive it automatically."
        )
        self.stdout.write(f"For agents that trust no key any more: drydock-agent trust {key.public_key}")
