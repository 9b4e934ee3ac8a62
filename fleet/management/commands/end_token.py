"""`drydock-fleet end_token`: revoke a token of the REST API."""

from fleet.accounts import tokens
from fleet.management.helpers import OperationCommand


class Command(OperationCommand):
    help = "Revoke an API token. Its prefix is `dd_` and the twelve characters after it."
    arguments = {"prefix": {}}

    def run(self, *, prefix: str) -> None:
        token = tokens.end_token(prefix=prefix, now=self.now)
        self.stdout.write(f"The token “{token.name}” of {token.user.get_username()} is revoked.")
