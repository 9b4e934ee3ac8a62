"""State mirrored at receivers: incidents of a pager and maintenance silences.

A pager wakes once a key: while somebody has acknowledged it, nothing more is heard of it, and what comes after its
resolution begins a new one. So whatever has to wake again needs another key, which ends with the first.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import reduce

from fleet.domain.event_types import TYPES, Severity
from fleet.domain.reasons import Reason, Refused

# So many that have to wake at once have a key each; more are one storm.
FEW = 5
# Where nobody hears of acknowledgements, a storm takes in what else comes for so long.
YOUNG = timedelta(minutes=15)
# From the mildest on.
SEVERITIES = tuple(reversed(Severity))
# A type that nobody knows is taken for a restart.
UNKNOWN_RANK = TYPES.index("Reboot")


class PagerAction(StrEnum):
    """The values are PagerDuty's."""

    TRIGGER = "trigger"
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"


class PagerState(StrEnum):
    """How a key stands at the pager, as far as we know."""

    TRIGGERED = "triggered"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Badness:
    """How bad it is."""

    severity: str = Severity.INFO.value
    event_type: str = ""
    not_before: datetime | None = None

    def worse_than(self, other: "Badness") -> bool:
        """Whether somebody who knew the other has to be woken for this one."""
        earlier = self.not_before is not None and (other.not_before is None or self.not_before < other.not_before)
        # Where nobody had stated a time, one that is stated now is news; one that is no longer stated is none.
        return _rank(self.severity) > _rank(other.severity) or self._type > other._type or earlier

    @property
    def _type(self) -> int:
        return TYPES.index(self.event_type) if self.event_type in TYPES else UNKNOWN_RANK

    def with_worst_of(self, other: "Badness") -> "Badness":
        """What both together amount to."""
        times = [one.not_before for one in (self, other) if one.not_before is not None]
        return Badness(
            max(self.severity, other.severity, key=_rank),
            max(self, other, key=lambda one: one._type).event_type,
            min(times, default=None),
        )


def _rank(severity: str) -> int:
    return SEVERITIES.index(Severity(severity)) if severity in list(Severity) else 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """Current state of one subject, for the pager.

    `called` is its name in keys, `at` when it happened. `opens`: it opens an incident; `wakes`: also where one is open.
    `endless`: its end is not reported. `over`: it has ended. `handled_at`: since when it is claimed or decided.
    """

    subject: str
    called: str
    at: datetime
    bad: Badness = Badness()
    opens: bool = False
    wakes: bool = False
    endless: bool = False
    over: bool = False
    handled_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PagerKey:
    """One incident. `unhandled` are those of its `subjects` that no user handles; `account` is what it was opened
    with, and has to be resolved with.
    """

    name: str
    at: datetime
    bad: Badness
    subjects: tuple[str, ...]
    unhandled: tuple[str, ...]
    account: str = ""
    state: PagerState = PagerState.TRIGGERED


@dataclass(frozen=True, slots=True)
class PagerCall:
    """One call to the pager, with an incident's `account` and name. `key` is the incident after the call; None where
    nothing is to be kept.
    """

    action: PagerAction
    name: str
    account: str
    about: tuple[Alarm, ...]
    owner: str
    key: PagerKey | None


@dataclass(frozen=True, slots=True)
class KeyNames:
    """How keys are called: the same at every attempt of a post, and by no other installation."""

    installation: str
    post: str

    def of_subject(self, called: str, count: int) -> str:
        return f"drydock-{self.installation}-{called}" + (f"-{count}" if count > 1 else "")

    def of_storm(self) -> str:
        return f"drydock-{self.installation}-storm-{self.post}"


@dataclass(slots=True)
class Incidents:
    """The keys of one channel, by owner: a subject, or `storm` for all storms.

    `reported` are states that the pager reports; `has_webhooks`: it does so. Otherwise a worse event always takes a new
    key, since acknowledgements are not known. New keys are opened with `account`.
    """

    keys: dict[str, list[PagerKey]]
    storm: str
    account: str
    has_webhooks: bool
    reported: Mapping[str, PagerState] = field(default_factory=dict)
    # When a subject rings, by subject: an older claim does not cover it.
    _alarmed_at: dict[str, datetime] = field(default_factory=dict)

    def calls(self, alarms: Sequence[Alarm], *, names: KeyNames, now: datetime) -> Iterator[PagerCall]:
        """Yield the calls to make; `take` each once the pager has it, before the next is requested.

        Acknowledgements and resolutions come last.
        """
        loud = []
        for alarm in alarms:
            keys = self._keys_of(alarm.subject)
            if alarm.over or not (alarm.opens and self._is_news(alarm, [key for _, key in keys])):
                continue
            ringing = [(owner, key) for owner, key in keys if self._state(key) is PagerState.TRIGGERED]
            if ringing and self.has_webhooks:
                # It rings already, and shows the current state.
                owner, key = ringing[-1]
                yield self._trigger(owner, key.name, [alarm], joined=key)
            else:
                loud.append(alarm)
        if len(loud) > FEW:
            yield self._storm(loud, names=names, now=now)
        else:
            for alarm in loud:
                count = len(self.keys.get(alarm.subject, ())) + 1
                yield self._trigger(alarm.subject, names.of_subject(alarm.called, count), [alarm])
        yield from self._settle({alarm.subject: alarm for alarm in alarms})

    def take(self, call: PagerCall) -> None:
        """Note that the pager has taken a call."""
        rest = [key for key in self.keys.get(call.owner, ()) if key.name != call.name]
        self.keys[call.owner] = rest if call.key is None else [*rest, call.key]

    def _keys_of(self, subject: str) -> list[tuple[str, PagerKey]]:
        return [
            (owner, key)
            for owner in (self.storm, subject)
            for key in self.keys.get(owner, ())
            if subject in key.subjects
        ]

    def _is_news(self, alarm: Alarm, keys: Sequence[PagerKey]) -> bool:
        """Return whether a user who knows these keys has to be woken again."""
        return not keys or alarm.wakes or alarm.bad.worse_than(_together([key.bad for key in keys]))

    def _state(self, key: PagerKey) -> PagerState:
        return self.reported.get(key.name, key.state) if key.state is PagerState.TRIGGERED else key.state

    def _trigger(self, owner: str, name: str, alarms: Sequence[Alarm], joined: PagerKey | None = None) -> PagerCall:
        self._alarmed_at.update({alarm.subject: alarm.at for alarm in alarms})
        bad = _together([alarm.bad for alarm in alarms])
        subjects = tuple(alarm.subject for alarm in alarms if not alarm.endless)
        key = PagerKey(name, min(alarm.at for alarm in alarms), bad, subjects, subjects, self.account)
        if joined is not None:
            key = replace(
                joined,
                bad=joined.bad.with_worst_of(bad),
                subjects=tuple(dict.fromkeys((*joined.subjects, *subjects))),
                unhandled=tuple(dict.fromkeys((*joined.unhandled, *subjects))),
            )
        return PagerCall(PagerAction.TRIGGER, name, key.account, tuple(alarms), owner, key if key.subjects else None)

    def _storm(self, loud: Sequence[Alarm], *, names: KeyNames, now: datetime) -> PagerCall:
        for key in self.keys.get(self.storm, ()):
            if self._state(key) is PagerState.TRIGGERED and (self.has_webhooks or now - key.at < YOUNG):
                return self._trigger(self.storm, key.name, loud, joined=key)
        return self._trigger(self.storm, names.of_storm(), loud)

    def _settle(self, alarms: Mapping[str, Alarm]) -> Iterator[PagerCall]:
        """Yield acknowledgements of what is handled, and resolutions of what is over."""
        for owner in (*alarms, self.storm):
            for key in list(self.keys.get(owner, ())):
                about = tuple(alarms[subject] for subject in key.subjects if subject in alarms)
                over = {alarm.subject for alarm in about if alarm.over}
                handled = {alarm.subject for alarm in about if self._is_handled(alarm, since=key.at)}
                remaining = tuple(subject for subject in key.subjects if subject not in over)
                unhandled = tuple(
                    subject for subject in key.unhandled if subject in remaining and subject not in handled
                )
                then = replace(key, subjects=remaining, unhandled=unhandled)
                if not remaining:
                    yield PagerCall(PagerAction.RESOLVE, key.name, key.account, about, owner, None)
                elif not unhandled and key.unhandled and key.state is PagerState.TRIGGERED:
                    then = replace(then, state=PagerState.ACKNOWLEDGED)
                    yield PagerCall(PagerAction.ACKNOWLEDGE, key.name, key.account, about, owner, then)
                elif then != key:
                    # The pager need not know.
                    self.take(PagerCall(PagerAction.ACKNOWLEDGE, key.name, key.account, about, owner, then))

    def _is_handled(self, alarm: Alarm, *, since: datetime) -> bool:
        return alarm.handled_at is not None and alarm.handled_at >= max(
            since, self._alarmed_at.get(alarm.subject, since)
        )


def _together(several: Sequence[Badness]) -> Badness:
    return reduce(Badness.with_worst_of, several)


# Maintenance silences: which alerts of others are about the very machines, or the cache, that are under maintenance.

# A silence ends so soon after Drydock has fallen silent, and is renewed when half of that is over.
LEASE = timedelta(minutes=10)
# However long nobody sees the end: so long after the start nothing is silenced any more.
LONGEST = timedelta(hours=2)
MOST_LINES = 50
LONGEST_LINE = 500
# Labels of our own alerts: a silence that names the machine or cache by one of these would mute them.
OWN_LABELS = frozenset(
    {
        "alertname", "availability_set", "cache_host", "drill", "drydock", "event_id", "event_type", "resource_group",
        "service", "severity", "shard",
    }
)  # fmt: skip

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
    variable: SilenceLine | None = None
    for matcher in _matchers(rest, text):
        places = _PLACE.findall(matcher.value)
        if not places:
            fixed.append(matcher)
        elif variable is not None or len(places) > 1:
            raise Refused("validation", Reason("silence-two-places", line=text))
        elif not matcher.equal:
            raise Refused("validation", Reason("silence-negative", line=text))
        elif matcher.name in OWN_LABELS:
            raise Refused("validation", Reason("silence-own-label", line=text, label=matcher.name))
        else:
            before, place, after = _PLACE.split(matcher.value)
            around = (before, after) if matcher.regex else (_literal(before), _literal(after))
            variable = SilenceLine(text, services.strip(), matcher.name, place, *around)
    if variable is None:
        # Without a machine or a cache it would silence everybody's.
        raise Refused("validation", Reason("silence-no-place", line=text))
    _check(variable)
    return replace(variable, fixed=tuple(fixed))


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
        value = _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], match[3])
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
