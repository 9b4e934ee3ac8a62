"""What Azure states about an event: each field once, for documents, sightings and the event's state alike."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStatement:
    """Fields that nobody states are `""`, `None` or `()`. `not_before` is in UTC; `duration_seconds` -1 is unknown."""

    event_type: str = ""
    resource_type: str = ""
    source: str = ""
    description: str = ""
    duration_seconds: int | None = None
    not_before: datetime | None = None
    resources: tuple[str, ...] = ()


# Each field with what stands in it while nobody states it.
NOT_STATED: dict[str, Any] = asdict(EventStatement())
