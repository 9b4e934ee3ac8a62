"""How a channel does, as one word."""

from datetime import datetime
from enum import StrEnum


class ChannelHealth(StrEnum):
    """`new`: nothing was sent yet. `held`: nothing is sent until a time, since it asked for that."""

    NEW = "new"
    WORKS = "works"
    HELD = "held"
    FAILS = "fails"
    OFF = "off"


def health_of(
    *,
    enabled: bool,
    last_ok_at: datetime | None,
    failing_since: datetime | None,
    held_until: datetime | None,
    now: datetime,
) -> ChannelHealth:
    """Failing counts before held: a channel that fails is left alone for a while, too."""
    if not enabled:
        return ChannelHealth.OFF
    if failing_since is not None:
        return ChannelHealth.FAILS
    if held_until is not None and held_until > now:
        return ChannelHealth.HELD
    return ChannelHealth.NEW if last_ok_at is None else ChannelHealth.WORKS
