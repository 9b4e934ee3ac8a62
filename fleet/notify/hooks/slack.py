"""Slack's interactivity: somebody pressed *Claim*. Slack wants its answer within three seconds, so that what the
person is told goes out behind it.
"""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

import structlog
from django.conf import settings
from django.http import HttpResponse
from django.urls import reverse

from fleet.domain.refusal import Refused
from fleet.notify.channels.blocks import CLAIM_ACTION, MOST_TEXT
from fleet.notify.hooks.signatures import Incoming, NotSignedError, hook, taken, text_inside
from fleet.notify.sender.jobs import HttpJob
from fleet.notify.sender.pool import send
from fleet.operations.messages import hooks
from fleet.operations.messages.hooks import HookChannel
from fleet.operations.people import outside
from fleet.wording import presses
from fleet.wording.formats import for_slack
from fleet.wording.reader import API
from fleet.wording.say import refusal

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
        told = claim(incoming, channel, press, event_id, signature)
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


def claim(incoming: Incoming, channel: HookChannel, press: dict[str, Any], event_id: str, signature: str) -> str:
    """What the person is told of it; empty where this press was taken before."""
    who = {
        "kind": "slack",
        "team": text_inside(press, "user", "team_id") or text_inside(press, "team", "id"),
        "account": text_inside(press, "user", "id"),
    }
    person = outside.person_of(**who)
    if person is None:
        name = text_inside(press, "user", "username") or text_inside(press, "user", "name")
        outside.note_stranger(**who, name=name, now=incoming.now)
        address = reverse("you-account", args=[outside.invitation(**who, name=name)])
        return presses.stranger(who["account"], settings.BASE_URL.rstrip("/") + address)
    acts = incoming.actor(person, "slack", channel)
    key = hashlib.sha256(signature.encode()).hexdigest()
    try:
        row = hooks.claim_once(channel_id=channel.id, key=key, event_id=event_id[:200], actor=acts, now=incoming.now)
    except Refused as error:
        return presses.refused(refusal(error, API)["sentence"])
    return presses.claimed(person.get_username()) if row is not None else ""


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
