"""`drydock-fleet make_partitions`: create partitions of large tables ahead of time. Celery does this each minute as
well.
"""

from django.core.management.base import CommandError

from fleet.audit.partition_drop import make_ahead
from fleet.management.helpers import OperationCommand


class Command(OperationCommand):
    help = "Create the next partition of each large table whose last one is nearly full."

    def run(self) -> None:
        made, is_locked = make_ahead(now=self.now, via="command", noted=False)
        for name in made:
            self.stdout.write(f"New partition: {name}.")
        if is_locked:
            raise CommandError("A table is locked, for example by a backup. Run this again in a moment.")
        if not made:
            self.stdout.write("No partition is needed yet.")
