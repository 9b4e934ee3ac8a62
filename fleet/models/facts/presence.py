"""How present machines are, in SQL, as `fleet.domain.intake.presence.presence_of` has it."""

from datetime import datetime, timedelta
from typing import Any

from fleet.domain.intake.presence import NUMBERS, Limits

# The number of a row of presence; nobody is revoked here, which is an act. Its parameters are `presence_values`.
PRESENCE = """
    CASE WHEN last_heard_at IS NULL THEN %(expected_is)s
         WHEN last_poll_at IS NULL AND last_heard_at >= %(gone)s THEN %(silent_is)s
         WHEN last_poll_at IS NULL THEN %(gone_is)s
         WHEN LEAST(last_heard_at, last_poll_at) > %(live)s THEN %(live_is)s
         WHEN LEAST(last_heard_at, last_poll_at) > %(late)s THEN %(late_is)s
         WHEN LEAST(last_heard_at, last_poll_at) >= %(gone)s THEN %(silent_is)s
         ELSE %(gone_is)s END
"""


def presence_values(*, now: datetime, limits: Limits) -> dict[str, Any]:
    """The parameters of `PRESENCE`."""
    at = {name: now - timedelta(seconds=getattr(limits, name)) for name in ("live", "late", "gone")}
    return {**at, **{f"{state.value}_is": number for state, number in NUMBERS.items()}}
