"""What projections show, as plain JSON values."""

from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from fleet.domain.reason import Reason
from fleet.projections.timeline.entries import TimelineRow
from fleet.wording import times
from fleet.wording.reader import API
from fleet.wording.say import recorded, say


def exported(value: Any) -> Any:
    """Dataclasses as objects, times as RFC 3339 in UTC, reasons and entries worded as the API words them."""
    if isinstance(value, Reason):
        return say(value, API)
    if isinstance(value, TimelineRow):
        value = replace(value, text=recorded(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: exported(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return times.iso(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {str(key): exported(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [exported(item) for item in value]
    return value
