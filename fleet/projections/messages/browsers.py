"""The phones and browsers that a person has told."""

from dataclasses import dataclass
from datetime import datetime

from fleet.domain.shapes import like
from fleet.models import Channel
from fleet.projections.sight import seen


@dataclass(frozen=True, slots=True)
class BrowserRow:
    """One of them. Not `enabled`: its maker said that it does not want to be told any more."""

    id: int
    name: str
    enabled: bool
    created_at: datetime
    last_ok_at: datetime | None


def own_browsers(*, user_id: int) -> tuple[BrowserRow, ...]:
    """The newest first. One query."""
    rows = seen(Channel).filter(owner=user_id, kind="webpush", deleted_at=None).order_by("-id")
    return tuple(like(BrowserRow, row) for row in rows)
