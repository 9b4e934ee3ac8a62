"""`drydock-fleet make_partitions`: see that large tables have room for what comes, as Celery does each minute."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from fleet.audit.partition_drop import make_ahead
from fleet.operations import clock


class Command(BaseCommand):
    help = "Makes the next partition of each large table that nears the end of its last one."

    def handle(self, *args: Any, **options: Any) -> None:
        made = make_ahead(now=clock.now(), via="command", noted=False)
        for name in made.made:
            self.stdout.write(f"From now on there is a partition {name}.")
        if made.held:
            raise CommandError("Somebody holds one of the tables, as a backup does: run this again in a moment.")
        if not made.made:
            self.stdout.write("There is room enough.")
