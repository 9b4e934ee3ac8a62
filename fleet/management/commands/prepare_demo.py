"""`manage.py prepare_demo FILE`: create the demo's tables, users and tokens, and write them into the credentials file
FILE.
"""

import json
import secrets
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from fleet.accounts import sign_on
from fleet.accounts.services import ensure_person
from fleet.accounts.tokens import MakeTokenSerializer, issue_token, person_of_token
from fleet.domain.actor import COMMAND_LINE
from fleet.domain.people import GROUPS
from fleet.domain.reasons import Refused
from fleet.management.helpers import write_private
from fleet.notifications import channel_services
from fleet.notifications.channel_services import ChannelRequestSerializer
from fleet.operations import clock
from fleet.operations.inputs import MAX_LIFETIME
from fleet.operations.machines.entrance import JoinTokenRequestSerializer, create_join_token

# Each group of people with what its token may do.
PEOPLE = {
    "viewer": ["read"],
    "operator": ["read", "approve"],
    "approver": ["read", "approve"],
    "admin": ["read", "approve", "admin"],
}
JOIN_TOKEN_TIME = timedelta(days=1)


class Command(BaseCommand):
    help = "Makes the demo's tables, people and tokens. `make demo` calls it; there is no use for it elsewhere."
    # The web server, started in parallel, loads everything that the checks would inspect.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="Where passwords and tokens are kept, readable by the owner only.")
        parser.add_argument("--url", required=True, help="Where the demo answers.")
        parser.add_argument("--simulator-url", required=True, help="Where its simulated Azure answers.")

    def handle(self, *args: Any, file: Path, url: str, simulator_url: str, **options: Any) -> None:
        call_command("migrate", verbosity=0, interactive=False)
        now = clock.now()
        before: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        found: dict[str, Any] = {"url": url, "simulator_url": simulator_url}
        for group, scopes in PEOPLE.items():
            found[group] = credentials(group, scopes, before.get(group, {}), now)
        found["inbox"] = f"{simulator_url}/inbox/"
        if before.get("inbox") != found["inbox"]:
            set_up_inbox(found["inbox"], now)
        if settings.DEMO_SINGLE_SIGN_ON:
            map_roles(now)
        write_private(file, json.dumps(found, indent=2) + "\n")
        # On standard output for the demo alone: agents need it once, people never.
        seconds = JOIN_TOKEN_TIME.total_seconds()
        sent = JoinTokenRequestSerializer(data={"comment": "The demo's machines", "expires_in_seconds": seconds})
        _, plain = create_join_token(sent, now=now)
        self.stdout.write(plain)


def set_up_inbox(url: str, now: datetime) -> None:
    """Create a channel to the demo's inbox, where a visitor sees notifications without a real receiver. A channel that
    a user has deleted is not created again.
    """
    with suppress(Refused):
        name = f"The demo's inbox ({urlsplit(url).port})"
        sent = ChannelRequestSerializer(data={"kind": "webhook", "name": name, "url": url})
        channel_services.create(sent, actor=COMMAND_LINE, now=now)


def map_roles(now: datetime) -> None:
    """Map the app roles of the demo's directory to groups. Each mapping is created if it is missing, so one that a user
    has deleted returns at the next start.
    """
    for group in GROUPS:
        with suppress(Refused):
            line = {"value": f"Drydock.{group.capitalize()}", "group": group}
            sign_on.create(sign_on.GrantRequestSerializer(data=line), actor=COMMAND_LINE, now=now)


def credentials(group: str, scopes: list[str], before: dict[str, str], now: datetime) -> dict[str, str]:
    """Return the name, password and token of a demo user in this group. Those of the last start (`before`) are reused
    if the database still accepts them.
    """
    password = before.get("password") or secrets.token_urlsafe(12)
    person = ensure_person(username=group, group=group, password=password, now=now)
    token = before.get("token", "")
    if not token or person_of_token(token=token, now=now) is None:
        values = {"name": "The demo's credentials file", "scopes": scopes, "expires_in_seconds": MAX_LIFETIME}
        _, token = issue_token(MakeTokenSerializer(data=values), user=person, now=now)
    return {"username": group, "password": password, "token": token}
