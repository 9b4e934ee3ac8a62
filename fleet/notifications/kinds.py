"""Kinds of channels with their settings and secrets; validation of channels and routes."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from fleet.domain.event_types import Severity
from fleet.domain.policy.hours import zone_of
from fleet.domain.policy.rules import EVENT_CHOICES, MAX_NAME, Fault, choice_faults, hour_faults, place_faults
from fleet.domain.reasons import Reason, Refused
from fleet.domain.texts import tidy
from fleet.notifications.incidents import read_lines
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.routing import StandingRoute

Input = Literal["text", "url", "email", "number", "switch", "lines", "zone"]


@dataclass(frozen=True, slots=True)
class ChannelField:
    """One setting of a channel. `secret`: kept encrypted, never shown again. `made`: made by Drydock, shown once."""

    name: str
    input: Input = "text"
    secret: bool = False
    required: bool = False
    made: bool = False


@dataclass(frozen=True, slots=True)
class ChannelKind:
    """`messages`: it takes posts; False for one that mirrors what is open. `personal`: a person may have it alone.
    `follows`: it keeps a thing for each subject, an incident or a card, and hears of it to its end.
    """

    name: str
    fields: tuple[ChannelField, ...]
    messages: bool = True
    personal: bool = False
    follows: bool = False

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields if field.secret)


# Every channel may name a zone in which times are written beside UTC.
ZONE = ChannelField("time_zone", "zone")

KINDS: Mapping[str, ChannelKind] = {
    kind.name: kind
    for kind in (
        ChannelKind(
            "webhook",
            (
                ChannelField("url", "url", required=True),
                ChannelField("secret", secret=True, made=True),
                ChannelField("earlier_secret", secret=True, made=True),
                ZONE,
            ),
        ),
        ChannelKind("apprise", (ChannelField("url", "text", secret=True, required=True), ZONE), personal=True),
        ChannelKind("mail", (ChannelField("recipients", "lines", required=True), ZONE), personal=True),
        ChannelKind(
            "pagerduty",
            (
                ChannelField("routing_key", secret=True, required=True),
                # Of the key before it: what was opened with that is ended with that.
                ChannelField("earlier_routing_key", secret=True),
                # The account is in PagerDuty's region EU.
                ChannelField("eu", "switch"),
                ChannelField("signing_secret", secret=True),
                ZONE,
            ),
            follows=True,
        ),
        ChannelKind(
            "slack",
            (
                ChannelField("token", secret=True, required=True),
                ChannelField("channel", required=True),
                ChannelField("signing_secret", secret=True),
                ZONE,
            ),
            follows=True,
        ),
        ChannelKind(
            "alertmanager",
            (
                ChannelField("url", "url", required=True),
                ChannelField("user"),
                ChannelField("password", secret=True),
                ChannelField("silences", "lines"),
            ),
            messages=False,
        ),
        ChannelKind(
            "webpush",
            (
                ChannelField("endpoint", "url", secret=True, required=True),
                ChannelField("p256dh", secret=True, required=True),
                ChannelField("auth", secret=True, required=True),
            ),
            personal=True,
        ),
    )
}
# Those that mirror what is open instead of taking posts.
MIRRORS = frozenset(kind.name for kind in KINDS.values() if not kind.messages)
# Those that keep a thing for each subject.
FOLLOWING = frozenset(kind.name for kind in KINDS.values() if kind.follows)


# What is wrong with a channel or a route that somebody wants. Pure: each fault names its field and a reason.

# How many there may be: of the installation, and of one person.
MOST_CHANNELS, MOST_ROUTES = 100, 200
MOST_OWN_CHANNELS, MOST_OWN_ROUTES = 5, 10
MOST_LINES, MOST_OWN_RECIPIENTS = 50, 3
MAX_VALUE = 2000
# A step of escalation is of the event that it tells of: no notice is longer than a few days.
MOST_STEP_SECONDS = 7 * 86400

ADDRESS = re.compile(r"[^\s@<>,;:\"()\\\[\]]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
# What a receiver's own documentation says of these.
SHAPES: Mapping[tuple[str, str], re.Pattern[str]] = {
    ("pagerduty", "routing_key"): re.compile(r"[0-9A-Za-z]{32}"),
    ("slack", "token"): re.compile(r"xox[a-z]-[0-9A-Za-z-]+"),
    ("slack", "channel"): re.compile(r"#?[\w.-]{1,80}"),
    ("apprise", "url"): re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+"),
}


def fields_of(kind: str) -> dict[str, ChannelField]:
    """What somebody may say of a channel of this kind, by name; what Drydock makes itself is not among it."""
    return {field.name: field for field in KINDS[kind].fields if not field.made}


def tidied_setting(field: ChannelField, value: Any) -> Any:
    """A value as it is kept: texts tidy, lines as a list without what is empty or there already; None for nothing."""
    if field.input == "lines":
        lines = value.splitlines() if isinstance(value, str) else value or ()
        return list(dict.fromkeys(filter(None, map(tidy, lines)))) or None
    if isinstance(value, str):
        return tidy(value) or None
    return value


def channel_faults(
    kind: str, name: str, values: Mapping[str, Any], *, personal: bool, ours: Collection[str] = ()
) -> list[Fault]:
    """What is wrong with a channel: `values` are its settings and secrets, tidy. `ours` are hosts and ports at
    which Drydock itself is reached.
    """
    found = KINDS.get(kind)
    if found is None:
        return [("kind", Reason("channel-kind-unknown", kind=kind, known=list(KINDS)))]
    if personal and not found.personal:
        known = [one.name for one in KINDS.values() if one.personal]
        return [("kind", Reason("channel-kind-not-personal", known=known))]
    return [*_name_faults(name), *_value_faults(found, values, personal, ours), *_silence_faults(values)]


def _silence_faults(values: Mapping[str, Any]) -> Iterator[Fault]:
    said = values.get("silences")
    try:
        read_lines([line for line in said if isinstance(line, str)] if isinstance(said, list) else [])
    except Refused as error:
        yield "silences", error.reason if isinstance(error.reason, Reason) else Reason("silence-unreadable", line="")


def _name_faults(name: str) -> Iterator[Fault]:
    if not name:
        yield "name", Reason("route-name-missing")
    if len(name) > MAX_NAME:
        yield "name", Reason("text-too-long", what="name", most=MAX_NAME)


def _value_faults(
    kind: ChannelKind, values: Mapping[str, Any], personal: bool, ours: Collection[str]
) -> Iterator[Fault]:
    for field in kind.fields:
        value = values.get(field.name)
        if field.made:
            continue
        if value is None:
            if field.required:
                yield field.name, Reason("channel-field-missing", field=field.name, kind=kind.name)
            continue
        wrong = next(_faults_of(kind.name, field, value, ours), None)
        if wrong is not None:
            yield field.name, wrong
    recipients = values.get("recipients")
    if personal and isinstance(recipients, list) and len(recipients) > MOST_OWN_RECIPIENTS:
        yield "recipients", Reason("too-many-lines", most=MOST_OWN_RECIPIENTS)


def _faults_of(kind: str, field: ChannelField, value: Any, ours: Collection[str]) -> Iterator[Reason]:
    texts = value if field.input == "lines" else [value]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        yield Reason("channel-value-no-text")
        return
    if len(texts) > MOST_LINES:
        yield Reason("too-many-lines", most=MOST_LINES)
    for text in texts:
        if len(text) > MAX_VALUE:
            yield Reason("text-too-long", what=field.name, most=MAX_VALUE)
        elif not text.isprintable():
            yield Reason("channel-value-unprintable")
        shape = SHAPES.get((kind, field.name))
        if shape is not None and not shape.fullmatch(text):
            yield Reason("channel-value-shape", kind=kind, field=field.name)
        if field.name == "recipients" and not ADDRESS.fullmatch(text):
            yield Reason("no-mail-address", text=text)
        if field.input == "url":
            yield from _url_faults(text, ours)
        if field.input == "zone":
            yield from _zone_faults(text)


def _zone_faults(name: str) -> Iterator[Reason]:
    try:
        zone_of(name)
    except ValueError:
        yield Reason("time-zone-unknown", name=name)


def _url_faults(text: str, ours: Collection[str]) -> Iterator[Reason]:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        yield Reason("url-unreadable")
        return
    if url.scheme.lower() not in ("http", "https"):
        yield Reason("url-scheme", scheme=url.scheme)
    elif not url.hostname or " " in text:
        yield Reason("url-without-host")
    elif url.username or url.password:
        yield Reason("url-with-password")
    elif url.fragment:
        yield Reason("url-with-fragment")
    elif port == 0:
        yield Reason("url-port")
    elif reaches(text) in {name.lower() for name in ours}:
        yield Reason("url-is-ours")


def reaches(address: str) -> str:
    """Whom an address reaches: host and port, lower case."""
    url = urlsplit(address)
    return f"{url.hostname}:{url.port or (443 if url.scheme.lower() == 'https' else 80)}"


def route_faults(route: StandingRoute) -> list[Fault]:
    """What is wrong with a route; empty when nothing is."""
    return [*_name_faults(route.name), *trying_faults_of(route)]


def trying_faults_of(route: StandingRoute) -> list[Fault]:
    """The same for a route that is only tried, which may be before it has a name."""
    return [
        *choice_faults(_choices(route)),
        *place_faults(route.set_pattern, route.service, route.resource_group),
        *hour_faults(route.weekdays, route.time_zone),
        *_step_faults(route),
    ]


def _choices(route: StandingRoute) -> Iterable[tuple[str, Sequence[str], Sequence[str]]]:
    yield "moments", route.moments, tuple(moment.value for moment in NotificationType if not moment.declared.personal)
    yield "severities", route.severities, tuple(severity.value for severity in Severity)
    for field, known in EVENT_CHOICES.items():
        yield field, getattr(route, field), known


def _step_faults(route: StandingRoute) -> Iterator[Fault]:
    steps = {name: getattr(route, name) for name in ("unclaimed_after_seconds", "before_decide_by_seconds")}
    for name, seconds in steps.items():
        if seconds is not None and not 0 <= seconds <= MOST_STEP_SECONDS:
            yield name, Reason("step-out-of-range", most=MOST_STEP_SECONDS)
    if None not in steps.values():
        yield "before_decide_by_seconds", Reason("two-steps")
    if route.moments and any(seconds is not None for seconds in steps.values()):
        yield "moments", Reason("step-with-moments")
