"""`drydock-fleet migrate`: Django's command, with two additions. It creates partitions of the large tables, which only
their owner can do, and begins a new era of the timeline after a dump was restored.
"""

from typing import Any

from django.core.management.commands import migrate

from fleet.audit import archive
from fleet.audit.partition_drop import make_ahead
from fleet.domain.actor import COMMAND_LINE
from fleet.management.commands.makemigrations import StoredChanges
from fleet.operations import clock
from fleet.projections.desk.readiness import is_era_missing


class Command(migrate.Command):
    autodetector = StoredChanges

    def handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        if any(options[name] for name in ("plan", "check_unapplied", "prune", "app_label")):
            return
        for name in make_ahead(now=clock.now(), via="migrate", noted=False)[0]:
            self.stdout.write(f"From now on there is a partition {name}.")
        # Compose migrates at each start, before any process writes: entries in the wrong era cannot be moved.
        if is_era_missing():
            actor = COMMAND_LINE.because("migrate found a restored dump")
            _, era = archive.mark_database_restored(actor=actor, now=clock.now())
            self.stdout.write(f"A dump was restored: era {era} of the timeline begins.")
