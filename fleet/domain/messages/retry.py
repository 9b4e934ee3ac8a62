"""When a channel is tried again, and when a message is given up."""

from datetime import timedelta

FIRST_SECONDS = 2.0
LONGEST_SECONDS = 300.0
# A receiver may ask for more than our own longest pause, but not for ever.
LONGEST_ASKED_SECONDS = 3600.0
GIVE_UP_AFTER = timedelta(days=1)
# So often in a row, and people are told of it through another channel.
FAILING_AFTER = 3


def pause_seconds(failures: int, *, chance: float, asked: float | None = None) -> float:
    """The pause after so many failures in a row, `chance` being 0 to 1: each twice as long as the one before, and
    spread. What the receiver asked for counts where it is longer.
    """
    ceiling = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_SECONDS)
    own = ceiling * (0.5 + chance / 2)
    return own if asked is None else max(own, min(asked, LONGEST_ASKED_SECONDS))
