"""Words of what is recommended, and why."""

from collections.abc import Mapping
from typing import Any

from fleet.domain.recommendation import Advised
from fleet.wording.sentences import Sentence, are, counted
from fleet.wording.times import Reader, duration

Values = Mapping[str, Any]
# What is recommended, as the card heads it.
ADVISED = {
    Advised.START_NOW: "Start now",
    Advised.WHEN_PREPARED: "Start when prepared",
    Advised.PROPOSE: "Propose it",
    Advised.WAIT: "Wait",
    Advised.LOOK: "Look first",
    Advised.LEAVE: "Leave it to Azure",
    Advised.REDEPLOY: "Redeploy it yourself",
    Advised.BY_HAND: "Do it by hand",
}
# What an event of a type does to a machine for as long as it is Started.
AWAY = {"Freeze": "median pause", "Reboot": "median restart"}


def earlier(values: Values, reader: Reader) -> str:
    """`12 earlier Freezes here, median pause 4 s`: part of a sentence."""
    count, event_type = values["count"], values["event_type"]
    if not count:
        return f"no earlier {event_type} here was seen to its end"
    away = f", {AWAY.get(event_type, 'median time away')} {duration(values['seconds'])}"
    cancelled = f", {values['cancelled']} more cancelled by Azure" if values["cancelled"] else ""
    return f"{counted(count, f'earlier {event_type}')} here{away}{cancelled}"


def open_beside(values: Values, reader: Reader) -> str:
    where = f"in the service {values['service']}" if values["service"] else "in the set"
    count = values["count"]
    return f"{counted(count, 'other event')} open {where}" if count else f"nothing else open {where}"


def start_now(values: Values, reader: Reader) -> str:
    return f"{ADVISED[Advised.START_NOW]}: {', '.join(values['reasons'])}."


def advised(head: Advised) -> Sentence:
    return lambda values, reader: f"{ADVISED[head]}. {' '.join(values['reasons'])}"


ADVICE: dict[str, Sentence] = {
    **{f"recommend-{one.value}": advised(one) for one in Advised},
    "recommend-start_now": start_now,
    "recommend-earlier": earlier,
    "recommend-open": open_beside,
    "recommend-own": "your own organisation asked for it",
    "recommend-only-machine": "waiting would not spare the set's only machine the pause",
    "recommend-far-ahead": (
        "It was announced days ahead: the host's hardware is predicted to fail. Move the machine before it does."
    ),
    "recommend-unknown-type": "Azure has not said what this type does.",
    "recommend-prepares": lambda values, reader: f"{are(values['machines'])} not prepared yet.",
    "recommend-nobody-prepares": lambda values, reader: f"No live agent prepares {', '.join(values['machines'])}.",
}
