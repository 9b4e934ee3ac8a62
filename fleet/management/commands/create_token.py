"""`drydock-fleet create_token`: a token of a person for the REST API."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import CommandError

from fleet.accounts import tokens
from fleet.domain.people import TOKEN_SCOPES
from fleet.management.helpers import OperationCommand, duration
from fleet.operations import clock


class Command(OperationCommand):
    help = "Make an API token for a person and print it. It is shown this once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--name", default="command line", help="what the token is for")
        parser.add_argument(
            "--scope",
            action="append",
            choices=TOKEN_SCOPES,
            dest="scopes",
            help="may be given several times (default: read)",
        )
        parser.add_argument(
            "--expires-in",
            type=duration,
            default=timedelta(seconds=settings.API_TOKEN_SECONDS),
            metavar="SPAN",
            help="12h, 7d, 2w (default: API_TOKEN_SECONDS)",
        )

        parser.add_argument(
            "--allow-from",
            action="append",
            dest="allowed_from",
            metavar="NETWORK",
            help="10.0.0.0/8; may be given several times (default: from everywhere)",
        )

    def handle(
        self,
        *args: Any,
        username: str,
        name: str,
        scopes: list[str] | None,
        expires_in: timedelta,
        allowed_from: list[str] | None,
        **options: Any,
    ) -> None:
        person = User.objects.filter(username=username).first()
        if person is None:
            raise CommandError(f"There is no person {username!r}.")
        now = clock.now()
        token, plain = tokens.issue_token(
            user=person,
            name=name,
            scopes=scopes or ["read"],
            now=now,
            expires_at=now + expires_in,
            allowed_from=allowed_from or (),
        )
        self.stdout.write(plain)
        self.stderr.write(
            f"Scopes {', '.join(token.scopes)}, valid until {token.expires_at:%Y-%m-%d %H:%M:%S} UTC."
            " It is shown this once."
        )
