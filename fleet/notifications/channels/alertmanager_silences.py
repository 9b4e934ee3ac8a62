"""Alertmanager silences for machines and caches under maintenance, and the API client."""

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from django.conf import settings

from fleet.domain.times import iso
from fleet.notifications.channels.base import ChannelInUse, Outcome
from fleet.notifications.incidents import LEASE, LabelMatcher, Muted, SilenceLine, read_lines, still_silenced
from fleet.notifications.news import OpenThing, live_caches, live_machines, muted_machines
from fleet.notifications.payloads import silence_comment
from fleet.notifications.sender.jobs import Answer, HttpJob
from fleet.notifications.sender.pool import send

LIMIT_SECONDS = 10.0
# Well within the lease of the channel; the next round does the rest.
ROUND_SECONDS = 25.0
MOST_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Called:
    """Answer to a call, and its content if it can be parsed."""

    answer: Answer
    content: Any = None

    @property
    def ok(self) -> bool:
        return self.answer.ok

    @property
    def status(self) -> int | None:
        return self.answer.status

    @property
    def outcome(self) -> Outcome:
        """Outcome for the sender; every failure is retried."""
        answer = self.answer
        return Outcome(
            ok=answer.ok,
            again=not answer.ok,
            status=answer.status,
            error=str(answer.error),
            answer=answer.answer,
            wait_seconds=answer.retry_after_seconds,
        )


class Alertmanager:
    """Client of one Alertmanager, for one round."""

    def __init__(self, channel: ChannelInUse, *, now: datetime) -> None:
        self.base = str(channel.values["url"]).rstrip("/")
        self.now = now
        self.until = time.monotonic() + ROUND_SECONDS
        self.headers = {"Accept": "application/json"}
        user, password = str(channel.values.get("user") or ""), str(channel.values.get("password") or "")
        if user or password:
            self.headers["Authorization"] = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

    @property
    def late(self) -> bool:
        """Whether the time is over, so that the next round does the rest."""
        return time.monotonic() >= self.until

    def call(self, method: str, path: str, body: Any = None, query: Sequence[tuple[str, str]] = ()) -> Called:
        """Make one call, without exceptions. `path` is below `/api/v2`; each part of it is quoted."""
        parts = "/".join(quote(part, safe="") for part in path.split("/"))
        url = f"{self.base}/api/v2{parts}" + (f"?{urlencode(query)}" if query else "")
        headers = self.headers if body is None else {**self.headers, "Content-Type": "application/json"}
        payload = b"" if body is None else json.dumps(body).encode()
        job = HttpJob(method, url, headers, payload, limit_seconds=LIMIT_SECONDS, most_bytes=MOST_BYTES)
        answer = send(job, now=self.now)
        try:
            content = None if answer.cut or not answer.body else json.loads(answer.body)
        except ValueError:
            content = None
        return Called(answer, content)


# Maintenance silences: created when an event is seen as Started, renewed in steps, and ended when its end is seen.

OURS = "Drydock"
# Renewed when at most this time is left.
RENEW_WITH = LEASE / 2
# Difference by which the stored end of a silence may precede the requested one.
SLACK = timedelta(seconds=2)
# Machines for which a preview queries, and alerts that it names.
MOST_TRIED = 50
MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Preview:
    """Alerts that one line would silence now: their number, and the first by name. `machines` is the number of
    machines (or caches) in the query; `error` and `answer` state why the result is unknown.
    """

    line: str
    matchers: tuple[str, ...]
    machines: int
    alerts: int = 0
    names: tuple[str, ...] = ()
    error: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One silence for an event or maintenance by one line. `key` is a hash of the line."""

    thing: OpenThing
    key: str
    matchers: tuple[LabelMatcher, ...]
    until: datetime

    @property
    def mark(self) -> str:
        """Mark in the comment, by which Drydock finds a silence without a record, with the end of its lease."""
        return f"{self.owner} until={iso(self.until)}]"

    @property
    def owner(self) -> str:
        return f"[drydock:{urlsplit(settings.BASE_URL).netloc}:{self.thing.subject}:{self.key}"

    def body(self, starts_at: str) -> dict[str, Any]:
        return {
            "matchers": [
                {"name": each.name, "value": each.value, "isRegex": each.regex, "isEqual": each.equal}
                for each in self.matchers
            ],
            "startsAt": starts_at,
            "endsAt": iso(self.until),
            "createdBy": OURS,
            "comment": silence_comment(self.thing, self.mark),
        }


@dataclass(slots=True)
class Round:
    """Stored silences by subject and line, as one round changes them."""

    alertmanager: Alertmanager
    now: datetime
    kept: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    failed: Outcome | None = None

    def keep(self, wanted: Wanted, silence_id: str, until: datetime) -> None:
        self.kept.setdefault(wanted.thing.subject, {})[wanted.key] = {"id": silence_id, "until": iso(until)}

    def leave_alone(self, wanted: Wanted) -> None:
        """Record that a user expired or took over a silence: it is not created again."""
        self.kept.setdefault(wanted.thing.subject, {})[wanted.key] = {"left_alone": True}

    def note(self, called: Called) -> bool:
        """Return whether a call succeeded; the first failure is the result of the round."""
        if not called.ok and self.failed is None:
            self.failed = called.outcome
        return called.ok


def mirror_silences(
    alertmanager: Alertmanager,
    values: Mapping[str, Any],
    things: Sequence[OpenThing],
    kept: Mapping[str, Mapping[str, Any] | None],
    *,
    now: datetime,
) -> Outcome:
    """Create, renew and end silences within the time limit. Return the references to store for each subject."""
    was = {subject: dict(value.get("silences", {})) for subject, value in kept.items() if value}
    done = Round(alertmanager, now, {subject: dict(silences) for subject, silences in was.items()})
    wanted = list(_wanted(_lines(values), things, now))
    keys = {(one.thing.subject, one.key) for one in wanted}
    for subject, silences in was.items():
        for key, silence in silences.items():
            if (subject, key) not in keys and not alertmanager.late and _over(alertmanager, silence, done):
                del done.kept[subject][key]
    for one in sorted(wanted, key=lambda one: str(was.get(one.thing.subject, {}).get(one.key, {}).get("until", ""))):
        if alertmanager.late:
            break
        _hold(one, was.get(one.thing.subject, {}).get(one.key), done)
    references = {
        subject: _reference(kept.get(subject) or {}, silences)
        for subject, silences in done.kept.items()
        if silences != was.get(subject, {})
    }
    return replace(done.failed or Outcome(ok=True), references=references)


def previews(alertmanager: Alertmanager, values: Mapping[str, Any], *, now: datetime) -> tuple[Preview, ...]:
    """Return the alerts that each line would silence now, by a query to Alertmanager."""
    return tuple(_preview(alertmanager, line, now) for line in _lines(values))


def _lines(values: Mapping[str, Any]) -> tuple[SilenceLine, ...]:
    stated = values.get("silences") or []
    return read_lines(stated.splitlines() if isinstance(stated, str) else stated)


def _wanted(lines: Sequence[SilenceLine], things: Sequence[OpenThing], now: datetime) -> Iterator[Wanted]:
    under_way = [
        thing
        for thing in things
        if not thing.drill
        and still_silenced(started_at=thing.started_at, now=now)
        and any(line.holds_for(thing.service) for line in lines)
    ]
    machines = muted_machines(under_way) if under_way else {}
    for thing in under_way:
        muted = (Muted(cache=(thing.cache_host,)),) if thing.cache_host else machines[thing.subject]
        until = still_silenced(started_at=thing.started_at, now=now)
        for line in lines:
            matchers = line.matchers(muted) if line.holds_for(thing.service) else ()
            if matchers and until:
                yield Wanted(thing, sha256(line.text.encode()).hexdigest()[:12], matchers, until)


def _hold(wanted: Wanted, silence: Mapping[str, Any] | None, done: Round) -> None:
    """Create a silence, or renew it if it is due."""
    if silence is None:
        silence = _lost(wanted, done)
        if silence is None:
            return
        if not silence:
            _write(wanted, None, done)
            return
    if silence.get("left_alone"):
        done.leave_alone(wanted)
        return
    until = datetime.fromisoformat(silence["until"])
    seen = done.alertmanager.call("GET", f"/silence/{silence['id']}")
    if seen.status == 404:
        # Alertmanager has lost it, as it does with recent ones when it is killed.
        _write(wanted, None, done)
    elif not done.note(seen) or not isinstance(seen.content, dict):
        return
    elif _ended_by_user(seen.content, until):
        done.leave_alone(wanted)
    elif seen.content["status"]["state"] == "expired":
        _write(wanted, None, done)
    elif until - done.now <= RENEW_WITH or not _same(seen.content, wanted):
        _write(wanted, seen.content, done)
    else:
        done.keep(wanted, silence["id"], until)


def _ended_by_user(seen: Mapping[str, Any], until: datetime) -> bool:
    """Return whether it ends before its lease, or belongs to a user now."""
    return seen.get("createdBy") != OURS or datetime.fromisoformat(seen["endsAt"]) < until - SLACK


def _same(seen: Mapping[str, Any], wanted: Wanted) -> bool:
    """Return whether it has the same matchers."""
    stated = {
        (each["name"], each["value"], each["isRegex"], each.get("isEqual", True)) for each in seen.get("matchers", ())
    }
    return stated == {(each.name, each.value, each.regex, each.equal) for each in wanted.matchers}


def _write(wanted: Wanted, seen: Mapping[str, Any] | None, done: Round) -> None:
    """Create a silence, or extend the one that was read. Alertmanager changes it in place only if its other fields are
    the same.
    """
    body = wanted.body(iso(done.now))
    if seen is not None:
        body |= {"id": seen["id"], "startsAt": seen["startsAt"]}
        if _same(seen, wanted):
            body["matchers"] = seen["matchers"]
    called = done.alertmanager.call("POST", "/silences", body)
    if done.note(called) and isinstance(called.content, dict):
        done.keep(wanted, str(called.content["silenceID"]), wanted.until)


def _lost(wanted: Wanted, done: Round) -> Mapping[str, Any] | None:
    """Return Drydock's own silence without a record; empty if there is none, None if Alertmanager did not answer."""
    # Only those with this matcher: the full list contains silences that ended days ago.
    query = [("filter", str(wanted.matchers[0]))]
    called = done.alertmanager.call("GET", "/silences", query=query)
    if not done.note(called) or not isinstance(called.content, list):
        return None
    newest: Mapping[str, Any] = {}
    for each in called.content:
        comment = str(each.get("comment", ""))
        if wanted.owner in comment and each.get("updatedAt", "") >= newest.get("updatedAt", ""):
            newest = each
    if not newest:
        return {}
    _, _, rest = str(newest["comment"]).partition(f"{wanted.owner} until=")
    return {"id": str(newest["id"]), "until": rest.partition("]")[0]}


def _over(alertmanager: Alertmanager, silence: Mapping[str, Any], done: Round) -> bool:
    """Return whether a silence has ended, after an attempt to end it, so that its record can be deleted. A silence
    that a user took over is left to them.
    """
    if silence.get("left_alone"):
        return True
    seen = alertmanager.call("GET", f"/silence/{silence['id']}")
    if seen.status == 404:
        return True
    if not done.note(seen) or not isinstance(seen.content, dict):
        # It ends with its lease.
        return datetime.fromisoformat(silence["until"]) <= done.now
    if seen.content["status"]["state"] == "expired" or seen.content.get("createdBy") != OURS:
        return True
    return done.note(alertmanager.call("DELETE", f"/silence/{silence['id']}"))


def _reference(was: Mapping[str, Any], silences: Mapping[str, Any]) -> Mapping[str, Any] | None:
    rest = {name: value for name, value in was.items() if name != "silences"}
    return {**rest, "silences": dict(silences)} if silences else rest or None


def _preview(alertmanager: Alertmanager, line: SilenceLine, now: datetime) -> Preview:
    tried = (
        live_caches(line.holds_for, most=MOST_TRIED)
        if line.for_caches
        else live_machines(line.holds_for, now=now, most=MOST_TRIED)
    )
    matchers = line.matchers(tried)
    shown = tuple(map(str, matchers))
    if not matchers:
        return Preview(line.text, shown, 0)
    called = alertmanager.call("GET", "/alerts", query=[("filter", text) for text in shown])
    if not called.ok or not isinstance(called.content, list):
        answer = called.answer
        return Preview(line.text, shown, len(tried), error=str(answer.error) or "unreadable", answer=answer.answer)
    names = [_name(alert) for alert in called.content[:MOST_SHOWN]]
    return Preview(line.text, shown, len(tried), alerts=len(called.content), names=tuple(names))


def _name(alert: Mapping[str, Any]) -> str:
    labels = alert.get("labels", {})
    rest = ", ".join(f"{name}={value}" for name, value in sorted(labels.items()) if name != "alertname")
    return f"{labels.get('alertname', '')} {{{rest}}}"[:300]
