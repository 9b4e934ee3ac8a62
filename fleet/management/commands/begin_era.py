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
        begun = archive.mark_database_restored(actor=self.actor, now=self.now)
        if not begun.now:
            self.stdout.write(f"Era {begun.era} has only just begun: nothing to do.")
            return
        if begun.fallen:
            found = f"its newest line names transaction {begun.newest}, this server is at {begun.next}: of a dump"
        else:
            found = f"this server's transactions continue at {begun.next}, behind the newest line's {begun.newest}"
        self.stdout.write(f"Found: {found}.")
        self.stdout.write(f"Era {begun.era} of the timeline begins.")
