"""Words of kinds of channels: what each is good for, and what its fields want."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FieldWords:
    """A field's label, what to write there, and an example of it."""

    label: str
    help: str = ""
    example: str = ""


@dataclass(frozen=True, slots=True)
class KindWords:
    """`good_for` is one sentence for who chooses; `icon` a lucide icon's name."""

    label: str
    good_for: str
    icon: str
    fields: Mapping[str, FieldWords] = field(default_factory=dict)


TIME_ZONE = FieldWords("Time zone", "Times are written in it and in UTC. Empty: in UTC alone.", "Europe/Berlin")

# In the order in which they are useful to somebody who has none yet.
KIND_WORDS: Mapping[str, KindWords] = {
    "slack": KindWords(
        "Slack",
        "A team sees the card, claims the event from there, and the message changes with it.",
        "hash",
        {
            "token": FieldWords("Bot token", "Of a Slack app with chat:write, invited to the channel.", "xoxb-…"),
            "channel": FieldWords("Slack channel", "Its name or its id.", "#shop-ops"),
            "signing_secret": FieldWords("Signing secret", "Of the same app; with it “Claim” in Slack works."),
            "time_zone": TIME_ZONE,
        },
    ),
    "pagerduty": KindWords(
        "PagerDuty",
        "Wakes whoever is on call; claiming acknowledges, and the end resolves.",
        "siren",
        {
            "routing_key": FieldWords("Integration key", "Of an Events API v2 integration of the service.", ""),
            "earlier_routing_key": FieldWords("Earlier integration key", "What was opened with it is ended with it."),
            "eu": FieldWords("The account is in PagerDuty's region EU"),
            "signing_secret": FieldWords("Webhook secret", "Of a v3 webhook; with it an acknowledgement claims."),
            "time_zone": TIME_ZONE,
        },
    ),
    "mail": KindWords(
        "Mail",
        "Needs nothing but the mail server of this installation; slow to be read.",
        "mail",
        {
            "recipients": FieldWords("Recipients", "One address a line.", "oncall@example.com"),
            "time_zone": TIME_ZONE,
        },
    ),
    "apprise": KindWords(
        "Teams, ntfy, Telegram and others",
        "Any of some hundred services, by an address in the form of Apprise.",
        "message-circle",
        {
            "url": FieldWords(
                "Apprise address", "It says the service and its credentials.", "ntfys://ntfy.sh/my-topic"
            ),
            "time_zone": TIME_ZONE,
        },
    ),
    "webhook": KindWords(
        "Webhook",
        "Your own program gets JSON, signed as Standard Webhooks says.",
        "webhook",
        {
            "url": FieldWords("Address", "It gets a POST for each message.", "https://hooks.example.com/drydock"),
            "secret": FieldWords("Secret", "By it a receiver knows that a call is ours."),
            "earlier_secret": FieldWords("Earlier secret", "Signs as well, until receivers know the new one."),
            "time_zone": TIME_ZONE,
        },
    ),
    "alertmanager": KindWords(
        "Alertmanager",
        "Open events are alerts there; on request the alerts of exactly the machines that Azure works on are silenced.",
        "bell",
        {
            "url": FieldWords("Address", "Where its API answers.", "http://alertmanager:9093"),
            "user": FieldWords("User", "Where it asks for one."),
            "password": FieldWords("Password", "Where it asks for one."),
            "silences": FieldWords("Silences for services", "One service a line; empty: no silences."),
        },
    ),
    "webpush": KindWords(
        "Phone or browser",
        "A notification on a device of your own, made by a button on that device.",
        "smartphone",
        {
            "endpoint": FieldWords("Endpoint"),
            "p256dh": FieldWords("Public key"),
            "auth": FieldWords("Authentication secret"),
        },
    ),
}


def field_words(kind: str, name: str) -> FieldWords:
    """What a field of a kind is called; one that has no words yet goes by its name."""
    return KIND_WORDS[kind].fields.get(name) or FieldWords(name.replace("_", " ").capitalize())
