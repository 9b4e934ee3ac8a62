"""What an answer means for the post and for the channel: told, later perhaps, never, or gone."""

from fleet.notify.channels.base import Outcome
from fleet.notify.sender.jobs import Answer, SendError

# HTTP: it has understood whom we are, and will not take this post, however often it gets it.
REFUSES_POST = frozenset({400, 409, 413, 414, 415, 422})
# Something is wrong with the post itself, before anybody has seen it.
OWN_FAULT = frozenset({SendError.BAD_JOB, SendError.TOO_LARGE})
GONE = 410


def error_of(answer: Answer) -> str:
    """The code of what went wrong, and after a colon what it was about the address or the URL."""
    return f"{answer.error.value}:{answer.reason}" if answer.reason else answer.error.value


def outcome_of(answer: Answer) -> Outcome:
    """For receivers that say over HTTP what they think of a post."""
    gone = answer.status == GONE
    never = answer.status in REFUSES_POST or answer.error in OWN_FAULT
    return Outcome(
        ok=answer.ok,
        again=not (answer.ok or never or gone),
        status=answer.status,
        error=error_of(answer),
        answer=answer.answer,
        wait_seconds=answer.retry_after_seconds,
        gone=gone,
    )
