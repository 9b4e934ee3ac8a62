"""Recent verification: when the user last proved their identity in this session. It is stored in the session. The guard
`step-up` and changes of one's own sign-in methods require it.
"""

from collections.abc import Mapping, MutableMapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

KEY = "drydock_stepped_up"


def note(session: MutableMapping[str, Any], *, at: datetime) -> None:
    """Record a verification by second factor, by password where there is none, or at the provider."""
    session[KEY] = at.isoformat()


def last(session: Mapping[str, Any]) -> datetime | None:
    """Return when the user last verified in this session; None if never."""
    text = session.get(KEY)
    return datetime.fromisoformat(text) if text else None


def recent(at: datetime | None, *, now: datetime) -> bool:
    """Whether that is recent enough."""
    return at is not None and timedelta(0) <= now - at < timedelta(seconds=settings.STEP_UP_SECONDS)
