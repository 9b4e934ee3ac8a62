"""`drydock-fleet import_inventory FILE...`: import the output of `az` about machines and their sets."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from fleet.domain.machines.inventory import read_inventory, read_json
from fleet.domain.reasons import Refused
from fleet.management.helpers import OperationCommand
from fleet.operations.machines.inventory import import_inventory
from fleet.wording.say import say
from fleet.wording.times import API


class Command(OperationCommand):
    help = (
        "Take in the JSON that `az vm list`, `az vm availability-set list`, `az vmss list-instances` and `az vmss list`"
        " print. Each file is recognised by what is in it."
    )

    arguments = {
        "files": {"nargs": "+", "metavar": "FILE", "help": "a file, or - for standard input"},
        "--complete": {
            "action": "store_true",
            "help": "the files list every machine of their subscriptions and scale sets: forget the others",
        },
    }

    def run(self, *, files: list[str], complete: bool) -> None:
        items: list[Any] = []
        for name in files:
            try:
                raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
                printed = read_json(raw)
                # Read one by one, so that a refusal names its file.
                read_inventory(printed)
            except Refused as error:
                raise CommandError(f"{name}: {say(error.reason, API)}") from error
            except OSError as error:
                raise CommandError(f"{name} cannot be read: {error.strerror}.") from error
            items += printed if isinstance(printed, list) else [printed]
        found = import_inventory(inventory=read_inventory(items), now=self.now, complete=complete)
        self.stdout.write(
            f"{found.machines} machines, {found.new} of them new, {found.without_agent} without an agent;"
            f" {found.scale_sets} scale sets; {found.dropped} dropped."
        )
        for one in found.refused:
            self.stdout.write(f"Refused: {one.machine} is in {one.stated}. It is confined to {one.confined_to}.")
