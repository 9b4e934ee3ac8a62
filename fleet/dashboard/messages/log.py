"""The log of messages out: what was sent with each attempt, what was not and why, and one post."""

from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import redirect

from fleet.dashboard.pages import Asked, acts, known, listed, page, shown
from fleet.domain.messages.moments import GROUP, TEST, Moment
from fleet.domain.messages.states import DeliveryState
from fleet.operations.messages import routes
from fleet.projections.messages import posts
from fleet.projections.messages.filters import DeliveryFilter, UnsentFilter
from fleet.projections.messages.posts import UNSENT

UNKNOWN = "No post has this number."


@shown
def sent_list(request: Asked) -> HttpResponse:
    """Posts, newest first."""
    read = partial(posts.sent, user_id=request.user.pk, now=request.now, posts=DeliveryFilter(request.GET).qs)
    choices = _choices(request, list(DeliveryState), [*Moment, GROUP, TEST])
    return listed(request, "messages/log.html", "messages/sent_rows.html", read, **choices)


@shown
def unsent_list(request: Asked) -> HttpResponse:
    """Messages that no post carries, newest first."""
    read = partial(posts.unsent, user_id=request.user.pk, messages=UnsentFilter(request.GET).qs)
    choices = _choices(request, list(UNSENT), list(Moment))
    return listed(request, "messages/log.html", "messages/unsent_rows.html", read, of_unsent=True, **choices)


def _choices(request: Asked, states: list[Any], moments: list[str]) -> dict[str, Any]:
    """What the filter offers, and what it is set to."""
    chosen = {name: request.GET.get(name, "") for name in ("channel", "state", "event", "moment")}
    return {
        "states": states,
        "moments": moments,
        "through": posts.channels(user_id=request.user.pk),
        "chosen": chosen,
        "narrowed": any(chosen.values()),
    }


def delivery_answer(request: Asked, /, delivery_id: UUID, **context: Any) -> HttpResponse:
    """One post; also the answer to a form on it that was refused."""
    found = known(posts.post(delivery_id=delivery_id, user_id=request.user.pk, now=request.now), UNKNOWN)
    return page(request, "messages/delivery.html", {"messages/delivery_body.html": dict}, post=found, **context)


delivery_page = shown(delivery_answer)


@acts(delivery_answer)
def delivery_again(request: Asked, delivery_id: UUID) -> HttpResponse:
    """Send it once more, under the same id."""
    found = known(posts.post(delivery_id=delivery_id, user_id=request.user.pk, now=request.now), UNKNOWN)
    first = known(next(iter(found.messages), None), "This post carries no message: try its channel instead.")
    routes.redeliver(message_id=first.id, actor=request.actor, now=request.now)
    return redirect("delivery", delivery_id=delivery_id)
