"""Signed calls from receivers: Slack buttons and PagerDuty webhooks.

They claim events, through the same operation as the pages, and nothing else.
"""

import hashlib
import hmac
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import wraps
from typing import Any
from urllib.parse import parse_qs

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from fleet.accounts import external_accounts
from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID, Actor
from fleet.domain.reasons import Refused
from fleet.domain.texts import readable
from fleet.domain.times import clamped
from fleet.models import Claim, ScheduledEvent
from fleet.notifications import formats, queue
from fleet.notifications.channel_services import UnreadableSecretsError, in_use
from fleet.notifications.channels.slack import CLAIM_ACTION, MOST_TEXT
from fleet.notifications.formats import for_slack
from fleet.notifications.incidents import PagerState
from fleet.notifications.models import Channel, HookCall
from fleet.notifications.sender.jobs import HttpJob
from fleet.notifications.sender.pool import send
from fleet.operations import clock
from fleet.operations.approvals import claims
from fleet.wording.say import refusal
from fleet.wording.times import API

# A call that was taken is known for so long: longer than any of them counts as new.
KNOWN_FOR = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class HookChannel:
    """A channel that calls come back to."""

    id: int
    name: str
    signing_secret: str = field(repr=False)


def channel_of(*, channel_id: int, kind: str, now: datetime) -> HookChannel | None:
    """The channel of this kind and row id, if calls may come back to it."""
    row = Channel.objects.filter(pk=channel_id, kind=kind, enabled=True, deleted_at__isnull=True, owner=None).first()
    if row is None:
        return None
    try:
        secret = str(in_use(row, now=now).get("signing_secret") or "")
    except UnreadableSecretsError:
        return None
    return HookChannel(row.pk, row.name, secret) if secret else None


def claim_once(*, channel_id: int, key: str, event_id: str, actor: Actor, now: datetime) -> Claim | None:
    """Claim an event for whoever pressed or acknowledged, unless this very call was taken before (None).

    A call that is refused was taken, too. Raises Refused as `claims.claim` does.
    """
    try:
        with transaction.atomic():
            if not _first(channel_id, key, now=now):
                return None
            return claims.claim(event_id=event_id, actor=actor, now=now)
    except Refused:
        _first(channel_id, key, now=now)
        raise


def event_of(subject: str) -> str:
    """The EventId behind `event:7`; empty where the subject is no event."""
    kind, _, number = subject.partition(":")
    if kind != "event" or not number.isdecimal():
        return ""
    return ScheduledEvent.objects.filter(pk=int(number)).values_list("event_id", flat=True).first() or ""


def _first(channel_id: int, key: str, *, now: datetime) -> bool:
    HookCall.objects.filter(at__lt=now - KNOWN_FOR).delete()
    return HookCall.objects.get_or_create(channel_id=channel_id, key=key, defaults={"at": now})[1]


# What every hook has in common: who signed it, how long it may be, and as whom it acts.


# As the gateway's, which has not let in more; a press of a button carries its whole card.
MOST_BYTES = 256 * 1024
HEX = frozenset("0123456789abcdef")
# Of a row's number.
LARGEST = 2**63 - 1


class NotSignedError(Exception):
    """Nobody who knows the channel's secret has sent it, or not just now."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One call that has not been looked at yet."""

    request: HttpRequest
    channel_id: int
    now: datetime

    def header(self, name: str) -> str:
        return str(self.request.headers.get(name, ""))

    def body(self) -> bytes:
        return self.request.body

    def signed_by(self, kind: str, told: list[str], *, before: bytes = b"") -> HookChannel:
        """The channel with whose secret one of these (hex HMAC-SHA256 each) was made, over `before` and the body.

        Raises NotSignedError.
        """
        sane = [one for one in told if len(one) == 64 and set(one) <= HEX][:8]
        # What carries no signature costs no question.
        found = channel_of(channel_id=self.channel_id, kind=kind, now=self.now) if sane else None
        if found is None:
            raise NotSignedError
        made = hmac.new(found.signing_secret.encode(), before + self.body(), hashlib.sha256).hexdigest()
        if not any(hmac.compare_digest(made, one) for one in sane):
            raise NotSignedError
        return found

    def actor(self, person: User, via: str, channel: HookChannel) -> Actor:
        """The person as whom it acts."""
        meta = self.request.META
        return actor.person(
            person,
            via,
            token_name=channel.name,
            request_id=meta.get(REQUEST_ID, ""),
            address=meta["REMOTE_ADDR"],
        )


Hook = Callable[[Incoming], HttpResponse]


def hook(view: Hook) -> Callable[..., HttpResponse]:
    """A view for calls of programs: they carry no cookie, so there is nothing to forge, and a signature instead."""

    @csrf_exempt
    @require_POST
    @wraps(view)
    def answer(request: HttpRequest, channel: int) -> HttpResponse:
        size = str(request.META.get("CONTENT_LENGTH") or "0")
        # Before it is read.
        if not size.isdecimal() or int(size[:12]) > MOST_BYTES:
            return HttpResponse(status=413)
        if channel > LARGEST:
            return HttpResponse(status=401)
        try:
            # Whoever sent it sends it again.
            if not clock.may_clock_decide():
                return HttpResponse(status=503)
            return view(Incoming(request, channel, clock.now()))
        except NotSignedError:
            return HttpResponse(status=401)

    return answer


def taken() -> HttpResponse:
    """Whoever sent it need not send it again."""
    return HttpResponse(status=200)


def time_of(text: Any) -> datetime | None:
    """An ISO 8601 time, within the years that count; None where it is none."""
    try:
        return clamped(datetime.fromisoformat(str(text)))
    except (ValueError, OverflowError):
        return None


def inside(value: Any, *names: str) -> Any:
    """What stands there in a JSON object; None where anything on the way is something else."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_inside(value: Any, *names: str) -> str:
    """The text that stands there, fit for the database; empty where there is none."""
    found = inside(value, *names)
    return readable(found.encode("utf-8", "replace").decode()) if isinstance(found, str) else ""


# PagerDuty's webhooks, version 3: what people do there to incidents of ours.

# It is told again for hours when we are away; what somebody acknowledged that long ago says nothing of now.
NEW_FOR = timedelta(minutes=15)
STATES = {
    "incident.acknowledged": PagerState.ACKNOWLEDGED,
    "incident.resolved": PagerState.RESOLVED,
    "incident.unacknowledged": PagerState.TRIGGERED,
    "incident.reopened": PagerState.TRIGGERED,
}
MOST_KEY = 255
MOST_ID = 100

log = structlog.get_logger(__name__)


@hook
def webhook(incoming: Incoming) -> HttpResponse:
    """One event of an incident."""
    told = [part.strip().partition("=") for part in incoming.header("X-PagerDuty-Signature").split(",")[:8]]
    channel = incoming.signed_by("pagerduty", [digest for version, _, digest in told if version == "v1"])
    try:
        event = inside(json.loads(incoming.body()), "event")
    except (ValueError, RecursionError):
        event = None
    if isinstance(event, dict):
        hear(incoming, channel, event)
    return taken()


def hear(incoming: Incoming, channel: HookChannel, event: dict[str, Any]) -> None:
    """What was done to an incident, if it is one of ours that is not over."""
    state = STATES.get(text_inside(event, "event_type"))
    name = text_inside(event, "data", "incident_key")[:MOST_KEY]
    held = queue.held_key(channel.id, name) if state and name else None
    if held is None or state is None:
        return
    at = min(time_of(event.get("occurred_at")) or incoming.now, incoming.now)
    queue.note_told(channel.id, name, state=state.value, at=at, now=incoming.now)
    # Nobody is on all events of a storm.
    if state is PagerState.ACKNOWLEDGED and not held.storm and incoming.now - at <= NEW_FOR:
        claim(incoming, channel, event, event_of(held.left[0]) if held.left else "")


def claim(incoming: Incoming, channel: HookChannel, event: dict[str, Any], event_id: str) -> None:
    """Claim the event for whoever acknowledged: for nobody where that was a program, as we are one ourselves."""
    agent = inside(event, "agent")
    account = text_inside(agent, "id")
    if not event_id or not account or text_inside(agent, "type") not in ("user_reference", "user"):
        return
    person = external_accounts.person_of(kind="pagerduty", team="", account=account)
    if person is None:
        name = text_inside(agent, "summary")
        external_accounts.note_stranger(kind="pagerduty", team="", account=account, name=name, now=incoming.now)
        return
    acts = incoming.actor(person, "pagerduty", channel)
    key = text_inside(event, "id")[:MOST_ID] or incoming.header("X-PagerDuty-Signature")[:MOST_ID]
    try:
        claim_once(channel_id=channel.id, key=key, event_id=event_id, actor=acts, now=incoming.now)
    except Refused as error:
        log.info("hook.refused", channel=channel.name, person=acts.name, code=error.code)


# Slack's interactivity: somebody pressed *Claim*. Slack wants its answer within three seconds, so that what the
# person is told goes out behind it.

# Older or newer than that is nothing that was pressed now.
TOLERANCE_SECONDS = 300
# Where Slack takes what only one person sees.
RESPONSES = ("https://hooks.slack.com/",)
LIMIT_SECONDS = 8.0

log = structlog.get_logger(__name__)
# What people are told may take a moment, and nobody waits for it.
_behind = ThreadPoolExecutor(2, thread_name_prefix="slack answers")


@hook
def interactivity(incoming: Incoming) -> HttpResponse:
    """One press, as the form field `payload`."""
    stated = incoming.header("X-Slack-Request-Timestamp")
    version, _, signature = incoming.header("X-Slack-Signature").partition("=")
    if version != "v0" or not is_now(stated, incoming.now):
        raise NotSignedError
    channel = incoming.signed_by("slack", [signature], before=f"v0:{stated}:".encode())
    press = pressed(incoming.body())
    if press is None:
        return HttpResponse(status=400)
    event_id = claims_which(press)
    if event_id:
        told = claim_button(incoming, channel, press, event_id, signature)
        whisper(text_inside(press, "response_url"), told, now=incoming.now)
    return taken()


def is_now(stated: str, now: datetime) -> bool:
    """Whether this is about now, by whose clock ever."""
    sane = stated.isascii() and stated.isdecimal() and len(stated) <= 12
    return sane and abs(now.timestamp() - int(stated)) <= TOLERANCE_SECONDS


def pressed(body: bytes) -> dict[str, Any] | None:
    """The payload of the form; None where there is none."""
    try:
        fields = parse_qs(body.decode(), max_num_fields=10)
        found = json.loads(fields["payload"][0])
    except (ValueError, KeyError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def claims_which(press: dict[str, Any]) -> str:
    """The EventId to claim; empty for everything else, such as the link, which Slack tells of as well."""
    actions = press.get("actions")
    if press.get("type") != "block_actions" or not isinstance(actions, list):
        return ""
    return next((text_inside(one, "value") for one in actions if text_inside(one, "action_id") == CLAIM_ACTION), "")


def claim_button(incoming: Incoming, channel: HookChannel, press: dict[str, Any], event_id: str, signature: str) -> str:
    """What the person is told of it; empty where this press was taken before."""
    who = {
        "kind": "slack",
        "team": text_inside(press, "user", "team_id") or text_inside(press, "team", "id"),
        "account": text_inside(press, "user", "id"),
    }
    person = external_accounts.person_of(**who)
    if person is None:
        name = text_inside(press, "user", "username") or text_inside(press, "user", "name")
        external_accounts.note_stranger(**who, name=name, now=incoming.now)
        address = reverse("you-account", args=[external_accounts.invitation(**who, name=name)])
        return formats.stranger(who["account"], settings.BASE_URL.rstrip("/") + address)
    acts = incoming.actor(person, "slack", channel)
    key = hashlib.sha256(signature.encode()).hexdigest()
    try:
        row = claim_once(channel_id=channel.id, key=key, event_id=event_id[:200], actor=acts, now=incoming.now)
    except Refused as error:
        return formats.refused(refusal(error, API)["sentence"])
    return formats.claimed(person.get_username()) if row is not None else ""


def whisper(url: str, text: str, *, now: datetime) -> None:
    """Tell only whoever pressed, where Slack says; nowhere else."""
    if text and url.startswith(RESPONSES):
        told = {
            "response_type": "ephemeral",
            "replace_original": False,
            "text": for_slack(text, MOST_TEXT),
        }
        headers = {"Content-Type": "application/json; charset=utf-8"}
        job = HttpJob("POST", url, headers, json.dumps(told).encode(), limit_seconds=LIMIT_SECONDS)
        _behind.submit(_whisper, job, now)


def _whisper(job: HttpJob, now: datetime) -> None:
    answer = send(job, now=now)
    if not answer.ok:
        log.warning("hook.answer_not_taken", channel="slack", status=answer.status, error=str(answer.error))


# Addresses of the hooks; each names a channel by its row id.


urlpatterns = [
    path("slack/<int:channel>/", interactivity, name="hook-slack"),
    path("pagerduty/<int:channel>/", webhook, name="hook-pagerduty"),
]
