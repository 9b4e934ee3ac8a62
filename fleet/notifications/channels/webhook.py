"""Webhook channel: one POST for each delivery, signed by the Standard Webhooks specification. The data has the form of
the API.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.conf import settings
from standardwebhooks import Webhook

from fleet.api.shapes.derive import shape_of
from fleet.domain.times import iso
from fleet.notifications.channels import KINDS, TIME_ZONE, ChannelKind, Setting, validate_url
from fleet.notifications.channels.base import ChannelInUse, Delivery, Item, Outcome, outcome_of
from fleet.notifications.news import MessageNews
from fleet.notifications.routing import GROUP
from fleet.notifications.sender.jobs import HttpJob
from fleet.notifications.sender.pool import send as send_job
from fleet.notifications.text import path_of

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
    """Send one POST. Any status 2xx means accepted; 410 disables the channel."""
    body = body_of(post)
    headers = {"Content-Type": "application/json", **signed(post.id, body, channel.values, now=now)}
    return outcome_of(send_job(HttpJob("POST", str(channel.values["url"]), headers, body.encode()), now=now))


def body_of(post: Delivery) -> str:
    """Return the request body, `{"type", "timestamp", "data"}`. Items that exceed the size limit are omitted."""
    if len(post.items) == 1:
        return msgspec.json.encode(payload(post.items[0])).decode()
    data: dict[str, Any] = {"title": post.words.title, "url": post.url}
    message = {"type": post.moment, "timestamp": iso(post.at), "data": data}
    payloads = [payload(item) for item in post.items[:MOST_ITEMS]]
    while True:
        if post.moment == GROUP:
            # A program that follows events needs each: those without room are named.
            others = [_head(item) | {"url": url_of(item.news)} for item in post.items[len(payloads) :]]
            data |= {"count": len(post.items), "items": payloads, "others": others}
        text = msgspec.json.encode(message).decode()
        if len(text) <= MOST_BYTES or len(payloads) <= 1:
            return text
        payloads = payloads[: len(payloads) // 2]


def payload(item: Item) -> dict[str, Any]:
    return {**_head(item), "data": event_data(item.news)}


def _head(item: Item) -> dict[str, Any]:
    return {"type": item.news.moment, "timestamp": iso(item.news.at)}


def event_data(news: MessageNews) -> Mapping[str, Any]:
    """Return the data about one message: the event or cache maintenance as in the API, plus `url`, `decide_by`,
    `stay_up`, `blast`, `severity` and `drill`, and `machine` if it is about one machine of the event. For other
    subjects, return fields of the timeline entry.
    """
    data: Mapping[str, Any] = {}
    if row := news.event or news.maintenance or news.entry:
        data = _as_in_api(row, news)
    if row is news.entry and row is not None:
        data = {name: data[name] for name in ("kind", "set", "machine", "cache", "text")}
    card, machine = news.card, news.entry.machine if news.entry else None
    return {
        **data,
        **({"machine": machine.resource_name} if machine and news.moment.declared.of_machine else {}),
        "url": url_of(news),
        "decide_by": iso(card.decide_by) if card and card.decide_by else None,
        "stay_up": card.blast.stay_up if card else None,
        "blast": _as_in_api(card.blast, news) if card else None,
        "severity": news.severity,
        "drill": news.drill,
    }


def _as_in_api(row: Any, news: MessageNews) -> Mapping[str, Any]:
    return dict(shape_of(type(row))(row, context={"now": news.server_time or news.at}).data)


def url_of(news: MessageNews) -> str:
    return settings.BASE_URL.rstrip("/") + path_of(news)


def signed(name: str, body: str, values: Mapping[str, Any], *, now: datetime) -> dict[str, str]:
    """Return the three signature headers for a message whose id is `name`. During the replacement of a secret, the
    message is also signed with the previous one.
    """
    secrets: Sequence[str] = [values[each] for each in ("secret", "earlier_secret") if values.get(each)]
    # The library takes any other zone for UTC.
    at = now.astimezone(UTC)
    return {
        "webhook-id": name,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(secret).sign(name, at, body) for secret in secrets),
    }
