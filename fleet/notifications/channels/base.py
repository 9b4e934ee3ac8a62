"""Interface of a kind of channel: the delivery that it receives, and the outcome that it returns.

Each kind is a module in this folder, named like the kind. It declares the kind with its settings and secrets
(`fleet.notifications.channels`), and has one function:

    def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome

This renders the delivery and sends it through `fleet.notifications.sender`, so that the address guard applies. A kind
that mirrors open events instead of receiving messages (`messages=False`) also has

    def mirror(channel: ChannelInUse, *, now: datetime) -> Outcome

The worker calls `mirror` every 30 seconds, and soon after a change. Only one thread at a time calls these functions for
the same channel.
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
    """One message of a delivery, with the reader for whom its texts are rendered. In a storm, most items are never
    rendered.
    """

    news: MessageNews
    reader: Reader

    @cached_property
    def words(self) -> MessageWords:
        """The texts of the message, with times in the time zone of the channel."""
        return message_words(self.news, self.reader)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery to one channel. `id` is the same at every attempt.

    `moment` is the notification type if there is one item, `group` for several, and `test` for a test (no items).
    `words` are the texts of the item, or of all items together. `url` is the page on which a user decides after
    sign-in; opening it changes nothing. `references` are the identifiers that the channel has stored for the subjects
    of the items.
    """

    id: str
    moment: str
    at: datetime
    items: tuple[Item, ...]
    words: MessageWords
    url: str
    references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChannelInUse:
    """A channel with settings and decrypted secrets together in `values`. Never log or show it."""

    id: int
    kind: str
    name: str
    values: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a delivery attempt. `ok`: the receiver accepted it. Otherwise, `again` means that a retry may succeed
    (receiver unavailable or busy, or wrong credentials); without `again`, this delivery is refused permanently.

    `answer` is the receiver's response without secrets, `status` the HTTP or SMTP status, `error` a code of Drydock.
    `wait_seconds` is a pause that the receiver requested. `references` are identifiers to store by subject; None
    deletes one. `gone`: the receiver reported that it no longer exists, so the channel is disabled.
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
    """Return the reader for whom a channel's texts are rendered, with the time zone of the channel."""
    zone: tzinfo = UTC
    with suppress(KeyError, ValueError, OSError):
        zone = ZoneInfo(str(channel.values.get("time_zone") or "UTC"))
    return Reader(zone, Form.MESSAGE, now)


# Meaning of an answer: accepted, later perhaps, never, or gone.


def error_of(answer: Answer) -> str:
    """Return the error code of an answer, followed after a colon by a detail about the address or URL if there is
    one.
    """
    return f"{answer.error.value}:{answer.reason}" if answer.reason else answer.error.value


def outcome_of(
    answer: Answer,
    *,
    never: bool | None = None,
    gone: Collection[int | None] = (410,),
    wait_seconds: float | None = None,
) -> Outcome:
    """Return the outcome for an HTTP response. `never`: the delivery is refused permanently (by default decided by the
    status). `gone` are the statuses of a receiver that no longer exists. `wait_seconds` is the pause if the response
    requests none.
    """
    if never is None:
        # It accepts the sender, but refuses this delivery; or the delivery is invalid, and was not sent.
        refuses = answer.status in (400, 409, 413, 414, 415, 422)
        never = refuses or answer.error in (SendError.BAD_JOB, SendError.TOO_LARGE)
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
