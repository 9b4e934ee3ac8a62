"""What a kind of channel gets and answers.

Each kind is a module of its own beside this, named like it, with one function:

    def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome

It renders the post for its receiver and sends it through `fleet.notifications.sender`, never by itself, so that the
guard over addresses holds. It also declares the kind, with its settings and secrets (`fleet.notifications.channels`). A
kind that mirrors what is open instead of taking posts (`messages=False` there) has

    def mirror(channel: ChannelInUse, *, now: datetime) -> Outcome

which is called every half a minute, and soon after news; both are called by one thread at a time for each channel.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from fleet.notifications.news import MessageNews
from fleet.notifications.payloads import MessageWords, event_data
from fleet.notifications.sender.jobs import Answer, SendError
from fleet.notifications.text import message_words
from fleet.wording.times import Form, Reader


@dataclass(frozen=True)
class Item:
    """One message of a post: what happened, for whom it is worded. Most of a storm's items are never worded."""

    news: MessageNews
    reader: Reader

    @cached_property
    def words(self) -> MessageWords:
        """How it is said, in the channel's zone."""
        return message_words(self.news, self.reader)

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """What programs get: the event (or cache, or set) as the API shows it."""
        return event_data(self.news)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one channel is told at once. `id` is the same at every attempt, `attempt` counts from 1.

    `moment` is that of its one item, `group` for several, `test` for a try (without items). `words` are those of the
    item, or of all together. `url` leads to the page, on which one decides after login; opening it does nothing.
    `references` is what the channel keeps for the subjects of the items.
    """

    id: str
    attempt: int
    moment: str
    at: datetime
    items: tuple[Item, ...]
    words: MessageWords
    url: str
    references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def alone(self) -> Item | None:
        """Its item, where there is only one."""
        return self.items[0] if len(self.items) == 1 else None


@dataclass(frozen=True, slots=True)
class ChannelInUse:
    """A channel with its secrets opened: `values` holds settings and secrets together. Never logged, never shown."""

    id: int
    kind: str
    name: str
    values: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it. `ok`: taken. Otherwise `again`: the channel may take it later (away, busy, wrong credentials);
    without it this very post is refused for good, and the next one may pass.

    `answer` is what the receiver said, without secrets, `status` its HTTP or SMTP status, `error` a code of ours.
    `wait_seconds`: the receiver asked for that. `references`: what to keep for a subject from now on; None forgets it.
    `gone`: the receiver says that it does not exist any more, and the channel is switched off.
    """

    ok: bool
    again: bool = False
    status: int | None = None
    error: str = ""
    answer: str = ""
    wait_seconds: float | None = None
    gone: bool = False
    references: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)


def reader_of(channel: ChannelInUse, now: datetime) -> Reader:
    """Return the reader of a channel's texts, in its time zone."""
    zone: tzinfo = UTC
    with suppress(KeyError, ValueError, OSError):
        zone = ZoneInfo(str(channel.values.get("time_zone") or "UTC"))
    return Reader(zone, Form.MESSAGE, now)


# What an answer means for the post and for the channel: told, later perhaps, never, or gone.

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
