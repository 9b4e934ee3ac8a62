"""`drydock-fleet archive`: archive all rows that have reached the configured age, or list them without archiving."""

from django.core.management.base import CommandError

from fleet.audit.queries import storage
from fleet.audit.retention import retain
from fleet.domain.db_timeouts import profile_in_use
from fleet.management.helpers import OperationCommand
from fleet.wording.timeline import ARCHIVED, FAULTS
from fleet.wording.times import API, at


class Command(OperationCommand):
    help = (
        "Write what is old enough into the archive, read it back, and let it leave the database. Celery does so by"
        " itself. Ends with status 1 if the archive's store does not do its part."
    )

    arguments = {
        "--dry-run": {"action": "store_true", "help": "say what would leave, and when; change nothing"},
        "--seconds": {"type": float, "default": 600.0, "help": "begin no further file after this time (default: 600)"},
    }

    def run(self, *, dry_run: bool, seconds: float) -> None:
        found = storage(now=self.now)
        if not found.archive.destination:
            raise CommandError("Nothing leaves: ARCHIVE_URL names no archive.")
        if dry_run:
            for row in found.next_archived:
                when = "now" if row.at <= self.now else at(row.at, API)
                self.stdout.write(f"{when}: {row.rows} {ARCHIVED[row.kind]}, {row.size / 1024**2:.0f} MiB")
            if not found.next_archived:
                self.stdout.write("Nothing leaves yet.")
            return
        with profile_in_use("relay"):
            done = retain(now=self.now, seconds=seconds)
        if not done.ran:
            raise CommandError("Another process archives at this moment.")
        self.stdout.write(f"{done.files} files were written to {found.archive.destination}.")
        self.stdout.write(f"{len(done.dropped)} parts of tables left{''.join(f', {name}' for name in done.dropped)}.")
        for kind, why in sorted(done.held.items()):
            self.stdout.write(f"Some {ARCHIVED[kind]} stay: {FAULTS[why]}.")
        if done.fault:
            raise CommandError(f"It was broken off, and what had not left stays: {FAULTS[done.fault]}.")
