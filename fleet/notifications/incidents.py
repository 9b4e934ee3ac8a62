"""State that Drydock mirrors at receivers: incidents at a pager, and silences during maintenance.

A pager alerts users once for each incident key. After an acknowledgement, further calls with this key do not alert;
after a resolution, they open a new incident. To alert users again, Drydock therefore uses a second key, which is
resolved together with the first.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import reduce

from fleet.domain.event_types import TYPES, Severity
from fleet.domain.reasons import Reason, Refused

# Up to this many subjects that alert at once get a key each; more share one storm.
FEW = 5
# From the mildest to the worst.
SEVERITIES = tuple(reversed(Severity))


class PagerAction(StrEnum):
    """Actions of a call to the pager, with PagerDuty's names."""

    TRIGGER = "trigger"
    ACKNOWLEDGE = "acknowledge"
    RESOLVE = "resolve"


class PagerState(StrEnum):
    """Last known state of an incident at the pager."""

    TRIGGERED = "triggered"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Badness:
    """How bad an event is: severity, type and NotBefore, for comparison."""

    severity: str = Severity.INFO.value
    event_type: str = ""
    not_before: datetime | None = None

    def worse_than(self, other: "Badness") -> bool:
        """Return whether this is so much worse than `other` that a user who knows about `other` must be alerted
        again.
        """
        earlier = self.not_before is not None and (other.not_before is None or self.not_before < other.not_before)
        # A NotBefore where there was none is worse; a NotBefore that was removed is not.
        return _rank(self.severity) > _rank(other.severity) or self._type > other._type or earlier

    @property
    def _type(self) -> int:
        # An unknown type ranks like a restart.
        return TYPES.index(self.event_type if self.event_type in TYPES else "Reboot")

    def with_worst_of(self, other: "Badness") -> "Badness":
        """Return a combination with the worse value of each property."""
        times = [one.not_before for one in (self, other) if one.not_before is not None]
        return Badness(
            max(self.severity, other.severity, key=_rank),
            max(self, other, key=lambda one: one._type).event_type,
            min(times, default=None),
        )


def _rank(severity: str) -> int:
    return SEVERITIES.index(Severity(severity)) if severity in SEVERITIES else 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """Current state of one subject for the pager.

    `called` is the name for incident keys, `at` the time of the state. `opens`: it opens an incident. `wakes`: it also
    alerts if an incident is already open. `endless`: there will be no message about the end. `over`: the subject has
    ended. `handled_at`: since when it is claimed or decided.
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
    """One incident at the pager. `unhandled` are those of its `subjects` that no user handles. `account` identifies the
    routing key that opened the incident and must also resolve it.
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
    """One call to the pager. `key` is the state of the incident after the call. It is stored until it has no more
    subjects.
    """

    action: PagerAction
    key: PagerKey
    about: tuple[Alarm, ...]
    owner: str


@dataclass(slots=True)
class Incidents:
    """Incidents of one channel by owner: a subject, or `storm` for all storms.

    `reported` are the states that the pager reports, if it is configured to do so (`has_webhooks`). Otherwise
    acknowledgements are unknown, and a worse event always opens a new incident. New incidents are opened with
    `account`.
    """

    keys: dict[str, list[PagerKey]]
    storm: str
    account: str
    has_webhooks: bool
    reported: Mapping[str, PagerState] = field(default_factory=dict)
    # When a subject last alerted, by subject: an older claim does not cover it.
    _alarmed_at: dict[str, datetime] = field(default_factory=dict)

    def calls(self, alarms: Sequence[Alarm], *, prefix: str, delivery: str, now: datetime) -> Iterator[PagerCall]:
        """Yield the calls to make. The caller must call `take` for each accepted call before it requests the next one.

        Acknowledgements and resolutions come last. The names of new keys begin with `prefix`, which is unique to this
        installation, and are the same at every attempt of a delivery.
        """
        loud = []
        for alarm in alarms:
            keys = self._keys_of(alarm.subject)
            # Users who know about these incidents are alerted again only about what is worse.
            is_news = not keys or alarm.wakes or alarm.bad.worse_than(_together([key.bad for _, key in keys]))
            if alarm.over or not (alarm.opens and is_news):
                continue
            ringing = [(owner, key) for owner, key in keys if self._state(key) is PagerState.TRIGGERED]
            if ringing and self.has_webhooks:
                # It alerts already, and shows the current state.
                owner, key = ringing[-1]
                yield self._trigger(owner, key.name, [alarm], joined=key)
            else:
                loud.append(alarm)
        if len(loud) > FEW:
            yield self._storm(loud, f"{prefix}-storm-{delivery}", now=now)
        else:
            for alarm in loud:
                count = len(self.keys.get(alarm.subject, ())) + 1
                name = f"{prefix}-{alarm.called}" + (f"-{count}" if count > 1 else "")
                yield self._trigger(alarm.subject, name, [alarm])
        yield from self._settle({alarm.subject: alarm for alarm in alarms})

    def take(self, call: PagerCall) -> None:
        """Record that the pager accepted a call."""
        others = [key for key in self.keys.get(call.owner, ()) if key.name != call.key.name]
        self.keys[call.owner] = [*others, call.key] if call.key.subjects else others

    def _keys_of(self, subject: str) -> list[tuple[str, PagerKey]]:
        both = ((owner, key) for owner in (self.storm, subject) for key in self.keys.get(owner, ()))
        return [(owner, key) for owner, key in both if subject in key.subjects]

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
        return PagerCall(PagerAction.TRIGGER, key, tuple(alarms), owner)

    def _storm(self, loud: Sequence[Alarm], name: str, *, now: datetime) -> PagerCall:
        for key in self.keys.get(self.storm, ()):
            # Without reported acknowledgements, a storm takes further subjects for a limited time.
            takes_more = self.has_webhooks or now - key.at < timedelta(minutes=15)
            if takes_more and self._state(key) is PagerState.TRIGGERED:
                return self._trigger(self.storm, key.name, loud, joined=key)
        return self._trigger(self.storm, name, loud)

    def _settle(self, alarms: Mapping[str, Alarm]) -> Iterator[PagerCall]:
        """Yield the acknowledgements of handled incidents and the resolutions of ended ones."""
        for owner in (*alarms, self.storm):
            for key in list(self.keys.get(owner, ())):
                about = tuple(alarms[subject] for subject in key.subjects if subject in alarms)
                over = {alarm.subject for alarm in about if alarm.over}
                handled = {alarm.subject for alarm in about if self._is_handled(alarm, since=key.at)}
                remaining = tuple(subject for subject in key.subjects if subject not in over)
                open_ones = {*remaining} - handled
                unhandled = tuple(subject for subject in key.unhandled if subject in open_ones)
                changed = replace(key, subjects=remaining, unhandled=unhandled)
                if not remaining:
                    yield PagerCall(PagerAction.RESOLVE, changed, about, owner)
                elif not unhandled and key.unhandled and key.state is PagerState.TRIGGERED:
                    acknowledged = replace(changed, state=PagerState.ACKNOWLEDGED)
                    yield PagerCall(PagerAction.ACKNOWLEDGE, acknowledged, about, owner)
                elif changed != key:
                    # No call to the pager is necessary.
                    self.take(PagerCall(PagerAction.ACKNOWLEDGE, changed, about, owner))

    def _is_handled(self, alarm: Alarm, *, since: datetime) -> bool:
        alarmed_at = max(since, self._alarmed_at.get(alarm.subject, since))
        return alarm.handled_at is not None and alarm.handled_at >= alarmed_at


def _together(several: Sequence[Badness]) -> Badness:
    return reduce(Badness.with_worst_of, several)


# Maintenance silences: they match alerts of other systems about exactly the machines or the cache under maintenance.

# Without renewal a silence ends after this time; it is renewed after half of it.
LEASE = timedelta(minutes=10)
# A silence ends this long after the start at the latest, even if the end of the event was not seen.
LONGEST = timedelta(hours=2)
LONGEST_LINE = 500
# Labels of Drydock's own alerts: a silence by one of these could silence them.
OWN_LABELS = (
    "alertname", "availability_set", "cache_host", "drill", "drydock", "event_id", "event_type", "resource_group",
    "service", "severity", "shard",
)  # fmt: skip

_PLACE = re.compile(r"\{(name|host|address|cache)\}")
_MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
# Names or addresses that are similar to `web.4`; no line for that one may match them.
_SIMILAR_NAMES = ("web.40", "web.4a", "web.4-0", "web.4_0", "1web.4", "aweb.4", "a-web.4", "a_web.4")


@dataclass(frozen=True, slots=True)
class LabelMatcher:
    """Condition on one label of an alert, in the syntax of Alertmanager."""

    name: str
    value: str
    regex: bool = False
    equal: bool = True

    def __str__(self) -> str:
        sign = {(True, False): "=", (False, False): "!=", (True, True): "=~", (False, True): "!~"}
        quoted = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}{sign[self.equal, self.regex]}"{quoted}"'


# A machine or cache to silence: the values for each placeholder of a silence line (name, host, address, cache).
Muted = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class SilenceLine:
    """A configured line that describes silences. `place` is the placeholder in its one variable matcher; `before` and
    `after` are the text around it.
    """

    text: str
    services: str
    label: str
    place: str
    before: str
    after: str
    fixed: tuple[LabelMatcher, ...] = ()

    def holds_for(self, service: str) -> bool:
        """Return whether the line applies to this service. Case is ignored."""
        pattern = re.escape(self.services).replace(r"\*", ".*").replace(r"\?", ".")
        return re.fullmatch(pattern, service, re.IGNORECASE | re.DOTALL) is not None

    def matchers(self, muted: Iterable[Muted]) -> tuple[LabelMatcher, ...]:
        """Return the matchers for exactly these machines or caches. Empty if none of them has a value for the
        placeholder.
        """
        values = sorted({value for one in muted for value in one.get(self.place, ()) if value})
        if not values:
            return ()
        either = "|".join(map(re.escape, values))
        return (LabelMatcher(self.label, f"{self.before}(?:{either}){self.after}", regex=True), *self.fixed)


def read_lines(texts: Sequence[str]) -> tuple[SilenceLine, ...]:
    """Parse the silence lines of a channel. Raises Refused `validation` with the invalid line."""
    return tuple(read_line(text.strip()) for text in texts if text.strip())


def read_line(text: str) -> SilenceLine:
    """Parse one silence line. Raises Refused `validation`."""
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
            around = (before, after) if matcher.regex else (re.escape(before), re.escape(after))
            variable = SilenceLine(text, services.strip(), matcher.name, place, *around)
    if variable is None:
        # Without a placeholder it would silence the alerts of all machines.
        raise Refused("validation", Reason("silence-no-place", line=text))
    # It has to match a sample machine and no machine with a similar name.
    (matcher,) = variable.matchers([{variable.place: ("web.4",)}])
    try:
        pattern = re.compile(matcher.value)
    except re.error:
        raise Refused("validation", Reason("silence-no-expression", line=text)) from None
    if any(pattern.fullmatch(other) for other in _SIMILAR_NAMES):
        raise Refused("validation", Reason("silence-hits-others", line=text))
    return replace(variable, fixed=tuple(fixed))


def still_silenced(
    *, started_at: datetime | None, now: datetime, silenced_until: datetime | None = None
) -> datetime | None:
    """Return the time until which an event that started at `started_at` is silenced now. None if it has not started, or
    if the maximum duration of silences has passed, unless a user silenced it until `silenced_until`.
    """
    ends = (started_at and started_at + LONGEST, silenced_until)
    last = max(filter(None, ends), default=now)
    return min(now + LEASE, last) if last > now else None


def _matchers(rest: str, line: str) -> Iterable[LabelMatcher]:
    at = 0
    while at < len(rest):
        match = _MATCHER.match(rest, at)
        if match is None or (match[4] == "," and match.end() == len(rest)):
            raise Refused("validation", Reason("silence-unreadable", line=line))
        sign = match[2]
        # As Alertmanager reads it: a backslash before any other character is literal.
        value = re.sub(r'\\([\\"n])', lambda escape: "\n" if escape[1] == "n" else escape[1], match[3])
        yield LabelMatcher(match[1], value, regex=sign.endswith("~"), equal=not sign.startswith("!"))
        at = match.end()
