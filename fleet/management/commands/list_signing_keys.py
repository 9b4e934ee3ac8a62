"""`drydock-fleet list_signing_keys`: the keys that sign orders now, as `drydock-agent trust` takes them."""

from typing import Any

from django.core.management.base import BaseCommand

from fleet.operations import clock
from fleet.operations.orders import sign


class Command(BaseCommand):
    help = "List the public halves of the keys that sign orders now: id, and the key as `drydock-agent trust` takes it."

    def handle(self, *args: Any, **options: Any) -> None:
        for key in sign.public_keys(now=clock.now()):
            self.stdout.write(f"{key.id}  {key.public_key}")
