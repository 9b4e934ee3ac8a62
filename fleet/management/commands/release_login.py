"""`drydock-fleet release_login NAME`: delete the failed sign-ins of a user name, so that the user can sign in again."""

from fleet.accounts import logins
from fleet.management.helpers import OperationCommand


class Command(OperationCommand):
    help = "Delete the failed logins of a user name, so that its password is accepted on every device again."
    arguments = {"name": {"help": "the name that the user signs in with"}}

    def run(self, *, name: str) -> None:
        logins.release(username=name)
        self.stdout.write(f"Failed logins of {name} are deleted.")
