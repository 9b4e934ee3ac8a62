"""Endpoints for signed calls from receivers: Slack buttons and PagerDuty webhooks.

They can only claim events, with the same function as the pages.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import wraps
from typing import Any
from urllib.parse import parse_qs

import structlog
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from fleet.accounts import external_accounts
from fleet.domain import actor
from fleet.domain.actor import REQUEST_ID, Actor
from fleet.domain.reasons import Refused
from fleet.domain.texts import parse_json, readable
from fleet.domain.times import clamped
from fleet.models import Claim, ScheduledEvent
from fleet.notifications.channel_services import in_use
from fleet.notifications.channels import pagerduty
from fleet.notifications.channels.slack import CLAIM_ACTION, MOST_TEXT
from fleet.notifications.formats import for_slack, without_links
from fleet.notifications.incidents import PagerState
from fleet.notifications.models import Channel, HookCall, UnreadableSecretsError
from fleet.notifications.routing import GROUP
from fleet.notifications.sender.jobs import HttpJob
from fleet.notifications.sender.pool import send
from fleet.operations import clock
from fleet.operations.approvals import claims
from fleet.wording.say import refusal
from fleet.wording.times import API


def claim_once(*, channel_id: int, key: str, event_id: str, actor: Actor, now: datetime) -> Claim | None:
    """Claim an event for the user who pressed the button or acknowledged the incident. `key` identifies the call.
    Return None if this call was already handled, also if the claim was refused then. Raises Refused as `claims.claim`
    does.
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
    """Return the EventId for a subject such as `event:7` (row id), or an empty string if it is not an event."""
    kind, _, number = subject.partition(":")
    if kind != "event" or not number.isdecimal():
        return ""
    return ScheduledEvent.objects.filter(pk=int(number)).values_list("event_id", flat=True).first() or ""


def _first(channel_id: int, key: str, *, now: datetime) -> bool:
    # Accepted calls are remembered for longer than any call is valid.
    HookCall.objects.filter(at__lt=now - timedelta(days=2)).delete()
    return HookCall.objects.get_or_create(channel_id=channel_id, key=key, defaults={"at": now})[1]


# Common to all hooks: signature, size, and the user who acts.


# The same as the gateway's limit: a pressed button carries its whole card.
MOST_BYTES = 256 * 1024
# Largest row id.
LARGEST = 2**63 - 1


class NotSignedError(Exception):
    """The call has no valid recent signature with the channel's secret."""


def signed_channel(
    request: HttpRequest, channel_id: int, kind: str, signatures: list[str], *, now: datetime, prefix: bytes = b""
) -> Channel:
    """Return the channel after verifying that one of `signatures` was made with its secret: HMAC-SHA256 in hex over
    `prefix` and the request body. Raises NotSignedError.
    """
    wellformed = [each for each in signatures if re.fullmatch("[0-9a-f]{64}", each)][:8]
    # A call without a signature costs no query.
    rows = Channel.objects.filter(pk=channel_id, kind=kind, enabled=True, deleted_at__isnull=True, owner=None)
    row = rows.first() if wellformed else None
    if row is None:
        raise NotSignedError
    try:
        secret = str(in_use(row, now=now).get("signing_secret") or "")
    except UnreadableSecretsError:
        secret = ""
    expected = hmac.new(secret.encode(), prefix + request.body, hashlib.sha256).hexdigest()
    if not secret or not any(hmac.compare_digest(expected, each) for each in wellformed):
        raise NotSignedError
    return row


def linked_actor(
    request: HttpRequest, channel: Channel, account: Mapping[str, str], name: str, *, now: datetime
) -> Actor | None:
    """Return the actor for the user who is linked to an external account (`kind`, `team`, `account`). For an unlinked
    account return None, and record it under `name` for administrators.
    """
    user, meta = external_accounts.person_of(**account), request.META
    if user is None:
        external_accounts.note_stranger(**account, name=name, now=now)
        return None
    request_id, address = meta.get(REQUEST_ID, ""), meta["REMOTE_ADDR"]
    return actor.person(user, account["kind"], token_name=channel.name, request_id=request_id, address=address)


Hook = Callable[[HttpRequest, int, datetime], HttpResponse]


def hook(view: Hook) -> Callable[..., HttpResponse]:
    """Decorate a view for signed calls by programs. CSRF protection is disabled, because these calls carry no
    cookies.
    """

    @csrf_exempt
    @require_POST
    @wraps(view)
    def answer(request: HttpRequest, channel: int) -> HttpResponse:
        size = str(request.META.get("CONTENT_LENGTH") or "0")
        # Checked before the body is read.
        if not size.isdecimal() or int(size[:12]) > MOST_BYTES:
            return HttpResponse(status=413)
        # The caller repeats a call that is answered with 503.
        if not clock.may_clock_decide():
            return HttpResponse(status=503)
        try:
            if channel > LARGEST:
                raise NotSignedError
            return view(request, channel, clock.now())
        except NotSignedError:
            return HttpResponse(status=401)

    return answer


def time_of(text: Any) -> datetime | None:
    """Parse an ISO 8601 time. Return None if it is invalid. A time outside the accepted years is moved to the nearest
    one.
    """
    try:
        return clamped(datetime.fromisoformat(str(text)))
    except (ValueError, OverflowError):
        return None


def inside(value: Any, *names: str) -> Any:
    """Return the value at the path `names` in a JSON object, or None if it does not exist."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_inside(value: Any, *names: str) -> str:
    """Return the text at the path `names` in a JSON object, made valid for the database, or an empty string."""
    text = inside(value, *names)
    return readable(text.encode("utf-8", "replace").decode()) if isinstance(text, str) else ""


# PagerDuty's webhooks, version 3: actions of users on incidents of Drydock.

STATES = {
    "incident.acknowledged": PagerState.ACKNOWLEDGED,
    "incident.resolved": PagerState.RESOLVED,
    "incident.unacknowledged": PagerState.TRIGGERED,
    "incident.reopened": PagerState.TRIGGERED,
}
MOST_KEY = 255

log = structlog.get_logger(__name__)


@hook
def webhook(request: HttpRequest, channel_id: int, now: datetime) -> HttpResponse:
    """Handle a PagerDuty webhook call. Record the state that it reports for an open incident of this channel; an
    acknowledgement also claims the event.
    """
    parts = [part.strip().partition("=") for part in request.headers.get("X-PagerDuty-Signature", "").split(",")[:8]]
    signatures = [digest for version, _, digest in parts if version == "v1"]
    channel = signed_channel(request, channel_id, "pagerduty", signatures, now=now)
    try:
        event = inside(parse_json(request.body), "event")
    except ValueError:
        event = None
    state, name = STATES.get(text_inside(event, "event_type")), text_inside(event, "data", "incident_key")[:MOST_KEY]
    incident = pagerduty.find_key(channel.pk, name) if state and name else None
    if incident is not None and state is not None:
        (owner, key), at = incident, min(time_of(event.get("occurred_at")) or now, now)
        pagerduty.note_state(channel.pk, name, state=state, at=at, now=now)
        # PagerDuty repeats calls for hours while Drydock is unavailable; an old acknowledgement does not show the
        # current state. Acknowledging a digest claims none of its events.
        is_news = state is PagerState.ACKNOWLEDGED and now - at <= timedelta(minutes=15)
        if is_news and owner != GROUP and key.subjects:
            claim(request, channel, event, event_of(key.subjects[0]), now=now)
    # The call need not be repeated.
    return HttpResponse(status=200)


def claim(request: HttpRequest, channel: Channel, event: dict[str, Any], event_id: str, *, now: datetime) -> None:
    """Claim the event for the user who acknowledged the PagerDuty incident. Acknowledgements by programs, such as
    Drydock itself, are ignored.
    """
    agent = inside(event, "agent")
    account = {"kind": "pagerduty", "team": "", "account": text_inside(agent, "id")}
    if not event_id or not account["account"] or text_inside(agent, "type") not in ("user_reference", "user"):
        return
    acting = linked_actor(request, channel, account, text_inside(agent, "summary"), now=now)
    if acting is None:
        return
    # The header may name several signatures in any order, so that a repeat could have another one.
    key = text_inside(event, "id")[:100] or hashlib.sha256(request.body).hexdigest()
    try:
        claim_once(channel_id=channel.pk, key=key, event_id=event_id, actor=acting, now=now)
    except Refused as error:
        log.info("hook.refused", channel=channel.name, person=acting.name, code=error.code)


# Slack's interactivity: a user pressed Claim. Slack requires an answer within three seconds, so that the text for the
# user is sent in the background.

# Addresses of Slack for messages that only one user sees.
RESPONSES = ("https://hooks.slack.com/",)

# Sending an answer may take a moment; no request waits for it.
_behind = ThreadPoolExecutor(2, thread_name_prefix="slack answers")


@hook
def interactivity(request: HttpRequest, channel_id: int, now: datetime) -> HttpResponse:
    """Handle a press of a Slack button. The form field `payload` contains the data."""
    stated = request.headers.get("X-Slack-Request-Timestamp", "")
    version, _, signature = request.headers.get("X-Slack-Signature", "").partition("=")
    if version != "v0" or not is_now(stated, now):
        raise NotSignedError
    channel = signed_channel(request, channel_id, "slack", [signature], now=now, prefix=f"v0:{stated}:".encode())
    press = pressed(request.body)
    if press is None:
        return HttpResponse(status=400)
    actions = press.get("actions")
    # Slack also reports clicks on links.
    pressed_ones = actions if press.get("type") == "block_actions" and isinstance(actions, list) else []
    claimed = (text_inside(one, "value") for one in pressed_ones if text_inside(one, "action_id") == CLAIM_ACTION)
    if event_id := next(claimed, ""):
        text = claim_button(request, channel, press, event_id, signature, now=now)
        answer_user(text_inside(press, "response_url"), text, now=now)
    # The call need not be repeated.
    return HttpResponse(status=200)


def is_now(stated: str, now: datetime) -> bool:
    """Return whether a timestamp from a request is at most five minutes from the current time."""
    return bool(re.fullmatch("[0-9]{1,12}", stated)) and abs(now.timestamp() - int(stated)) <= 300


def pressed(body: bytes) -> dict[str, Any] | None:
    """Return the decoded form field `payload` of a Slack call, or None."""
    try:
        fields = parse_qs(body.decode(), max_num_fields=10)
        press = parse_json(fields["payload"][0])
    except (ValueError, KeyError):
        return None
    return press if isinstance(press, dict) else None


def claim_button(
    request: HttpRequest, channel: Channel, press: dict[str, Any], event_id: str, signature: str, *, now: datetime
) -> str:
    """Claim the event for the user who pressed the Slack button. Return the text for this user, or an empty string if
    this press was already handled.
    """
    team = text_inside(press, "user", "team_id") or text_inside(press, "team", "id")
    account = {"kind": "slack", "team": team, "account": text_inside(press, "user", "id")}
    name = text_inside(press, "user", "username") or text_inside(press, "user", "name")
    acting = linked_actor(request, channel, account, name, now=now)
    if acting is None:
        address = reverse("you-account", args=[external_accounts.invitation(**account, name=name)])
        return (
            "Nothing was claimed: Drydock does not know who you are. Open this within 10 minutes, sign in, and say that"
            f" this account is yours; the link is for you alone: {settings.BASE_URL.rstrip('/')}{address} An admin can"
            f" do it as well: your member id is {without_links(account['account'])}."
        )
    key = hashlib.sha256(signature.encode()).hexdigest()
    try:
        row = claim_once(channel_id=channel.pk, key=key, event_id=event_id[:200], actor=acting, now=now)
    except Refused as error:
        return f"Nothing was claimed. {without_links(refusal(error, API)['sentence'])}"
    done = f"You claimed the event as {without_links(acting.name)}. Decide on the page of the event."
    return done if row is not None else ""


def answer_user(url: str, text: str, *, now: datetime) -> None:
    """Send a text to the Slack user who pressed a button. `url` is the response address in Slack's call; addresses
    outside Slack are ignored.
    """
    if text and url.startswith(RESPONSES):
        answer = {"response_type": "ephemeral", "replace_original": False, "text": for_slack(text, MOST_TEXT)}
        headers = {"Content-Type": "application/json; charset=utf-8"}
        job = HttpJob("POST", url, headers, json.dumps(answer).encode(), limit_seconds=8.0)
        _behind.submit(_send_answer, job, now)


def _send_answer(job: HttpJob, now: datetime) -> None:
    answer = send(job, now=now)
    if not answer.ok:
        log.warning("hook.answer_not_taken", channel="slack", status=answer.status, error=str(answer.error))


# URL routes of the hooks; each names a channel by its row id.


urlpatterns = [
    path("slack/<int:channel>/", interactivity, name="hook-slack"),
    path("pagerduty/<int:channel>/", webhook, name="hook-pagerduty"),
]
