"""Several messages as one: counts, and what is nearest; as long for a thousand as for ten."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from fleet.domain.messages.moments import Moment
from fleet.domain.messages.severity import Severity
from fleet.projections.messages.news import MessageNews
from fleet.wording import times
from fleet.wording.channels import moment_label
from fleet.wording.messages.one import message_words
from fleet.wording.messages.words import DRILL, LINE, NAME, SHORT, TITLE, MessageWords, in_lines
from fleet.wording.plain import clipped, one_line
from fleet.wording.reader import Form, Reader
from fleet.wording.sentences import counted, some

# So many are told in a line of their own.
MOST = 10
SERVICES = 10
WORST = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)


def group_words(several: Sequence[MessageNews], reader: Reader) -> MessageWords:
    """What these messages say together, oldest first: of each thing as it is now, the nearest deadline first.

    Where all tell of one thing it is the newest of them, with what else has happened.
    """
    reader = replace(reader, form=Form.MESSAGE, now=several[-1].server_time or reader.now)
    newest = list({news.subject: news for news in several}.values())
    if len(newest) == 1:
        words = message_words(newest[0], reader)
        happened = [moment_label(news.moment) for news in several]
        return replace(words, lines=in_lines([*words.lines, f"What has happened: {', '.join(happened)}."]))
    newest.sort(key=_urgency)
    head = DRILL if all(news.drill for news in newest) else ""
    what = _counts(newest)
    first = next((news.deadline for news in newest if _ahead(news)), None)
    by = f", decide the first by {times.at(first, reader)}" if first is not None else ""
    worst = _severities(newest)
    return MessageWords(
        title=one_line(f"{head}{what}{by}", TITLE),
        subject="Several at once",
        lines=in_lines([f"{head}{what}{by}", f"Severity: {worst}.", *_happened(newest), *_listed(newest, reader)]),
        short=_short(head, what, newest, by, worst),
        path="/",
    )


def _ahead(news: MessageNews) -> bool:
    waits = news.event is not None and news.event.needs_decision and not news.drill
    return waits and news.deadline is not None and (news.server_time is None or news.deadline > news.server_time)


def _urgency(news: MessageNews) -> tuple[bool, int, datetime]:
    """What has to be decided comes first, and of the rest the worst."""
    waits = _ahead(news)
    return (not waits, 0 if waits else _rank(news.severity), (waits and news.deadline) or news.at)


def _rank(severity: str) -> int:
    return WORST.index(Severity(severity)) if severity in set(WORST) else len(WORST)


def _counts(newest: Iterable[MessageNews]) -> str:
    """`12 events and 1 maintenance of a cache`."""
    of_events = [news for news in newest if news.event is not None]
    drills = sum(news.drill for news in of_events)
    maintenances = sum(news.maintenance is not None for news in newest)
    rest = sum(news.event is None and news.maintenance is None for news in newest)
    real = len(of_events) - drills
    parts = [counted(real, "event")] if real else []
    parts += [counted(drills, "drill")] if drills else []
    parts += [counted(maintenances, "maintenance of a cache", "maintenances of caches")] if maintenances else []
    parts += [counted(rest, "other matter")] if rest else []
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def _severities(newest: Iterable[MessageNews]) -> str:
    """`3 critical, 9 warning`."""
    found = Counter(news.severity for news in newest)
    return ", ".join(f"{found[each]} {each}" for each in WORST if found[each])


def _happened(newest: Sequence[MessageNews]) -> Iterator[str]:
    """What, how often; and where, by service and type."""
    moments = Counter(news.moment for news in newest)
    order = [moment.value for moment in Moment]
    told = sorted(moments, key=lambda moment: order.index(moment) if moment in order else len(order))
    yield f"{', '.join(f'{moments[moment]} {moment_label(moment)}' for moment in told)}."
    types: dict[str, Counter[str]] = {}
    for news in newest:
        if news.event is not None:
            kind = one_line(news.event.event_type, NAME) or "of unknown type"
            types.setdefault(news.service, Counter())[kind] += 1
    services = sorted(types, key=lambda service: (-types[service].total(), service))
    for service in services[:SERVICES]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in types[service].most_common(5))
        yield f"{one_line(service, NAME) or 'No service'}: {kinds}."
    if len(services) > SERVICES:
        yield f"And {counted(len(services) - SERVICES, 'more service')}."


def _listed(newest: Sequence[MessageNews], reader: Reader) -> Iterator[str]:
    for news in newest[:MOST]:
        yield clipped(f"- {message_words(news, reader).title}", LINE)
    if len(newest) > MOST:
        yield f"And {len(newest) - MOST} more, on the page."


def _short(head: str, what: str, newest: Sequence[MessageNews], by: str, worst: str) -> str:
    services = list(dict.fromkeys(news.service for news in newest if news.service))
    where = f" in {some([one_line(service, 24) for service in services], 2)}" if services else ""
    tries = (f"{head}{what}{where}{by}. {worst}.", f"{head}{what}{by}. {worst}.", f"{head}{what}{by}.")
    return one_line(next((text for text in tries if len(text) <= SHORT), tries[-1]), SHORT)
