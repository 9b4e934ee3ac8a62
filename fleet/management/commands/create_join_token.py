"""`drydock-fleet create_join_token`: a token that lets new agents enrol."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.conf import settings

from fleet.management.helpers import OperationCommand, duration
from fleet.operations import clock
from fleet.operations.machines import entrance


class Command(OperationCommand):
    help = "Make a join token for new agents and print it. It is shown this once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--comment", default="", help="what the token is for")
        parser.add_argument(
            "--expires-in",
            type=duration,
            default=timedelta(seconds=settings.JOIN_TOKEN_SECONDS),
            metavar="SPAN",
            help="how long it admits agents: 12h, 7d, 2w (default: JOIN_TOKEN_SECONDS)",
        )
        parser.add_argument(
            "--set",
            default="",
            dest="set_name",
            metavar="KIND:NAME",
            help="the availability set in which its machines are, and in no other",
        )
        parser.add_argument("--set-id", type=int, metavar="ID", help="the same by the id of a set that is here")
        parser.add_argument("--uses", type=int, metavar="N", help="how many machines it admits (default: no limit)")

    def handle(
        self,
        *args: Any,
        comment: str,
        expires_in: timedelta,
        set_name: str,
        set_id: int | None,
        uses: int | None,
        **options: Any,
    ) -> None:
        token, plain = entrance.create_join_token(
            comment=comment,
            expires_in=expires_in,
            set_name=set_name,
            set_id=set_id,
            max_uses=uses,
            now=clock.now(),
        )
        self.stdout.write(plain)
        self.stderr.write(f"Admits agents until {token.expires_at:%Y-%m-%d %H:%M:%S} UTC. It is shown this once.")
