"""What a message says: its parts, how long each may be, and the page that it leads to."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.domain.intake.documents import EVENT_ID
from fleet.domain.messages.moments import Moment
from fleet.domain.orders.by_hand import linux_command, windows_command
from fleet.projections.messages.news import MessageNews
from fleet.wording.plain import one_line

SHORT = 160
TITLE = 200
LINE = 600
# Of a name inside a line, and of what somebody wrote.
NAME = 64
SAID = 300
# So long a command may be that is to be copied.
COMMAND = 1000
# With any EventId, of which the alphabet is stated where documents are read.
COMMANDS = tuple(
    re.compile(re.escape(make("ID")).replace('"ID"', f'"{EVENT_ID}"')) for make in (linux_command, windows_command)
)
DRILL = "DRILL: "


@dataclass(frozen=True, slots=True)
class MessageWords:
    """`title` is one line; `subject` a line without state or countdown, the same for all of one thing (mail threads
    hang on it); `lines` the whole, line by line, the title first; `short` at most 160 characters; `path` of the page
    that it leads to: opening it does nothing.
    """

    title: str
    subject: str
    lines: tuple[str, ...]
    short: str
    path: str


def path_of(news: MessageNews) -> str:
    """The page on which one sees more and, of an event, decides."""
    if news.event is not None:
        return f"/events/{news.event.event_id}/"
    if news.maintenance is not None:
        return f"/maintenances/{news.maintenance.id}/"
    if (fixed := PATHS.get(Moment(news.moment))) is not None:
        return fixed
    entry = news.entry
    for place, row in (("caches", entry and entry.cache), ("machines", entry and entry.machine)):
        if row:
            return f"/{place}/{row.id}/"
    return f"/sets/{entry.set.id}/" if entry and entry.set else "/"


PATHS = {
    Moment.COVERAGE_OPENED: "/blind-spots/",
    Moment.COVERAGE_CLOSED: "/blind-spots/",
    Moment.AUDIT_FAILED: "/audit/",
    Moment.STORAGE_TROUBLE: "/timeline/",
    Moment.BREAK_GLASS: "/audit/",
    Moment.ACCOUNT: "/you/sessions/",
}


def is_command(line: str) -> bool:
    """Whether a line is a command of ours to be copied, and nothing else."""
    return any(command.fullmatch(line) for command in COMMANDS)


def in_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Each in one line of a bounded length, without those that are empty."""
    limits = ((line, COMMAND if is_command(line) else LINE) for line in lines)
    return tuple(bounded for line, most in limits if (bounded := one_line(line, most)))
