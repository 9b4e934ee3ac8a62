"""PagerDuty by Events v2: one incident for each event, acknowledged when somebody is on it, resolved when it is over.

Which keys there are, and what is told when, is `fleet.notifications.incidents`; here it becomes requests.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any
from urllib.parse import urlsplit

from fleet.domain.event_types import Severity
from fleet.domain.states import ApprovalState
from fleet.domain.times import iso
from fleet.notifications import queue
from fleet.notifications.channels.base import ChannelInUse, Delivery, Item, Outcome
from fleet.notifications.incidents import (
    Alarm,
    Badness,
    Incidents,
    KeyNames,
    PagerAction,
    PagerCall,
    PagerKey,
    PagerState,
)
from fleet.notifications.payloads import OPEN
from fleet.notifications.routing import GROUP, NotificationType
from fleet.notifications.sender.jobs import Answer, HttpJob
from fleet.notifications.sender.pool import send as send_job
from fleet.projections.events.rows import EventRow
from fleet.wording.times import one_line

URLS = {False: "https://events.pagerduty.com/v2/enqueue", True: "https://events.eu.pagerduty.com/v2/enqueue"}
# The limits are those of the Events API v2; the body's is 512 kB.
MOST_SUMMARY = 1024
MOST_KEY = 255
MOST_BODY = 500_000
MOST_LINES, MOST_LINE, MOST_NAMES = 60, 500, 50
# A key may be called about 120 times a minute. What is left of a post goes with its next attempt.
MOST_CALLS = 100
LIMIT_SECONDS = 8.0
BUDGET_SECONDS = 25.0
PAUSE_SECONDS = 60.0

# What there is to wake for where nothing has yet; even if something has; and what is over by itself.
OPENS = frozenset(NotificationType) - {
    NotificationType.CLAIMED,
    NotificationType.DECIDED,
    NotificationType.CORRECTED,
    NotificationType.ENDED,
    NotificationType.COVERAGE_CLOSED,
    NotificationType.MAINTENANCE_ENDED,
    NotificationType.CHANNEL_WORKS,
}
WAKES = {
    NotificationType.UNCLAIMED,
    NotificationType.UNDECIDED,
    NotificationType.OVERDUE,
    NotificationType.REFUSED,
    NotificationType.SET_UNWATCHED,
}
OVER = {
    NotificationType.ENDED,
    NotificationType.COVERAGE_CLOSED,
    NotificationType.MAINTENANCE_ENDED,
    NotificationType.CHANNEL_WORKS,
}
# Nothing tells that these are over: PagerDuty's people resolve them.
ENDLESS = {
    NotificationType.SOURCE_QUIET,
    NotificationType.SET_UNWATCHED,
    NotificationType.SET_LOWERED,
    NotificationType.AUDIT_FAILED,
    NotificationType.STORAGE_TROUBLE,
    NotificationType.BREAK_GLASS,
}


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of the calls of one post. `refused`: PagerDuty will not take one of them, ever."""

    calls: int = 0
    failed: Answer | None = None
    refused: Answer | None = None
    cut: bool = False
    last: Answer | None = None


def send(post: Delivery, channel: ChannelInUse, *, now: datetime) -> Outcome:
    """Tell PagerDuty what the post says, and what follows from it for its incidents."""
    names = KeyNames(installation_of(post.url), post.id)
    if not post.items:
        answer = enqueue(trigger_of(post, (), f"drydock-{names.installation}-test-{post.id}"), channel, now=now)
        return outcome(Sent(calls=1, failed=None if answer.ok else answer, last=answer), {})
    by_subject: dict[str, list[Item]] = {}
    for item in post.items:
        by_subject.setdefault(item.news.subject, []).append(item)
    incidents = kept(post, channel, [*by_subject, GROUP])
    before = {owner: list(keys) for owner, keys in incidents.keys.items()}
    alarms = [alarm_of(items) for items in by_subject.values()]
    sent = tell(incidents, alarms, names, post=post, channel=channel, now=now)
    found = {owner: as_kept(keys) for owner, keys in incidents.keys.items() if keys != before.get(owner, [])}
    gone = {key.name for keys in before.values() for key in keys} - {
        key.name for keys in incidents.keys.values() for key in keys
    }
    return outcome(sent, {**found, **{queue.of_key(name): None for name in gone}})


def tell(
    incidents: Incidents,
    alarms: Sequence[Alarm],
    names: KeyNames,
    *,
    post: Delivery,
    channel: ChannelInUse,
    now: datetime,
) -> Sent:
    """Call by call, up to the first that has to be tried again; what was taken stands in `incidents`."""
    sent, began = Sent(), time.monotonic()
    for call in incidents.calls(alarms, names=names, now=now):
        if sent.calls >= MOST_CALLS or time.monotonic() - began > BUDGET_SECONDS:
            return Sent(sent.calls, None, sent.refused, cut=True, last=sent.last)
        answer = enqueue(body_of(call, post), channel, account=call.account, now=now)
        refused = sent.refused
        if not answer.ok:
            if not is_refusal(answer):
                return Sent(sent.calls, answer, refused, last=answer)
            refused = answer
        incidents.take(call)
        sent = Sent(sent.calls + 1, None, refused, last=answer)
    return sent


def alarm_of(items: Sequence[Item]) -> Alarm:
    """How the subject of these items, oldest first, stands now."""
    news = items[-1].news
    moments = {item.news.moment for item in items}
    event = news.event
    if event is None:
        return Alarm(
            subject=news.subject,
            called=short(news.subject),
            at=news.at,
            bad=Badness(Severity.INFO if news.drill else news.severity),
            opens=bool(moments & OPENS),
            wakes=bool(moments & ENDLESS),
            endless=news.moment in ENDLESS,
            over=news.moment in OVER,
        )
    # That it started is nothing that somebody who is on it would not know.
    news_at = [item.news.at for item in items if item.news.moment in OPENS - {NotificationType.STARTED}]
    return Alarm(
        subject=news.subject,
        called=short(event.event_id),
        at=max(news_at, default=event.first_seen_at),
        bad=Badness(Severity.INFO if news.drill else news.severity, event.event_type, event.not_before),
        opens=bool(moments & OPENS),
        wakes=bool(moments & WAKES),
        over=not event.open,
        handled_at=handled_at(event),
    )


def handled_at(event: EventRow) -> datetime | None:
    """Since when somebody is on it, or a decision stands."""
    approval = event.approval
    decided = (
        approval.decided_at if approval and approval.live and approval.state is not ApprovalState.PROPOSED else None
    )
    times = [one.at for one in (event.claim, event.hold) if one is not None]
    return max([*times, decided] if decided else times, default=None)


def kept(post: Delivery, channel: ChannelInUse, owners: Sequence[str]) -> Incidents:
    """What the channel holds for these owners."""
    keys = {
        owner: [PagerKey.of_json(key) for key in post.references.get(owner, {}).get("keys", ())] for owner in owners
    }
    names = [key.name for held in keys.values() for key in held]
    told = queue.told(channel.id, names) if names else {}
    return Incidents(
        keys=keys,
        storm=GROUP,
        account=fingerprint(channel.values["routing_key"]),
        told_back=bool(channel.values.get("signing_secret")),
        there={name: PagerState(state) for name, state in told.items()},
    )


def as_kept(keys: Sequence[PagerKey]) -> Mapping[str, Any] | None:
    return {"keys": [key.as_json() for key in keys]} if keys else None


def body_of(call: PagerCall, post: Delivery) -> dict[str, Any]:
    """The request of a call, still without its routing key."""
    if call.action is PagerAction.TRIGGER:
        about = {alarm.subject for alarm in call.about}
        newest = {item.news.subject: item for item in post.items if item.news.subject in about}
        return trigger_of(post, list(newest.values()), call.name)
    return {"event_action": call.action.value, "dedup_key": call.name}


def trigger_of(post: Delivery, items: Sequence[Item], name: str) -> dict[str, Any]:
    """A trigger that tells of these items: of one, of several as the post words them, of none for a try."""
    alone = items[0] if len(items) == 1 else None
    words = alone.words if alone else post.words
    url = post.url.removesuffix(post.words.path) + words.path
    drill = bool(items) and all(item.news.drill for item in items)
    title = words.title if not drill or "DRILL" in words.title else f"DRILL: {words.title}"
    worst = reduce(Badness.with_worst_of, (Badness(item.news.severity) for item in items), Badness()).severity
    return {
        "event_action": PagerAction.TRIGGER.value,
        "dedup_key": name,
        "client": "Drydock",
        "client_url": url,
        "links": [{"href": url, "text": OPEN}],
        "payload": {
            "summary": cut(title, MOST_SUMMARY),
            "source": source_of(items),
            "severity": Severity.INFO.value if drill else worst,
            "timestamp": iso(items[-1].news.at if items else post.at),
            "custom_details": {"text": "\n".join(cut(line, MOST_LINE) for line in words.lines[:MOST_LINES])},
            **(of_one(alone) if alone else {}),
        },
    }


def of_one(item: Item) -> dict[str, Any]:
    """The fields of a payload that only one subject has."""
    event = item.news.event
    found: dict[str, Any] = {"group": cut(item.news.service, MOST_KEY)} if item.news.service else {}
    if event is None:
        return found
    details = {
        "text": "\n".join(cut(line, MOST_LINE) for line in item.words.lines[:MOST_LINES]),
        "event": event.event_id,
        "machines": [cut(name, MOST_KEY) for name in event.resources[:MOST_NAMES]],
        "not_before": iso(event.not_before) if event.not_before else None,
        "decide_by": iso(item.news.card.decide_by) if item.news.card and item.news.card.decide_by else None,
    }
    component = cut(event.resources[0], MOST_KEY) if event.resources else ""
    return {**found, "class": cut(event.event_type, MOST_KEY), "component": component, "custom_details": details}


def source_of(items: Sequence[Item]) -> str:
    """Where it is: the one set of them all, else their one service, else we ourselves. Required."""
    sets = {item.news.event.set.name for item in items if item.news.event is not None}
    services = {item.news.service for item in items}
    for names in (sets, services):
        if len(names) == 1 and (name := next(iter(names))):
            return cut(name, MOST_KEY)
    return "Drydock"


def enqueue(body: Mapping[str, Any], channel: ChannelInUse, *, now: datetime, account: str = "") -> Answer:
    """One request, with the key by which the incident was opened where it is still known."""
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


def is_refusal(answer: Answer) -> bool:
    """Whether it is this very event that PagerDuty does not take. A key that it does not know is no event's fault."""
    return answer.status == 400 and "routing" not in answer.body.lower()


def outcome(sent: Sent, found: Mapping[str, Mapping[str, Any] | None]) -> Outcome:
    told = sent.failed or sent.refused or sent.last
    said = {"status": told.status, "answer": told.answer} if told else {"answer": ""}
    if sent.cut:
        return Outcome(
            ok=False, again=True, error="too-many-calls", wait_seconds=PAUSE_SECONDS, references=found, **said
        )
    if sent.failed is not None:
        wait = sent.failed.retry_after_seconds
        if wait is None and sent.failed.status in (403, 429):
            wait = PAUSE_SECONDS
        return Outcome(ok=False, again=True, error=str(sent.failed.error), wait_seconds=wait, references=found, **said)
    if sent.refused is not None:
        return Outcome(ok=False, error=str(sent.refused.error), references=found, **said)
    return Outcome(ok=True, references=found, **said)


def fingerprint(secret: str) -> str:
    """Which key it was, without telling it."""
    return hashlib.sha256(f"drydock {secret}".encode()).hexdigest()[:12]


def installation_of(url: str) -> str:
    """Two installations that see the same event have keys of their own."""
    return hashlib.sha256(urlsplit(url).netloc.encode()).hexdigest()[:8]


def short(name: str) -> str:
    """A name that leaves room in a key, and is still no other's."""
    return name if len(name) <= 80 else f"{name[:40]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def cut(text: str, most: int) -> str:
    """In one line, without what no reader shows."""
    line = one_line(text, most + 1)
    return line if len(line) <= most else line[: most - 1] + "…"
