"""`drydock-fleet end_join_token`: revoke a join token, so that no further agent can enrol with it."""

from fleet.management.helpers import OperationCommand
from fleet.operations.machines import entrance


class Command(OperationCommand):
    help = "Revoke a join token. Its prefix is `join_` and the twelve characters after it."
    arguments = {"prefix": {}}

    def run(self, *, prefix: str) -> None:
        token = entrance.end_join_token(prefix=prefix, now=self.now)
        self.stdout.write(f"{token.prefix} is revoked. Machines that enrolled with it stay.")
