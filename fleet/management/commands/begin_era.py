"""`drydock-fleet begin_era`: begin a new era of the timeline after the database was restored from a backup."""

from fleet.audit import archive
from fleet.management.helpers import WHY, OperationCommand


class Command(OperationCommand):
    help = (
        "Begin a new era of the timeline, after the database was restored from a backup and before anything else runs:"
        " later entries then follow all existing ones. A second run changes nothing. Needs the owner of the tables."
    )
    arguments = WHY

    def run(self) -> None:
        found, era = archive.mark_database_restored(actor=self.actor, now=self.now)
        if era is None:
            self.stdout.write(f"Era {found.era} has only just begun: nothing to do.")
            return
        if found.missing:
            text = f"its newest line names transaction {found.newest}, this server is at {found.next}: of a dump"
        else:
            text = f"this server's transactions continue at {found.next}, behind the newest line's {found.newest}"
        self.stdout.write(f"Found: {text}.")
        self.stdout.write(f"Era {era} of the timeline begins.")
