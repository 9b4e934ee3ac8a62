"""Calls that come back, as Slack and PagerDuty make and sign them."""

import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from django.contrib.auth.models import User
from django.test import Client

from fleet.accounts import external_accounts
from fleet.notifications.channels.slack import CLAIM_ACTION
from tests.factories import acting, admin

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"


def link(user: User, kind: str, account: str, team: str = "") -> None:
    """An admin states that an account of Slack or PagerDuty is this user's."""
    external_accounts.link(
        actor=acting(admin()), username=user.username, kind=kind, team=team, account=account, now=datetime.now(UTC)
    )


def digest(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def press(event_id: str, *, user: str = "U1", response_url: str = "", **changed: Any) -> bytes:
    """Return the form that Slack sends when a user presses *Claim*."""
    payload = {
        "type": "block_actions",
        "user": {"id": user, "username": "otto.o", "name": "otto.o", "team_id": "T1"},
        "team": {"id": "T1", "domain": "example"},
        "channel": {"id": "C0SHOP", "name": "shop-ops"},
        "response_url": response_url,
        "actions": [{"action_id": CLAIM_ACTION, "type": "button", "value": event_id}],
        **changed,
    }
    return urlencode({"payload": json.dumps(payload)}).encode()


@dataclass
class SlackCaller:
    """Slack, calling back. `skew`: how many seconds its clock is ahead."""

    client: Client
    channel: int
    secret: str = SECRET
    skew: int = 0

    def headers(self, body: bytes) -> dict[str, str]:
        stated = str(int(time.time()) + self.skew)
        signed = digest(self.secret, f"v0:{stated}:".encode() + body)
        return {"X-Slack-Request-Timestamp": stated, "X-Slack-Signature": f"v0={signed}"}

    def send(self, body: bytes, **headers: str) -> int:
        return called(self, "slack", body, self.headers(body) | headers, "application/x-www-form-urlencoded")


def acknowledged(key: str, *, agent: Any = "", **changed: Any) -> bytes:
    """Return the body that PagerDuty sends when a user acknowledges an incident."""
    who = {"html_url": "https://x.pagerduty.com/users/PLH1HKV", "id": "PLH1HKV", "summary": "Otto O"}
    event = {
        "id": uuid4().hex,
        "event_type": "incident.acknowledged",
        "occurred_at": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "agent": {**who, "type": "user_reference"} if agent == "" else agent,
        "data": {"id": "PGR0VU2", "type": "incident", "status": "acknowledged", "incident_key": key},
        **changed,
    }
    return json.dumps({"event": event}).encode()


@dataclass
class PagerDutyCaller:
    """PagerDuty, calling back."""

    client: Client
    channel: int
    secret: str = SECRET

    def send(self, body: bytes, **headers: str) -> int:
        # While a secret is renewed, both sign.
        signed = f"v1={digest('another', body)},v1={digest(self.secret, body)}"
        return called(self, "pagerduty", body, {"X-PagerDuty-Signature": signed} | headers, "application/json")


def called(caller: SlackCaller | PagerDutyCaller, kind: str, body: bytes, headers: dict[str, str], form: str) -> int:
    """Make the call of a receiver. Return the status of the answer."""
    answer = caller.client.post(f"/hooks/{kind}/{caller.channel}/", body, content_type=form, headers=headers)
    return int(answer.status_code)
