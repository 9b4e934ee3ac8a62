"""One's accounts in Slack and PagerDuty: saying that one is one's own, and that it no longer is."""

from typing import Any

from django.http import HttpResponse

from fleet.dashboard.pages import Asked, acts, done, page, refused, shown
from fleet.dashboard.people.you import you_answer
from fleet.domain.reasons import Refused
from fleet.operations.people import outside
from fleet.wording.people import OUTSIDE


def invitation_answer(request: Asked, /, invitation: str, **context: Any) -> HttpResponse:
    """The question whether an account is one's own. Opening it does nothing."""
    try:
        kind, team, account, name = outside.invited(invitation)
        told = {"kind": OUTSIDE.get(kind, kind), "team": team, "account": account, "name": name}
    except Refused as error:
        told = refused(error)
    return page(request, "people/account.html", **{"invitation": invitation, **told, **context})


account = shown(invitation_answer)


@acts(invitation_answer)
def link_account(request: Asked, invitation: str) -> HttpResponse:
    row = outside.link_own(actor=request.actor, token=invitation, now=request.now)
    return done(request, f"What the {OUTSIDE[row.kind]} account {row.account} claims, you claim.", "you")


@acts(you_answer)
def unlink_account(request: Asked, account_id: int) -> HttpResponse:
    outside.unlink(actor=request.actor, account_id=account_id, now=request.now)
    return done(request, "It claims nothing for you any more.", "you")
