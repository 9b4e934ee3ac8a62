"""`drydock-fleet create_token`: create a user's token for the REST API."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import CommandError

from fleet.accounts import tokens
from fleet.domain.people import TOKEN_SCOPES
from fleet.management.helpers import OperationCommand, duration


class Command(OperationCommand):
    help = "Create an API token for a user and print it. It is shown only once."
    arguments = {
        "username": {},
        "--name": {"default": "command line", "help": "what the token is for"},
        "--scope": {
            "action": "append",
            "choices": TOKEN_SCOPES,
            "dest": "scopes",
            "help": "may be given several times (default: read)",
        },
        "--expires-in": {
            "type": duration,
            "default": timedelta(seconds=settings.API_TOKEN_SECONDS),
            "metavar": "SPAN",
            "help": "12h, 7d, 2w (default: API_TOKEN_SECONDS)",
        },
        "--allow-from": {
            "action": "append",
            "dest": "allowed_from",
            "metavar": "NETWORK",
            "help": "10.0.0.0/8; may be given several times (default: from everywhere)",
        },
    }

    def run(self, *, username: str, expires_in: timedelta, **values: Any) -> None:
        user = User.objects.filter(username=username).first()
        if user is None:
            raise CommandError(f"There is no user {username!r}.")
        values |= {"scopes": values["scopes"] or ["read"], "allowed_from": values["allowed_from"] or []}
        sent = tokens.MakeTokenSerializer(data={**values, "expires_in_seconds": expires_in.total_seconds()})
        token, plain = tokens.issue_token(sent, user=user, now=self.now)
        self.stdout.write(plain)
        self.stderr.write(
            f"Scopes {', '.join(token.scopes)}, valid until {token.expires_at:%Y-%m-%d %H:%M:%S} UTC."
            " It is shown only once."
        )
