"""Maintenance silences: which alerts of others are about the very machines, or the cache, that are under maintenance.

A channel says it line by line: the services for which it holds, as a pattern with * and ?, then what an alert's labels
look like. One label names the machine or the cache; the others are fixed:

    shop-*: job="node", instance=~"{address}(:[0-9]+)?"
    *: redis_addr=~"(rediss://)?{cache}:[0-9]+"

`{name}` is the machine's name at Azure, `{host}` its host name, `{address}` each of its private addresses, `{cache}`
the cache's host name. They are escaped, and expressions count from end to end, as Prometheus reads them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.domain.reason import Reason
from fleet.domain.refusal import Refused

# A silence ends so soon after Drydock has fallen silent, and is renewed when half of that is over.
LEASE = timedelta(minutes=10)
# However long nobody sees the end: so long after the start nothing is silenced any more.
LONGEST = timedelta(hours=2)
MOST_LINES = 50
LONGEST_LINE = 500
# What alerts of our own are told apart by: a silence that names the machine or cache by one of these would mute them.
OWN_LABELS = frozenset(
    {
        "alertname", "availability_set", "cache_host", "drill", "drydock", "event_id", "event_type", "resource_group",
        "service", "severity", "shard",
    }
)  # fmt: skip

_MACHINE = ("name", "host", "address")
_PLACE = re.compile(r"\{(name|host|address|cache)\}")
_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
# As Alertmanager reads it: a backslash before anything else stands for itself.
_ESCAPED = re.compile(r'\\([\\"n])')
# A machine, and others whose names or addresses begin or end like its own: no line may mean them, too.
_SAMPLE = "web.4"
_ALIKE = ("web.40", "web.4a", "web.4-0", "web.4_0", "1web.4", "aweb.4", "a-web.4", "a_web.4")


@dataclass(frozen=True, slots=True)
class LabelMatcher:
    """What one label of an alert has to be, as Alertmanager takes it."""

    name: str
    value: str
    regex: bool = False
    equal: bool = True

    def __str__(self) -> str:
        sign = {(True, False): "=", (False, False): "!=", (True, True): "=~", (False, True): "!~"}
        return f'{self.name}{sign[self.equal, self.regex]}"{_quoted(self.value)}"'


@dataclass(frozen=True, slots=True)
class Muted:
    """A machine, or a cache, of which alerts may be silenced: the values of each place in a line."""

    name: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    cache: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SilenceLine:
    """One line. `place` is what its one variable matcher names, `before` and `after` what stands around it there."""

    text: str
    services: str
    label: str
    place: str
    before: str
    after: str
    fixed: tuple[LabelMatcher, ...] = ()

    @property
    def for_caches(self) -> bool:
        return self.place == "cache"

    def holds_for(self, service: str) -> bool:
        """Whether it was asked for for this service; without case."""
        pattern = re.escape(self.services).replace(r"\*", ".*").replace(r"\?", ".")
        return re.fullmatch(pattern, service, re.IGNORECASE | re.DOTALL) is not None

    def matchers(self, muted: Iterable[Muted]) -> tuple[LabelMatcher, ...]:
        """For exactly these; nothing where none of them has such a name or address."""
        values = sorted({value for one in muted for value in getattr(one, self.place) if value})
        if not values:
            return ()
        either = "|".join(map(_literal, values))
        return (LabelMatcher(self.label, f"{self.before}(?:{either}){self.after}", regex=True), *self.fixed)


def read_lines(texts: Sequence[str]) -> tuple[SilenceLine, ...]:
    """The lines of a channel. Raises Refused `validation`, with the line that will not do."""
    lines = [text.strip() for text in texts if text.strip()]
    if len(lines) > MOST_LINES:
        raise Refused("validation", Reason("silence-too-many", most=MOST_LINES))
    return tuple(map(read_line, lines))


def read_line(text: str) -> SilenceLine:
    """Raises Refused `validation`."""
    services, colon, rest = text.partition(":")
    if not colon or not services.strip() or len(text) > LONGEST_LINE:
        raise Refused("validation", Reason("silence-unreadable", line=text[:LONGEST_LINE]))
    fixed: list[LabelMatcher] = []
    found: SilenceLine | None = None
    for matcher in _matchers(rest, text):
        places = _PLACE.findall(matcher.value)
        if not places:
            fixed.append(matcher)
        elif found is not None or len(places) > 1:
            raise Refused("validation", Reason("silence-two-places", line=text))
        elif not matcher.equal:
            raise Refused("validation", Reason("silence-negative", line=text))
        elif matcher.name in OWN_LABELS:
            raise Refused("validation", Reason("silence-own-label", line=text, label=matcher.name))
        else:
            before, place, after = _PLACE.split(matcher.value)
            around = (before, after) if matcher.regex else (_literal(before), _literal(after))
            found = SilenceLine(text, services.strip(), matcher.name, place, *around)
    if found is None:
        # Without a machine or a cache it would silence everybody's.
        raise Refused("validation", Reason("silence-no-place", line=text))
    _check(found)
    return SilenceLine(text, found.services, found.label, found.place, found.before, found.after, tuple(fixed))


def still_silenced(*, started_at: datetime | None, now: datetime) -> datetime | None:
    """Until when something that started then may be silenced from now on; None where it may not any more."""
    if started_at is None or now >= started_at + LONGEST:
        return None
    return min(now + LEASE, started_at + LONGEST)


def _matchers(rest: str, line: str) -> Iterable[LabelMatcher]:
    at = 0
    while at < len(rest):
        match = _MATCHER.match(rest, at)
        if match is None or (match[4] == "," and match.end() == len(rest)):
            raise Refused("validation", Reason("silence-unreadable", line=line))
        sign = match[2]
        value = _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], match[3])
        yield LabelMatcher(match[1], value, regex=sign.endswith("~"), equal=not sign.startswith("!"))
        at = match.end()


def _check(line: SilenceLine) -> None:
    """That it means this machine, and none whose name begins or ends alike."""
    (matcher,) = line.matchers([Muted(**{line.place: (_SAMPLE,)})])
    try:
        pattern = re.compile(matcher.value)
    except re.error:
        raise Refused("validation", Reason("silence-no-expression", line=line.text)) from None
    if any(pattern.fullmatch(other) for other in _ALIKE):
        raise Refused("validation", Reason("silence-hits-others", line=line.text))


def _literal(text: str) -> str:
    """As an expression that means nothing but this text, for Prometheus and for us."""
    return re.escape(text)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
