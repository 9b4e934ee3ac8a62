"""PagerDuty's webhooks, version 3: what people do there to incidents of ours.

Everything that is signed is answered with 200: what is not ours would otherwise end the subscription.
"""

import json
from datetime import timedelta
from typing import Any

import structlog
from django.http import HttpResponse

from fleet.domain.messages.incidents import PagerState
from fleet.domain.refusal import Refused
from fleet.notify.hooks.signatures import Incoming, hook, inside, taken, text_inside, time_of
from fleet.operations.messages import hooks, references
from fleet.operations.messages.hooks import HookChannel
from fleet.operations.people import outside

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
    held = references.held_key(channel.id, name) if state and name else None
    if held is None or state is None:
        return
    at = min(time_of(event.get("occurred_at")) or incoming.now, incoming.now)
    references.note_told(channel.id, name, state=state.value, at=at, now=incoming.now)
    # Nobody is on all events of a storm.
    if state is PagerState.ACKNOWLEDGED and not held.storm and incoming.now - at <= NEW_FOR:
        claim(incoming, channel, event, hooks.event_of(held.left[0]) if held.left else "")


def claim(incoming: Incoming, channel: HookChannel, event: dict[str, Any], event_id: str) -> None:
    """Claim the event for whoever acknowledged: for nobody where that was a program, as we are one ourselves."""
    agent = inside(event, "agent")
    account = text_inside(agent, "id")
    if not event_id or not account or text_inside(agent, "type") not in ("user_reference", "user"):
        return
    person = outside.person_of(kind="pagerduty", team="", account=account)
    if person is None:
        name = text_inside(agent, "summary")
        outside.note_stranger(kind="pagerduty", team="", account=account, name=name, now=incoming.now)
        return
    acts = incoming.actor(person, "pagerduty", channel)
    key = text_inside(event, "id")[:MOST_ID] or incoming.header("X-PagerDuty-Signature")[:MOST_ID]
    try:
        hooks.claim_once(channel_id=channel.id, key=key, event_id=event_id, actor=acts, now=incoming.now)
    except Refused as error:
        log.info("hook.refused", channel=channel.name, person=acts.name, code=error.code)
