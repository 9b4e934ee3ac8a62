"""What a message tells: the state of its subject as it is now, read again just before it is sent."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from fleet.projections.approvals.cards import DecisionCard
from fleet.projections.events.rows import EventRow


@dataclass(frozen=True, slots=True)
class MessageNews:
    """One message with what it tells of. `stale`: a code, why nobody needs to be told any more; empty while it counts.

    `event` and `card` are None where it is about something else.
    """

    message_id: int
    moment: str
    subject: str
    at: datetime
    severity: str
    drill: bool
    service: str = ""
    event: EventRow | None = None
    card: DecisionCard | None = None
    stale: str = ""


def news_of(message_ids: Collection[int], *, now: datetime) -> dict[int, MessageNews]:
    """What these messages (row ids) tell, by row id; a fixed number of queries."""
    raise NotImplementedError
