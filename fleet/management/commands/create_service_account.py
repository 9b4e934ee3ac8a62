"""`drydock-fleet create_service_account NAME --group GROUP --owner NAME --purpose TEXT`: create an account for a
program.
"""

from fleet.accounts import services
from fleet.domain.people import GROUPS
from fleet.management.helpers import OperationCommand


class Command(OperationCommand):
    help = "Create an account for a script or a pipeline. It signs in with tokens only: see create_token."
    arguments = {
        "username": {},
        "--group": {"choices": GROUPS, "required": True, "help": "its role"},
        "--owner": {"required": True, "metavar": "NAME", "help": "the user who is responsible for it"},
        "--purpose": {"required": True, "help": "what it is for"},
    }

    def run(self, **values: str) -> None:
        row = services.make_service(services.MakeServiceSerializer(data=values), now=self.now)
        name = row.user.get_username()
        self.stderr.write(f"{name} is created. Create a token: create_token {name} --scope read")
