"""`drydock-fleet create_token`: a token of a person for the REST API."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import CommandError
from django.utils import timezone

from fleet.management.durations import duration
from fleet.management.operation_command import OperationCommand
from fleet.operations.people import tokens


class Command(OperationCommand):
    help = "Make an API token for a person and print it. It is shown this once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--name", default="command line", help="what the token is for")
        parser.add_argument(
            "--scope",
            action="append",
            choices=tokens.SCOPES,
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

    def handle(
        self, *args: Any, username: str, name: str, scopes: list[str] | None, expires_in: timedelta, **options: Any
    ) -> None:
        person = User.objects.filter(username=username).first()
        if person is None:
            raise CommandError(f"There is no person {username!r}.")
        now = timezone.now()
        token, plain = tokens.issue_token(
            user=person, name=name, scopes=scopes or ["read"], now=now, expires_at=now + expires_in
        )
        self.stdout.write(plain)
        self.stderr.write(
            f"Scopes {', '.join(token.scopes)}, valid until {token.expires_at:%Y-%m-%d %H:%M:%S} UTC."
            " It is shown this once."
        )
