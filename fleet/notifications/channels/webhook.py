"""Webhook channel: one POST, signed by the Standard Webhooks specification, with data in the form of the API."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.conf import settings
from standardwebhooks import Webhook

from fleet.domain.times import iso
from fleet.notifications.channels import KINDS, TIME_ZONE, ChannelKind, Setting, validate_url
from fleet.notifications.channels.base import ChannelInUse, Delivery, Item, Outcome, outcome_of
from fleet.notifications.payloads import path_of
from fleet.notifications.routing import GROUP
from fleet.notifications.sender.jobs import HttpJob
from fleet.notifications.sender.pool import send as send_job

KINDS["webhook"] = ChannelKind(
    "Webhook",
    "Your own program gets JSON, signed as Standard Webhooks says.",
    "webhook",
    {
        "url": Setting(
            "address",
            validators=[validate_url],
            help_text="It gets a POST for each message, such as https://hooks.example.com/drydock.",
        ),
        "time_zone": TIME_ZONE,
    },
    signs=True,
)
# A wave over a region would be megabytes, which many receivers refuse; the other events are only named.
MOST_ITEMS = 200
MOST_BYTES = 512 * 1024


def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Send one POST. Any 2xx accepts it; 410 disables the channel."""
    body = body_of(post)
    headers = {"Content-Type": "application/json", **signed(post.id, body, channel.values, now=now)}
    return outcome_of(send_job(HttpJob("POST", str(channel.values["url"]), headers, body.encode()), now=now))


def body_of(post: Delivery) -> str:
    """Return `{"type", "timestamp", "data"}`, with as many of the items as fit."""
    items = list(post.items[:MOST_ITEMS])
    while True:
        text = msgspec.json.encode(payload(post, items)).decode()
        if len(text) <= MOST_BYTES or len(items) <= 1:
            return text
        items = items[: len(items) // 2]


def payload(post: Delivery, items: list[Item]) -> dict[str, Any]:
    if post.alone:
        return told(post.alone)
    data: dict[str, Any] = {"title": post.words.title, "url": post.url}
    if post.moment == GROUP:
        data |= {"count": len(post.items), "items": [told(item) for item in items]}
        # A program that follows events needs each: those without room are named.
        data |= {"others": [named(item) for item in post.items[len(items) :]]}
    return {"type": post.moment, "timestamp": iso(post.at), "data": data}


def told(item: Item) -> dict[str, Any]:
    return {"type": item.news.moment, "timestamp": iso(item.news.at), "data": item.data}


def named(item: Item) -> dict[str, Any]:
    """Return an item without its data, but with the address of its page."""
    url = settings.BASE_URL.rstrip("/") + path_of(item.news)
    return {"type": item.news.moment, "timestamp": iso(item.news.at), "url": url}


def signed(name: str, body: str, values: Mapping[str, Any], *, now: datetime) -> dict[str, str]:
    """Return the three signature headers. While a secret is being replaced, the previous secret signs as well."""
    secrets = [values["secret"]]
    until = values.get("earlier_secret_until")
    if values.get("earlier_secret") and (not until or now < datetime.fromisoformat(until)):
        secrets.append(values["earlier_secret"])
    # The library takes any other zone for UTC.
    at = now.astimezone(UTC)
    signatures = [Webhook(secret).sign(name, at, body) for secret in secrets]
    return {
        "webhook-id": name,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
