"""When the user last verified their identity in this session, stored in the session.

The guard `step-up` and changes of the user's own sign-in methods require a recent verification.
"""

from collections.abc import Mapping, MutableMapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

KEY = "drydock_stepped_up"


def note(session: MutableMapping[str, Any], *, at: datetime) -> None:
    """Record that the user verified their identity: by second factor, by password if there is none, or at the
    provider.
    """
    session[KEY] = at.isoformat()


def last(session: Mapping[str, Any]) -> datetime | None:
    """Return when the user last verified their identity in this session; None if never."""
    text = session.get(KEY)
    return datetime.fromisoformat(text) if text else None


def recent(at: datetime | None, *, now: datetime) -> bool:
    """Return whether a verification at this time is recent enough; False for None."""
    return at is not None and timedelta(0) <= now - at < timedelta(seconds=settings.STEP_UP_SECONDS)
