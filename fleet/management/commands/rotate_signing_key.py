"""`drydock-fleet rotate_signing_key`: a new key signs orders from now on."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from fleet.domain.actor import COMMAND_LINE
from fleet.management.helpers import OperationCommand, duration
from fleet.operations import clock
from fleet.operations.orders import sign


class Command(OperationCommand):
    help = "Make a new key that signs orders. The old one signs beside it until the overlap is over."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--overlap",
            type=duration,
            default=timedelta(days=7),
            metavar="SPAN",
            help="how long the old key signs on: 1s, 12h, 7d (default: 7d)",
        )
        parser.add_argument("--why", default="", help="why, for those who read the timeline later")

    def handle(self, *args: Any, **options: Any) -> None:
        now = clock.now()
        key = sign.rotate(overlap=options["overlap"], actor=COMMAND_LINE.because(options["why"]), now=now)
        self.stdout.write(f"The key {key.key_id} signs orders now. Agents that check signatures hear of it by itself.")
        self.stdout.write(f"Agents that know no key any more: drydock-agent trust {key.public_key}")
