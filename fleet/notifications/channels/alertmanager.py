"""Alertmanager channel: one alert for each open event and each cache maintenance.

Alertmanager forgets alerts on a restart, so each round sends all of them. Labels identify an alert: one that has
ended, or whose labels have changed, is sent once more with its end.
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
# Without renewal, an alert ends after this time; several rounds may fail before.
LEASE = timedelta(minutes=5)
PORTION = 500
LONGEST_LABEL = 200

Alert = dict[str, Any]
References = Mapping[str, Mapping[str, Any]]


def tell_alerts(alertmanager: Alertmanager, things: Sequence[OpenThing], kept: References, *, now: datetime) -> Outcome:
    """Send all alerts in portions. Return the references to store for each."""
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
        # Alertmanager answers 400 to an invalid alert, and keeps the others.
        if not outcome.ok and outcome.status != 400:
            # The stored references stay, so that the end of every alert is still sent.
            return outcome
    return replace(outcome, references=references)


def labels_of(thing: OpenThing) -> dict[str, str]:
    """Return the labels of an alert: few, short, and constant while it is open. Never `instance`: a silence of the
    machine would also silence this alert.
    """
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
    """Return the page of an event or maintenance; opening it changes nothing."""
    path = f"/events/{thing.event_id}/" if thing.event_id else f"/maintenances/{thing.maintenance_id}/"
    return f"{settings.BASE_URL}{path}"


def _alert(thing: OpenThing, labels: Mapping[str, str], now: datetime) -> Alert:
    # Without a start, Alertmanager uses the shorter of two leases; without annotations, it drops them.
    return {
        "labels": labels,
        "annotations": annotations(thing),
        "startsAt": iso(thing.first_at),
        "endsAt": iso(now + LEASE),
        "generatorURL": page_of(thing),
    }


def _ended(was: Mapping[str, Any], now: datetime) -> Iterable[Alert]:
    if "labels" in was:
        # Alertmanager rejects an end that is not after the start, and a machine's clock may be slightly ahead.
        began = min(datetime.fromisoformat(was["starts_at"]), now - timedelta(seconds=1))
        yield {"labels": was["labels"], "startsAt": iso(began), "endsAt": iso(now)}


def _portions(alerts: Sequence[Alert]) -> Iterator[Sequence[Alert]]:
    for begin in range(0, len(alerts), PORTION):
        yield alerts[begin : begin + PORTION]


# Mirror of all open events as alerts, and silences for machines under maintenance.

__all__ = ["Preview", "mirror", "preview", "send"]


def mirror(channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Run one round: send or end every alert; create, renew or end every silence within the time limit."""
    alertmanager = Alertmanager(channel, now=now)
    things, kept = opened.open_things(), opened.kept(channel.id)
    alerts = tell_alerts(alertmanager, things, kept, now=now)
    if not alerts.ok:
        return alerts
    silences = mirror_silences(alertmanager, channel.values, things, {**kept, **alerts.references}, now=now)
    return replace(silences, references={**alerts.references, **silences.references})


def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Test whether an Alertmanager answers. This kind receives no messages."""
    return Alertmanager(channel, now=now).call("GET", "/status").outcome


def preview(channel: ChannelInUse, *, now: datetime) -> tuple[Preview, ...]:
    """Return the alerts that each silence of a channel would match now, if all its machines and caches were under
    maintenance. This changes nothing.
    """
    return previews(Alertmanager(channel, now=now), channel.values, now=now)
