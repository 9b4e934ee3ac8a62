"""Alertmanager channel. It maintains one alert for each open event and cache maintenance, and silences for machines and
caches under maintenance.

Alertmanager forgets alerts on a restart, so every round sends all of them. An alert is identified by its labels. When
an event ends or its labels change, the old alert is sent once more with an end time.
"""

import base64
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError

from fleet.domain.reasons import Refused
from fleet.domain.texts import parse_json
from fleet.domain.times import iso
from fleet.notifications import incidents
from fleet.notifications.channels import KINDS, ChannelKind, Lines, Setting, validate_url
from fleet.notifications.channels.base import ChannelInUse, Delivery, Outcome, outcome_of
from fleet.notifications.incidents import LabelMatcher, SilenceLine, read_lines, still_silenced
from fleet.notifications.models import Reference
from fleet.notifications.news import OpenThing, muted_machines, open_things
from fleet.notifications.sender.jobs import Answer, HttpJob
from fleet.notifications.sender.pool import send as send_job
from fleet.projections.visibility import visible
from fleet.wording.say import say
from fleet.wording.times import API


def validate_silences(lines: Sequence[str]) -> None:
    """Raise ValidationError if a line is not a valid silence."""
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
LIMIT_SECONDS = 10.0
MOST_BYTES = 2 * 1024 * 1024


@dataclass(slots=True)
class Called:
    """Response to a call, with the decoded JSON or None."""

    answer: Answer
    content: Any = None

    @property
    def outcome(self) -> Outcome:
        """The outcome for the sender. Every failure is retried."""
        return outcome_of(self.answer, never=False, gone=())


class Alertmanager:
    """HTTP client of one Alertmanager, for one round of updates."""

    def __init__(self, channel: ChannelInUse, *, now: datetime) -> None:
        self.base = str(channel.values["url"]).rstrip("/")
        self.now = now
        # Well within the lease of the channel; the next round does the rest.
        self.until = time.monotonic() + 25.0
        self.headers = {"Accept": "application/json"}
        user, password = str(channel.values.get("user") or ""), str(channel.values.get("password") or "")
        if user or password:
            self.headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

    @property
    def late(self) -> bool:
        """True if the time limit of the round has passed, so that the next round must do the rest."""
        return time.monotonic() >= self.until

    def call(self, method: str, path: str, body: Any = None, query: Sequence[tuple[str, str]] = ()) -> Called:
        """Make one call; failures are in the result. `path` is relative to `/api/v2`, unquoted."""
        parts = "/".join(quote(part, safe="") for part in path.split("/"))
        url = f"{self.base}/api/v2{parts}" + (f"?{urlencode(query)}" if query else "")
        headers = self.headers if body is None else {**self.headers, "Content-Type": "application/json"}
        payload = b"" if body is None else json.dumps(body).encode()
        job = HttpJob(method, url, headers, payload, limit_seconds=LIMIT_SECONDS, most_bytes=MOST_BYTES)
        called = Called(send_job(job, now=self.now))
        with suppress(ValueError):
            called.content = None if called.answer.cut else parse_json(called.answer.body)
        return called


# Alerts.

# Without renewal, an alert ends after this time; several rounds may fail before.
LEASE = timedelta(minutes=5)
PORTION = 500

Alert = dict[str, Any]
References = Mapping[str, Mapping[str, Any]]


def send_alerts(
    alertmanager: Alertmanager, things: Sequence[OpenThing], stored: References, *, now: datetime
) -> Outcome:
    """Send an alert for each open event or maintenance, and an end for each stored alert that is no longer open. Return
    the outcome, with the references to store.
    """
    wanted = {thing.subject: thing for thing in things}
    references: dict[str, Mapping[str, Any] | None] = {}
    alerts: list[Alert] = []
    for subject, thing in wanted.items():
        former = stored.get(subject, {})
        # Without a start, Alertmanager uses the shorter of two leases; without annotations, it drops them.
        alert = {"labels": thing.labels, "startsAt": iso(thing.first_at), "endsAt": iso(now + LEASE)}
        annotations = {"summary": thing.summary, "description": thing.description}
        alerts.append({**alert, "annotations": annotations, "generatorURL": f"{settings.BASE_URL}{thing.path}"})
        if former.get("labels") != thing.labels:
            alerts.extend(_ended(former, now))
            references[subject] = {**former, "labels": thing.labels, "starts_at": iso(thing.first_at)}
    for subject, former in stored.items():
        if subject not in wanted and "labels" in former:
            alerts.extend(_ended(former, now))
            rest = {name: value for name, value in former.items() if name not in ("labels", "starts_at")}
            references[subject] = rest or None
    outcome = Outcome(ok=True)
    for begin in range(0, len(alerts), PORTION):
        outcome = alertmanager.call("POST", "/alerts", alerts[begin : begin + PORTION]).outcome
        # Alertmanager answers 400 to an invalid alert, and keeps the others.
        if not outcome.ok and outcome.status != 400:
            # The stored references stay, so that the end of every alert is still sent.
            return outcome
    return replace(outcome, references=references)


def _ended(former: Mapping[str, Any], now: datetime) -> Iterable[Alert]:
    if "labels" in former:
        # Alertmanager rejects an end that is not after the start, and a machine's clock may be slightly ahead.
        began = min(datetime.fromisoformat(former["starts_at"]), now - timedelta(seconds=1))
        yield {"labels": former["labels"], "startsAt": iso(began), "endsAt": iso(now)}


# Maintenance silences: created when an event is seen as Started, renewed in steps, and ended when its end is seen.

OURS = "Drydock"
# Difference by which the stored end of a silence may precede the requested one.
SLACK = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A silence that should exist: for one event or maintenance, by one configured line. `key` is a hash of that
    line.
    """

    thing: OpenThing
    key: str
    matchers: tuple[LabelMatcher, ...]
    until: datetime

    @property
    def owner(self) -> str:
        """Marker in the comment of a silence, by which Drydock recognises its own silence if the stored record is
        lost.
        """
        return f"[drydock:{urlsplit(settings.BASE_URL).netloc}:{self.thing.subject}:{self.key}"

    def body(self, starts_at: str) -> dict[str, Any]:
        state = "under way" if self.thing.started_at else "silenced"
        which = f" ({self.thing.labels['event_id']})" if self.thing.set_id is not None else ""
        matchers = [
            {"name": each.name, "value": each.value, "isRegex": each.regex, "isEqual": each.equal}
            for each in self.matchers
        ]
        comment = (
            f"{self.thing.summary} is {state}{which}. Drydock ends this silence when it sees the end; expire it, and"
            f" Drydock leaves it at that. {self.owner} until={iso(self.until)}]"
        )
        times = {"startsAt": starts_at, "endsAt": iso(self.until)}
        return {"matchers": matchers, **times, "createdBy": OURS, "comment": comment}


def wanted_silences(lines: Sequence[SilenceLine], things: Sequence[OpenThing], now: datetime) -> Iterator[Wanted]:
    """Yield the silences that should exist now, for all events and maintenances under way, and for events that a user
    silenced.
    """
    under_way = [
        (thing, until, fitting)
        for thing in things
        if not thing.drill
        and (until := still_silenced(started_at=thing.started_at, now=now, silenced_until=thing.silenced_until))
        and (fitting := [line for line in lines if line.holds_for(thing.service)])
    ]
    machines = muted_machines([thing for thing, *_ in under_way]) if under_way else {}
    for thing, until, fitting in under_way:
        muted = [{"cache": (thing.cache_host,)}] if thing.cache_host else machines[thing.subject]
        for line in fitting:
            if matchers := line.matchers(muted):
                yield Wanted(thing, sha256(line.text.encode()).hexdigest()[:12], matchers, until)


class Silences:
    """Silences of one channel during one round. `stored` contains their records by subject and key, and is updated by
    each step.
    """

    def __init__(self, alertmanager: Alertmanager, references: Mapping[str, Mapping[str, Any] | None]) -> None:
        self.alertmanager, self.now = alertmanager, alertmanager.now
        self.references = {subject: value for subject, value in references.items() if value}
        self.stored = {subject: dict(value.get("silences", {})) for subject, value in self.references.items()}
        self.failed: Outcome | None = None

    def mirror(self, wanted: Sequence[Wanted]) -> Outcome:
        """Create, renew and end silences until they match `wanted`, within the time limit. Return the outcome, with the
        references to store.
        """
        keys = {(each.thing.subject, each.key) for each in wanted}
        stored = {subject: dict(silences) for subject, silences in self.stored.items()}
        for subject, silences in stored.items():
            for key, silence in silences.items():
                if (subject, key) not in keys and not self.alertmanager.late and self._end(silence):
                    del self.stored[subject][key]
        # Those whose lease ends first come first.
        for each in sorted(wanted, key=lambda each: str((self._record(each) or {}).get("until", ""))):
            if self.alertmanager.late:
                break
            self._hold(each)
        references: dict[str, Mapping[str, Any] | None] = {}
        for subject, silences in self.stored.items():
            if silences != stored.get(subject, {}):
                rest = {name: value for name, value in self.references.get(subject, {}).items() if name != "silences"}
                references[subject] = {**rest, "silences": dict(silences)} if silences else rest or None
        return replace(self.failed or Outcome(ok=True), references=references)

    def _record(self, wanted: Wanted) -> Mapping[str, Any] | None:
        return self.stored.get(wanted.thing.subject, {}).get(wanted.key)

    def _keep(self, wanted: Wanted, **record: Any) -> None:
        self.stored.setdefault(wanted.thing.subject, {})[wanted.key] = record

    def _succeeded(self, called: Called) -> bool:
        """Return whether a call succeeded. The first failure becomes the outcome of the round."""
        if not called.answer.ok and self.failed is None:
            self.failed = called.outcome
        return called.answer.ok

    def _hold(self, wanted: Wanted) -> None:
        """Create a silence that does not exist, or renew it if this is due."""
        silence = self._record(wanted)
        if silence is None:
            silence = self._lost(wanted)
        if silence is None or silence.get("left_alone"):
            return
        seen = self.alertmanager.call("GET", f"/silence/{silence['id']}") if silence else None
        until = datetime.fromisoformat(silence["until"]) if silence else self.now
        if seen is None or seen.answer.status == 404:
            # Alertmanager loses recent ones when it is killed.
            self._write(wanted, None)
        elif not self._succeeded(seen) or not isinstance(seen.content, dict):
            return
        elif seen.content.get("createdBy") != OURS or datetime.fromisoformat(seen.content["endsAt"]) < until - SLACK:
            # A user has taken it over, or ended it before the lease: it is not created again.
            self._keep(wanted, left_alone=True)
        elif seen.content["status"]["state"] == "expired":
            self._write(wanted, None)
        elif until - self.now <= incidents.LEASE / 2 or not _same(seen.content, wanted):
            self._write(wanted, seen.content)
        else:
            self._keep(wanted, id=silence["id"], until=iso(until))

    def _write(self, wanted: Wanted, seen: Mapping[str, Any] | None) -> None:
        """Create a silence, or extend the existing one `seen`. Alertmanager updates it in place only if all other
        fields are unchanged.
        """
        body = wanted.body(iso(self.now))
        if seen is not None:
            body |= {"id": seen["id"], "startsAt": seen["startsAt"]}
            if _same(seen, wanted):
                body["matchers"] = seen["matchers"]
        called = self.alertmanager.call("POST", "/silences", body)
        if self._succeeded(called) and isinstance(called.content, dict):
            self._keep(wanted, id=str(called.content["silenceID"]), until=iso(wanted.until))

    def _lost(self, wanted: Wanted) -> Mapping[str, Any] | None:
        """Find Drydock's own silence in Alertmanager when the stored record is missing. Return an empty record if there
        is none, and None if Alertmanager did not respond.
        """
        # Only those with this matcher: the full list contains silences that ended days ago.
        called = self.alertmanager.call("GET", "/silences", query=[("filter", str(wanted.matchers[0]))])
        if not self._succeeded(called) or not isinstance(called.content, list):
            return None
        own = [each for each in called.content if wanted.owner in str(each.get("comment", ""))]
        if not own:
            return {}
        newest = max(own, key=lambda each: str(each.get("updatedAt", "")))
        _, _, rest = str(newest["comment"]).partition(f"{wanted.owner} until=")
        return {"id": str(newest["id"]), "until": rest.partition("]")[0]}

    def _end(self, silence: Mapping[str, Any]) -> bool:
        """End a silence. Return whether it has ended, so that the record can be deleted. A silence that a user took
        over is not ended.
        """
        if silence.get("left_alone"):
            return True
        seen = self.alertmanager.call("GET", f"/silence/{silence['id']}")
        if seen.answer.status == 404:
            return True
        if not self._succeeded(seen) or not isinstance(seen.content, dict):
            # It ends with its lease.
            return datetime.fromisoformat(silence["until"]) <= self.now
        if seen.content["status"]["state"] == "expired" or seen.content.get("createdBy") != OURS:
            return True
        return self._succeeded(self.alertmanager.call("DELETE", f"/silence/{silence['id']}"))


def _same(seen: Mapping[str, Any], wanted: Wanted) -> bool:
    """Return whether the existing silence has the wanted matchers."""
    stated = {
        (each["name"], each["value"], each["isRegex"], each.get("isEqual", True)) for each in seen.get("matchers", ())
    }
    return stated == {(each.name, each.value, each.regex, each.equal) for each in wanted.matchers}


# One round: all open events as alerts, and silences for machines under maintenance.


def mirror(channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Run one round: send or end all alerts, then create, renew or end all silences within the time limit."""
    alertmanager = Alertmanager(channel, now=now)
    things, rows = open_things(), visible(Reference).filter(channel=channel.id).order_by()
    stored = dict(rows.values_list("subject", "value"))
    alerts = send_alerts(alertmanager, things, stored, now=now)
    if not alerts.ok:
        return alerts
    lines = read_lines(channel.values.get("silences") or [])
    silences = Silences(alertmanager, {**stored, **alerts.references})
    outcome = silences.mirror(list(wanted_silences(lines, things, now)))
    return replace(outcome, references={**alerts.references, **outcome.references})


def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Send a test: check that Alertmanager responds. This kind of channel receives no messages."""
    return Alertmanager(channel, now=now).call("GET", "/status").outcome
