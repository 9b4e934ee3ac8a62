"""Kinds of channels: what each needs to be told, and what of that is a secret. How each sends is `fleet.notify`'s."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
