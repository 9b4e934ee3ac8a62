"""Interface of a kind of channel: the delivery that it receives and the outcome that it returns.

Each kind is a module in this folder with its name and one function:

    def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome

It renders the delivery for its receiver and sends it through `fleet.notifications.sender`, so that the address
guard applies. It also declares the kind, with its settings and secrets (`fleet.notifications.channels`). A kind
that mirrors open events instead of receiving messages (`messages=False`) has

    def mirror(channel: ChannelInUse, *, now: datetime) -> Outcome

The worker calls it every 30 seconds, and soon after news. One thread at a time calls either for a channel.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from fleet.notifications.news import MessageNews
from fleet.notifications.sender.jobs import Answer, SendError
from fleet.notifications.text import MessageWords, message_words
from fleet.wording.times import Form, Reader


@dataclass(frozen=True)
class Item:
    """One message of a delivery, with the reader of its texts. Most items of a storm are never rendered as text."""

    news: MessageNews
    reader: Reader

    @cached_property
    def words(self) -> MessageWords:
        """Its texts, in the time zone of the channel."""
        return message_words(self.news, self.reader)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery to one channel. `id` is the same at every attempt.

    `moment` is the type of its only item, `group` for several, `test` for a test (without items). `words` are those
    of the item, or of all together. `url` is the page for the decision, after sign-in; opening it changes nothing.
    `references` are the channel's stored identifiers for the subjects of the items.
    """

    id: str
    moment: str
    at: datetime
    items: tuple[Item, ...]
    words: MessageWords
    url: str
    references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def alone(self) -> Item | None:
        """Its item, if there is only one."""
        return self.items[0] if len(self.items) == 1 else None


@dataclass(frozen=True, slots=True)
class ChannelInUse:
    """A channel with its decrypted secrets: `values` holds settings and secrets together. Never logged or shown."""

    id: int
    kind: str
    name: str
    values: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a delivery. `ok`: accepted. Otherwise, `again` means that the channel may accept it later
    (unavailable, busy, wrong credentials). Without it, this delivery is refused permanently, and the next one may
    succeed.

    `answer` is the receiver's answer without secrets, `status` its HTTP or SMTP status, `error` a code of Drydock.
    `wait_seconds`: the receiver requested this pause. `references`: identifiers to store for a subject; None
    deletes them. `gone`: the receiver reported that it no longer exists, and the channel is disabled.
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


# Meaning of an answer: accepted, later perhaps, never, or gone.

# HTTP statuses of a receiver that refuses this delivery at every attempt, but accepts the sender.
REFUSES_POST = frozenset({400, 409, 413, 414, 415, 422})
# The delivery itself is invalid, and was not sent.
OWN_FAULT = frozenset({SendError.BAD_JOB, SendError.TOO_LARGE})


def error_of(answer: Answer) -> str:
    """Return the code of the error, and after a colon the detail about the address or URL."""
    return f"{answer.error.value}:{answer.reason}" if answer.reason else answer.error.value


def outcome_of(
    answer: Answer,
    *,
    never: bool | None = None,
    gone: Collection[int | None] = (410,),
    wait_seconds: float | None = None,
) -> Outcome:
    """Return the outcome for receivers that answer over HTTP. `never`: whether it refuses this delivery permanently, by
    default judged by the status. `gone` are statuses of a receiver that no longer exists; `wait_seconds` applies if it
    states none.
    """
    if never is None:
        never = answer.status in REFUSES_POST or answer.error in OWN_FAULT
    stated = answer.retry_after_seconds
    return Outcome(
        ok=answer.ok,
        again=not (answer.ok or never or answer.status in gone),
        status=answer.status,
        error=error_of(answer),
        answer=answer.answer,
        wait_seconds=wait_seconds if stated is None else stated,
        gone=answer.status in gone,
    )
