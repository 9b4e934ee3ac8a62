"""What programs get: rows as the API answers, with reasons in sentences and times in UTC."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

from django.conf import settings

from fleet.domain.reason import Reason
from fleet.domain.states import OPEN_ORDERS
from fleet.domain.times import iso
from fleet.projections.approvals.rows import ApprovalRow, NextAsked, OrderRow
from fleet.projections.caches.maintenances import MaintenanceRow
from fleet.projections.events.blast import BlastRadius
from fleet.projections.events.rows import EventRow
from fleet.projections.messages.news import MessageNews
from fleet.wording.messages.words import path_of
from fleet.wording.reader import API
from fleet.wording.say import say, text_of


@dataclass(frozen=True, slots=True)
class Told:
    """What the API's shape of a row leaves out, and what it has besides; a test compares the two."""

    without: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()


TOLD: Mapping[type, Told] = {
    EventRow: Told(("id",), ("started_seconds", "approval_to_start_seconds")),
    ApprovalRow: Told(("decision",), ("may_be_withdrawn",)),
    NextAsked: Told(properties=("sentence",)),
    MaintenanceRow: Told(properties=("effect",)),
    BlastRadius: Told(properties=("summary",)),
}
PLAIN = Told()


def event_data(news: MessageNews) -> dict[str, Any]:
    """What programs get: the event, or the operation on a cache, as the API shows it, with `url`, `decide_by`,
    `stay_up`, `severity` and `drill`; of everything else what the timeline tells.
    """
    now = news.server_time or news.at
    known: dict[str, Any] = {}
    if news.event is not None:
        known = data_of(news.event, now)
    elif news.maintenance is not None:
        known = data_of(news.maintenance, now) | {"server_time": data_of(now, now)}
    elif news.entry is not None:
        known = {name: data_of(getattr(news.entry, name), now) for name in ("kind", "set", "machine", "cache")}
        known["text"] = text_of(news.entry, API)
    card = news.card
    return known | {
        "url": settings.BASE_URL.rstrip("/") + path_of(news),
        "decide_by": data_of(card.decide_by, now) if card else None,
        "stay_up": card.blast.stay_up if card else None,
        "blast": data_of(card.blast, now) if card else None,
        "severity": news.severity,
        "drill": news.drill,
    }


def data_of(value: Any, now: datetime) -> Any:
    """The same in JSON values, at this time."""
    match value:
        case Reason():
            return say(value, API)
        case datetime():
            return iso(value)
        case Enum() | UUID():
            return str(value)
        case list() | tuple():
            return [data_of(item, now) for item in value]
        case Mapping():
            return {str(name): data_of(item, now) for name, item in value.items()}
    if not is_dataclass(value):
        return value
    told = TOLD.get(type(value), PLAIN)
    names = [field.name for field in fields(value) if field.name not in told.without]
    found = {name: data_of(getattr(value, name), now) for name in (*names, *told.properties)}
    if "server_time" in found:
        found["server_time"] = iso(now)
    return found | {"seconds_left": _seconds_left(value, now)} if isinstance(value, OrderRow) else found


def _seconds_left(order: OrderRow, now: datetime) -> float | None:
    if order.expires_at is None or order.state not in OPEN_ORDERS:
        return None
    return round(max(0.0, (order.expires_at - now).total_seconds()), 3)
