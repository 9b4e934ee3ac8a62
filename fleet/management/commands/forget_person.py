"""`drydock-fleet forget_person NAME [--yes]`: preview the erasure of a user's name, or with `--yes` erase it."""

from fleet.accounts.privacy import forget, preview
from fleet.accounts.text import counted_parts
from fleet.management.helpers import OperationCommand


class Command(OperationCommand):
    help = "Print what is erased and what is retained when a user is erased; with --yes, erase the user for good."
    arguments = {
        "username": {"metavar": "NAME"},
        "--yes": {"action": "store_true", "help": "erase; without it nothing is changed"},
    }

    def run(self, *, username: str, yes: bool) -> None:
        plan = forget(username=username, now=self.now) if yes else preview(username=username)
        self.stdout.write("Erased:" if yes else "Would be erased:")
        self.stdout.write("  the name, the password, the e-mail address")
        for part in counted_parts(plan.goes):
            self.stdout.write(f"  {part}")
        self.stdout.write(f"Retained, as done by “{plan.former}”:")
        for part in counted_parts(plan.stays):
            self.stdout.write(f"  {part}")
        if plan.older:
            self.stdout.write(f"{plan.older} acts are in lines of before 0.2.0, whose seal covers the name.")
        if not yes:
            self.stdout.write("Nothing was changed. Run it with --yes to erase; this cannot be undone.")
