"""PagerDuty channel (Events API v2): one incident for each event. It is acknowledged when a user handles the event, and
resolved when the event is over.

`fleet.notifications.incidents` decides which calls to make; this module sends them.
"""

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import Any
from urllib.parse import urlsplit

import msgspec
from django.db import models

from fleet.domain.event_types import Severity
from fleet.domain.shapes import grouped
from fleet.domain.states import ApprovalState
from fleet.domain.times import iso
from fleet.notifications.channels import KINDS, TIME_ZONE, ChannelKind, Setting
from fleet.notifications.channels.base import ChannelInUse, Delivery, Item, Outcome, outcome_of
from fleet.notifications.grouping import only
from fleet.notifications.incidents import Alarm, Badness, Incidents, PagerAction, PagerCall, PagerKey, PagerState
from fleet.notifications.models import Reference
from fleet.notifications.news import MessageNews
from fleet.notifications.notification_types import NotificationType
from fleet.notifications.routing import GROUP
from fleet.notifications.sender.jobs import Answer, HttpJob
from fleet.notifications.sender.pool import send as send_job
from fleet.notifications.text import OPEN
from fleet.projections.events.rows import EventRow
from fleet.wording.times import one_line

KINDS["pagerduty"] = ChannelKind(
    "PagerDuty",
    "Wakes the user on call; claiming acknowledges, and the end resolves.",
    "siren",
    {
        "routing_key": Setting(
            "integration key",
            pattern="[0-9A-Za-z]{32}",
            wrong="An integration key of PagerDuty's Events API v2 has 32 letters and digits.",
            help_text="Of an Events API v2 integration of the service.",
        ),
        "earlier_routing_key": Setting(
            "earlier integration key", blank=True, help_text="What was opened with it is ended with it."
        ),
        "eu": models.BooleanField("the account is in PagerDuty's region EU", default=False, blank=True),
        "signing_secret": Setting(
            "webhook secret", blank=True, help_text="Of a v3 webhook; with it an acknowledgement claims."
        ),
        "time_zone": TIME_ZONE,
    },
    secrets=frozenset({"routing_key", "earlier_routing_key", "signing_secret"}),
    follows=True,
)
URLS = {False: "https://events.pagerduty.com/v2/enqueue", True: "https://events.eu.pagerduty.com/v2/enqueue"}
# The limits are those of the Events API v2; the body's is 512 kB.
MOST_KEY = 255
MOST_BODY = 500_000
MOST_LINES, MOST_LINE, MOST_NAMES = 60, 500, 50
# PagerDuty accepts about 120 calls a minute for a key. The next attempt of a delivery sends the rest.
MOST_CALLS = 100
LIMIT_SECONDS = 8.0
BUDGET_SECONDS = 25.0
PAUSE_SECONDS = 60.0


def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Send a delivery: trigger, acknowledge or resolve the channel's incidents as necessary."""
    # Other installations that see the same event have other prefixes.
    prefix = f"drydock-{hashlib.sha256(urlsplit(post.url).netloc.encode()).hexdigest()[:8]}"
    if not post.items:
        test = trigger_of(post, (), f"{prefix}-test-{post.id}")
        return outcome_of_call(enqueue(test, channel, now=now))
    by_subject = grouped((item.news.subject, item) for item in post.items)
    incidents = stored_incidents(post, channel, [*by_subject, GROUP])
    before = {owner: list(keys) for owner, keys in incidents.keys.items()}
    alarms = [alarm_of(items) for items in by_subject.values()]
    calls = incidents.calls(alarms, prefix=prefix, delivery=post.id, now=now)
    outcome = send_calls(calls, incidents, post, channel, now=now)
    gone = names_of(before) - names_of(incidents.keys)
    references: dict[str, Mapping[str, Any] | None] = {reported_subject(name): None for name in gone}
    for owner, keys in incidents.keys.items():
        if keys != before.get(owner, []):
            references[owner] = {"keys": msgspec.to_builtins(keys)} if keys else None
    return replace(outcome, references=references)


def names_of(keys: Mapping[str, Iterable[PagerKey]]) -> set[str]:
    return {key.name for of_owner in keys.values() for key in of_owner}


def send_calls(
    calls: Iterable[PagerCall], incidents: Incidents, post: Delivery, channel: ChannelInUse, *, now: datetime
) -> Outcome:
    """Send the calls in order until one must be retried. Record each accepted call in `incidents`. Return the
    outcome.
    """
    began = time.monotonic()
    outcome, refused = Outcome(ok=True), None
    for count, call in enumerate(calls):
        if count >= MOST_CALLS or time.monotonic() - began > BUDGET_SECONDS:
            return replace(refused or outcome, ok=False, again=True, error="too-many-calls", wait_seconds=PAUSE_SECONDS)
        answer = enqueue(body_of(call, post), channel, account=call.key.account, now=now)
        outcome = outcome_of_call(answer)
        if outcome.again:
            return outcome
        if not outcome.ok:
            refused = outcome
        incidents.take(call)
    return refused or outcome


def outcome_of_call(answer: Answer) -> Outcome:
    """Return the outcome for a response. A refusal normally concerns this event only; an unknown routing key is a
    failure of the channel.
    """
    refused = answer.status == 400 and "routing" not in answer.body.lower()
    wait_seconds = PAUSE_SECONDS if answer.status in (403, 429) else None
    return outcome_of(answer, never=refused, gone=(), wait_seconds=wait_seconds)


def alarm_of(items: Sequence[Item]) -> Alarm:
    """Return the current state of one subject for the pager. `items` are the messages about the subject, oldest
    first.
    """
    news = items[-1].news
    types = {item.news.moment for item in items}
    event, bad = news.event, Badness(Severity.INFO if news.drill else news.severity)
    opens, wakes = any(each.declared.opens for each in types), any(each.declared.wakes for each in types)
    if event is None or news.moment.declared.of_machine:
        return Alarm(
            subject=news.subject,
            called=short(news.subject),
            at=news.at,
            bad=bad,
            opens=opens,
            wakes=wakes or any(each.declared.endless for each in types),
            endless=news.moment.declared.endless,
            over=news.moment.declared.ends,
        )
    # Users who handle an event know that it started.
    opening = [item.news for item in items if item.news.moment.declared.opens]
    times = [each.at for each in opening if each.moment is not NotificationType.STARTED]
    return Alarm(
        subject=news.subject,
        called=short(event.event_id),
        at=max(times, default=event.first_seen_at),
        bad=replace(bad, event_type=event.event_type, not_before=event.not_before),
        opens=opens,
        wakes=wakes,
        over=not event.open,
        handled_at=handled_at(event),
    )


def handled_at(event: EventRow) -> datetime | None:
    """Return since when an event is claimed, held or decided, or None."""
    approval, times = event.approval, [one.at for one in (event.claim, event.hold) if one is not None]
    if approval and approval.live and approval.state is not ApprovalState.PROPOSED and approval.decided_at:
        times.append(approval.decided_at)
    return max(times, default=None)


def stored_incidents(post: Delivery, channel: ChannelInUse, owners: Sequence[str]) -> Incidents:
    """Return the incidents that the channel has stored for these owners (subjects, or `GROUP`)."""
    keys = {owner: msgspec.convert(post.references.get(owner, {}).get("keys", []), list[PagerKey]) for owner in owners}
    names = names_of(keys)
    return Incidents(
        keys=keys,
        storm=GROUP,
        account=fingerprint(channel.values["routing_key"]),
        has_webhooks=bool(channel.values.get("signing_secret")),
        reported=reported_states(channel.id, names) if names else {},
    )


# States that PagerDuty reports of its incidents, stored separately from those sent, because either may change at any
# time.


def reported_subject(name: str) -> str:
    return f"there:{name}"


def reported_states(channel_id: int, names: Collection[str]) -> dict[str, PagerState]:
    """Return the states that PagerDuty reported by webhook for these incident keys. Keys without a report are omitted.
    One query.
    """
    subjects = {reported_subject(name): name for name in names}
    rows = Reference.objects.filter(channel=channel_id, subject__in=list(subjects))
    return {subjects[subject]: PagerState(value["state"]) for subject, value in rows.values_list("subject", "value")}


def note_state(channel_id: int, name: str, *, state: PagerState, at: datetime, now: datetime) -> None:
    """Record a state that PagerDuty reported for an incident key, unless a newer one is recorded."""
    rows = Reference.objects.filter(channel=channel_id, subject=reported_subject(name))
    newest = rows.values_list("value", flat=True).first()
    if newest is None or datetime.fromisoformat(newest["at"]) <= at:
        Reference.objects.update_or_create(
            channel_id=channel_id,
            subject=reported_subject(name),
            defaults={"value": {"state": state.value, "at": at.isoformat()}, "changed_at": now},
        )


def find_key(channel_id: int, name: str) -> tuple[str, PagerKey] | None:
    """Return an incident of a channel by its key, with the owner (a subject, or `GROUP` for a storm), or None. One
    query.
    """
    rows = Reference.objects.filter(channel=channel_id, value__contains={"keys": [{"name": name}]})
    found = ((owner, key) for owner, value in rows.values_list("subject", "value") for key in value["keys"])
    return next(((owner, msgspec.convert(key, PagerKey)) for owner, key in found if key["name"] == name), None)


def body_of(call: PagerCall, post: Delivery) -> dict[str, Any]:
    """Return the request body for a call, without the routing key."""
    if call.action is PagerAction.TRIGGER:
        about = {alarm.subject for alarm in call.about}
        newest = {item.news.subject: item for item in post.items if item.news.subject in about}
        return trigger_of(post, list(newest.values()), call.key.name)
    return {"event_action": call.action.value, "dedup_key": call.key.name}


def trigger_of(post: Delivery, items: Sequence[Item], name: str) -> dict[str, Any]:
    """Return the body of a trigger with the incident key `name`. It has the texts of a single item, or of the whole
    delivery for several items or none (a test).
    """
    alone = items[0] if len(items) == 1 else None
    words = alone.words if alone else post.words
    url = post.url.removesuffix(post.words.path) + words.path
    drill = bool(items) and all(item.news.drill for item in items)
    title = words.title if not drill or "DRILL" in words.title else f"DRILL: {words.title}"
    text = "\n".join(cut(line, MOST_LINE) for line in words.lines[:MOST_LINES])
    sets = (item.news.event.set.name for item in items if item.news.event is not None)
    fields, details = of_one(alone.news) if alone else ({}, {})
    worst = reduce(Badness.with_worst_of, (Badness(item.news.severity) for item in items), Badness()).severity
    return {
        "event_action": PagerAction.TRIGGER.value,
        "dedup_key": name,
        "client": "Drydock",
        "client_url": url,
        "links": [{"href": url, "text": OPEN}],
        "payload": {
            "summary": cut(title, 1024),
            # The set of all items if it is the same, else the service.
            "source": cut(only(sets) or only(item.news.service for item in items), MOST_KEY) or "Drydock",
            "severity": Severity.INFO.value if drill else worst,
            "timestamp": iso(items[-1].news.at if items else post.at),
            "custom_details": {"text": text, **details},
            **fields,
        },
    }


def of_one(news: MessageNews) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the payload fields for a single subject, and the details for a single event."""
    event, card = news.event, news.card
    fields: dict[str, Any] = {"group": cut(news.service, MOST_KEY)} if news.service else {}
    if event is None:
        return fields, {}
    machines = [cut(name, MOST_KEY) for name in event.resources[:MOST_NAMES]]
    fields |= {"class": cut(event.event_type, MOST_KEY), "component": machines[0] if machines else ""}
    return fields, {
        "event": event.event_id,
        "machines": machines,
        "not_before": iso(event.not_before) if event.not_before else None,
        "decide_by": iso(card.decide_by) if card and card.decide_by else None,
    }


def enqueue(body: Mapping[str, Any], channel: ChannelInUse, *, now: datetime, account: str = "") -> Answer:
    """Send one request to PagerDuty. `account` is the fingerprint of the routing key that opened the incident; this key
    is used if it is still configured.
    """
    values = channel.values
    routing_keys = [key for key in (values["routing_key"], values.get("earlier_routing_key")) if key]
    fitting = [key for key in routing_keys if fingerprint(key) == account]
    request = {"routing_key": (fitting or routing_keys)[0], **body}
    raw = json.dumps(request).encode()
    if len(raw) > MOST_BODY:
        request["payload"] = {k: v for k, v in request["payload"].items() if k != "custom_details"}
        raw = json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    url = URLS[bool(values.get("eu"))]
    return send_job(HttpJob("POST", url, headers, raw, limit_seconds=LIMIT_SECONDS), now=now)


def fingerprint(secret: str) -> str:
    """Return a short hash that identifies a routing key without revealing it."""
    return hashlib.sha256(f"drydock {secret}".encode()).hexdigest()[:12]


def short(name: str) -> str:
    """Return a shorter unique form of a name for incident keys, whose length is limited."""
    return name if len(name) <= 80 else f"{name[:40]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def cut(text: str, most: int) -> str:
    """Return the text as one line without unprintable characters, of at most `most` characters."""
    line = one_line(text, most + 1)
    return line if len(line) <= most else line[: most - 1] + "…"
