"""Asked again: when somebody last proved, in this session, that they are still there. Kept in the session, and asked by
the guard `step-up` and before anything about one's own doors is changed.
"""

from collections.abc import Mapping, MutableMapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

KEY = "drydock_stepped_up"


def note(session: MutableMapping[str, Any], *, at: datetime) -> None:
    """Somebody has just proved it, by a second factor, by the password where there is none, or at their provider."""
    session[KEY] = at.isoformat()


def last(session: Mapping[str, Any]) -> datetime | None:
    """When somebody last proved it; None where never in this session."""
    text = session.get(KEY)
    return datetime.fromisoformat(text) if text else None


def recent(at: datetime | None, *, now: datetime) -> bool:
    """Whether that is recent enough."""
    return at is not None and timedelta(0) <= now - at < timedelta(seconds=settings.STEP_UP_SECONDS)
