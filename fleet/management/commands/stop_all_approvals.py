"""`drydock-fleet stop_all_approvals --why …`: the switch for the worst hour."""

from argparse import ArgumentParser
from typing import Any

from fleet.domain.actor import COMMAND_LINE
from fleet.management.helpers import OperationCommand
from fleet.operations import clock
from fleet.operations.policy import rules


class Command(OperationCommand):
    help = "Stop all rules, waves, approvals and orders that no agent holds yet, until `lift_stop`. Needs no Redis."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--why", required=True, help="shown on every page while it holds")

    def handle(self, *args: Any, why: str, **options: Any) -> None:
        rules.stop_all(actor=COMMAND_LINE.because(why), now=clock.now())
        self.stdout.write("All approvals are stopped. What Azure was asked already goes on.")
