"""Channels with their health, and routes: the installation's, and on a page of its own what comes to oneself."""

from typing import Any

from django.http import HttpResponse

from fleet.dashboard.pages import Asked, page, shown
from fleet.domain.messages.kinds import KINDS
from fleet.domain.people import Right
from fleet.projections.messages import backlog as waiting
from fleet.projections.messages import channels
from fleet.wording.kinds import KIND_WORDS

# What an address names of one row is of no use on the page of all.
OF_ONE = ("channel_id", "route_id")


def overview_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """The page of the installation's; also the answer to a form that was refused."""
    return _answer(request, own=False, **context)


def own_answer(request: Asked, /, **context: Any) -> HttpResponse:
    """What also comes to oneself."""
    return _answer(request, own=True, **context)


def _answer(request: Asked, /, *, own: bool, **context: Any) -> HttpResponse:
    def rows() -> dict[str, Any]:
        found = channels.listing(person=request.user, now=request.now)
        return {"channels": [row for row in found if row.own == own], "backlog": waiting.backlog(now=request.now)}

    routes = [row for row in channels.routes(person=request.user) if row.own == own]
    # In the order in which they are useful to somebody who has none yet.
    kinds = {name: words for name, words in KIND_WORDS.items() if (KINDS[name].personal if own else name != "webpush")}
    kept = {name: value for name, value in context.items() if name not in OF_ONE}
    template = "messages/own.html" if own else "messages/overview.html"
    may_make = own or request.rights.may(Right.ADMINISTER)
    parts = {"messages/channel_rows.html": rows}
    return page(request, template, parts, own_only=own, routes=routes, kinds=kinds, may_make=may_make, **kept)


overview = shown(overview_answer)
own = shown(own_answer)
