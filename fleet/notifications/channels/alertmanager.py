"""Alertmanager: one alert for each open event and each cache maintenance.

Alertmanager keeps nothing over a restart, so all are told each time. An alert is its labels: whatever was told under
others than now, or is over, is told once more with its end.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError

from fleet.domain.reasons import Refused
from fleet.domain.times import iso
from fleet.notifications import news as opened
from fleet.notifications.channels import KINDS, ChannelKind, Lines, Setting, validate_url
from fleet.notifications.channels.alertmanager_silences import Alertmanager, Preview, mirror_silences, previews
from fleet.notifications.channels.base import ChannelInUse, Delivery, Outcome
from fleet.notifications.incidents import read_lines
from fleet.notifications.news import OpenThing
from fleet.notifications.payloads import annotations
from fleet.wording.say import say
from fleet.wording.times import API, one_line


def validate_silences(lines: Sequence[str]) -> None:
    """Raise ValidationError for a line that is no silence."""
    try:
        read_lines(lines)
    except Refused as error:
        raise ValidationError(say(error.reason, API)) from error


KINDS["alertmanager"] = ChannelKind(
    "Alertmanager",
    "Open events are alerts there; on request the alerts of exactly the machines that Azure works on are silenced.",
    "bell",
    {
        "url": Setting(
            "address", validators=[validate_url], help_text="Where its API answers, such as http://alertmanager:9093."
        ),
        "user": Setting(blank=True, help_text="If it asks for one."),
        "password": Setting(blank=True, help_text="If it asks for one."),
        "silences": Lines(
            "silences for services",
            each=Setting(),
            validators=[validate_silences],
            help_text="One service a line; empty: no silences.",
        ),
    },
    secrets=frozenset({"password"}),
    messages=False,
)
# So long after Drydock fell silent an alert ends by itself; several rounds may fail before.
LEASE = timedelta(minutes=5)
PORTION = 500
LONGEST_LABEL = 200

Alert = dict[str, Any]
References = Mapping[str, Mapping[str, Any]]


def tell_alerts(alertmanager: Alertmanager, things: Sequence[OpenThing], kept: References, *, now: datetime) -> Outcome:
    """All of them, in portions, and what to keep of each from now on."""
    wanted = {thing.subject: thing for thing in things}
    references: dict[str, Mapping[str, Any] | None] = {}
    alerts: list[Alert] = []
    for subject, thing in wanted.items():
        labels, was = labels_of(thing), kept.get(subject, {})
        alerts.append(_alert(thing, labels, now))
        if was.get("labels") != labels:
            alerts.extend(_ended(was, now))
            references[subject] = {**was, "labels": labels, "starts_at": iso(thing.first_at)}
    for subject, was in kept.items():
        if subject not in wanted and "labels" in was:
            alerts.extend(_ended(was, now))
            rest = {name: value for name, value in was.items() if name not in ("labels", "starts_at")}
            references[subject] = rest or None
    outcome = Outcome(ok=True)
    for portion in _portions(alerts):
        outcome = alertmanager.call("POST", "/alerts", portion).outcome
        # One that will not do takes no other with it: Alertmanager says 400 and keeps the rest.
        if not outcome.ok and outcome.status != 400:
            # What is kept stays as it was, so that nothing that has ended is forgotten before it was told.
            return outcome
    return replace(outcome, references=references)


def labels_of(thing: OpenThing) -> dict[str, str]:
    """Few, short, and the same as long as it is open. Never `instance`: a silence of the machine would mute us, too."""
    named = {
        "alertname": "AzureCacheMaintenance" if thing.cache_host else "AzureScheduledEvent",
        "drydock": urlsplit(settings.BASE_URL).netloc,
        "severity": thing.severity.value,
        "service": thing.service,
        "event_id": thing.event_id,
        "event_type": thing.event_type,
        "availability_set": thing.set_name,
        "resource_group": thing.resource_group,
        "cache_host": thing.cache_host,
        "shard": "" if thing.shard is None else str(thing.shard),
        "drill": "yes" if thing.drill else "",
    }
    if thing.maintenance_id is not None:
        named["event_id"] = f"maintenance-{thing.maintenance_id}"
    return {name: line for name, value in named.items() if (line := one_line(value, LONGEST_LABEL))}


def page_of(thing: OpenThing) -> str:
    """Where a person goes on from an alert; opening it does nothing."""
    path = f"/events/{thing.event_id}/" if thing.event_id else f"/maintenances/{thing.maintenance_id}/"
    return f"{settings.BASE_URL}{path}"


def _alert(thing: OpenThing, labels: Mapping[str, str], now: datetime) -> Alert:
    # Without its start, the shorter of two leases counts; without annotations, it loses them.
    return {
        "labels": labels,
        "annotations": annotations(thing),
        "startsAt": iso(thing.first_at),
        "endsAt": iso(now + LEASE),
        "generatorURL": page_of(thing),
    }


def _ended(was: Mapping[str, Any], now: datetime) -> Iterable[Alert]:
    if "labels" in was:
        # An end that is not after its start is refused, and a machine's clock may be a moment ahead.
        began = min(datetime.fromisoformat(was["starts_at"]), now - timedelta(seconds=1))
        yield {"labels": was["labels"], "startsAt": iso(began), "endsAt": iso(now)}


def _portions(alerts: Sequence[Alert]) -> Iterator[Sequence[Alert]]:
    for begin in range(0, len(alerts), PORTION):
        yield alerts[begin : begin + PORTION]


# Alertmanager: an alert for all that is open, and silences for what is under maintenance.

__all__ = ["Preview", "mirror", "preview", "send"]


def mirror(channel: ChannelInUse, *, now: datetime) -> Outcome:
    """One round: every alert renewed or ended, every silence begun, renewed or ended as far as there is time."""
    alertmanager = Alertmanager(channel, now=now)
    things, kept = opened.open_things(), opened.kept(channel.id)
    alerts = tell_alerts(alertmanager, things, kept, now=now)
    if not alerts.ok:
        return alerts
    silences = mirror_silences(alertmanager, channel.values, things, {**kept, **alerts.references}, now=now)
    return replace(silences, references={**alerts.references, **silences.references})


def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """A try: whether it is an Alertmanager that answers. It gets no posts."""
    return Alertmanager(channel, now=now).call("GET", "/status").outcome


def preview(channel: ChannelInUse, *, now: datetime) -> tuple[Preview, ...]:
    """What the silences of a channel would hit now if every machine or cache that they hold for were under
    maintenance: a try that changes nothing.
    """
    return previews(Alertmanager(channel, now=now), channel.values, now=now)
