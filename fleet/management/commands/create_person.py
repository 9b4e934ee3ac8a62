"""`drydock-fleet create_person NAME --group GROUP`: create a user with a password."""

from fleet.accounts.services import MakePersonSerializer, make_person
from fleet.domain.people import GROUPS
from fleet.management.helpers import OperationCommand


class Command(OperationCommand):
    help = "Create a user and print the password. It is shown only once."
    arguments = {"username": {}, "--group": {"choices": GROUPS, "required": True, "help": "the user's role"}}

    def run(self, *, username: str, group: str) -> None:
        _, password = make_person(MakePersonSerializer(data={"username": username, "group": group}), now=self.now)
        self.stdout.write(password)
        self.stderr.write("It is shown only once; the user changes it on their own page.")
