"""One message in words, whatever it tells of; and a try."""

from collections.abc import Iterator
from dataclasses import replace

from fleet.domain.messages.moments import PERSONAL
from fleet.domain.timeline import EntryKind
from fleet.projections.caches.maintenances import MaintenanceRow
from fleet.projections.messages.news import MessageNews
from fleet.wording import times
from fleet.wording.channels import moment_label
from fleet.wording.messages.event import of_event
from fleet.wording.messages.words import NAME, SHORT, TITLE, MessageWords, in_lines, path_of
from fleet.wording.plain import beside, one_line
from fleet.wording.reader import Form, Reader
from fleet.wording.say import say, text_of


def message_words(news: MessageNews, reader: Reader) -> MessageWords:
    """What one message says to this reader."""
    reader = replace(reader, form=Form.MESSAGE, now=news.server_time or reader.now)
    if news.event is not None and news.card is not None:
        return of_event(news, news.event, news.card, reader)
    if news.maintenance is not None:
        return _of_maintenance(news, news.maintenance, reader)
    return _of_rest(news, reader)


def test_words(reader: Reader) -> MessageWords:
    """What a try says."""
    reader = replace(reader, form=Form.MESSAGE)
    title = "A test by Drydock: nothing has happened"
    lines = [title, "Somebody tries this channel. What it is told comes like this."]
    if reader.now is not None:
        lines.append(f"It was sent at {times.at(reader.now, replace(reader, now=None))}.")
    return MessageWords(title, title, tuple(lines), f"{title}.", "/")


def _of_maintenance(news: MessageNews, row: MaintenanceRow, reader: Reader) -> MessageWords:
    """Nobody can approve it: who is told may see to the programs that use the cache."""
    what = f"Maintenance of {one_line(row.cache.name, NAME)}"
    effect = say(row.effect, reader) if row.active else ""
    when = _when(news, row, reader)
    if news.service:
        what = f"{what} ({one_line(news.service, NAME)})"
    said = text_of(news.entry, reader) if news.entry else ""
    shortest, then = beside((one_line(what, SHORT), f"{when}."), SHORT)
    return MessageWords(
        title=one_line(f"{what}{when}", TITLE),
        subject=one_line(f"Maintenance {row.id} of {row.cache.host}", TITLE),
        lines=in_lines([f"{what}{when}", said, effect, f"Severity: {news.severity}."]),
        short=f"{shortest}{then}",
        path=path_of(news),
    )


def _when(news: MessageNews, row: MaintenanceRow, reader: Reader) -> str:
    if news.entry is not None and news.entry.kind is EntryKind.MAINTENANCE_NEVER_STARTED:
        return " was announced and did not begin"
    if news.entry is not None and news.entry.kind is EntryKind.MAINTENANCE_END_NOT_SEEN:
        return " began, and nobody heard that it ended"
    if not row.active:
        lasted = f" after {times.duration(row.seconds)}" if row.seconds is not None else ""
        return f" is over{lasted}"
    soonest = row.earliest_at or row.expected_at
    return f" is announced, the node may go from {times.at(soonest, reader)}" if soonest else " is announced"


def _of_rest(news: MessageNews, reader: Reader) -> MessageWords:
    """What is about no event and no operation: what its line of the timeline tells."""
    label = moment_label(news.moment)
    label = f"{label[:1].upper()}{label[1:]}"
    said = text_of(news.entry, reader) if news.entry else f"{label}."
    where = one_line(_where(news, reader), NAME)
    return MessageWords(
        title=one_line(said, TITLE),
        subject=one_line(f"{label}{': ' if where else ''}{where}", TITLE),
        lines=in_lines([said, *_more(news), f"Severity: {news.severity}."]),
        short=one_line(said, SHORT),
        path=path_of(news),
    )


def _where(news: MessageNews, reader: Reader) -> str:
    entry = news.entry
    if entry is None:
        return ""
    if entry.cache is not None:
        return entry.cache.name
    if entry.set is not None:
        return say(entry.set.label, reader)
    return entry.machine.resource_name if entry.machine else ""


def _more(news: MessageNews) -> Iterator[str]:
    if news.moment in PERSONAL:
        yield "Was that not you? End the sessions that you do not know, and change your password."
    if news.service:
        yield f"Service: {one_line(news.service, NAME)}."
