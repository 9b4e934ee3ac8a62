"""`drydock-fleet create_join_token`: create a token with which agents enrol."""

from datetime import timedelta
from typing import Any

from django.conf import settings

from fleet.management.helpers import OperationCommand, duration
from fleet.operations.machines import entrance


class Command(OperationCommand):
    help = "Create a join token for new agents and print it. It is shown only once."
    arguments = {
        "--comment": {"default": "", "help": "what the token is for"},
        "--expires-in": {
            "type": duration,
            "default": timedelta(seconds=settings.JOIN_TOKEN_SECONDS),
            "metavar": "SPAN",
            "help": "how long it admits agents: 12h, 7d, 2w (default: JOIN_TOKEN_SECONDS)",
        },
        "--set": {
            "default": "",
            "metavar": "KIND:NAME",
            "help": "the only availability set that its machines may be in",
        },
        "--set-id": {"type": int, "metavar": "ID", "help": "the same by the id of an existing set"},
        "--uses": {
            "type": int,
            "dest": "max_uses",
            "metavar": "N",
            "help": "how many machines it admits (default: no limit)",
        },
    }

    def run(self, *, expires_in: timedelta, **values: Any) -> None:
        sent = entrance.JoinTokenRequestSerializer(data={"expires_in_seconds": expires_in.total_seconds(), **values})
        token, plain = entrance.create_join_token(sent, now=self.now)
        self.stdout.write(plain)
        self.stderr.write(f"Admits agents until {token.expires_at:%Y-%m-%d %H:%M:%S} UTC. It is shown only once.")
