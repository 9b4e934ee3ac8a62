"""Words of messages out: the decision card as text, in a channel's zone and in UTC, and short for pagers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessageWords:
    """`title` is one line; `subject` a line without state or countdown, the same for all of one thing (mail threads
    hang on it); `lines` the whole, line by line; `short` at most 160 characters; `path` of the page that it leads to.
    """

    title: str
    subject: str
    lines: tuple[str, ...]
    short: str
    path: str
