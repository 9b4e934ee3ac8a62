"""Filters that word what templates show of accounts: `{% load accounts %}`."""

from django.template import Library

from fleet.accounts import text
from fleet.accounts.queries import SessionRow

register = Library()


@register.filter
def browser(session: SessionRow) -> str:
    """In which browser a session is."""
    return text.browser(session.browser, session.system)


@register.filter
def way_in(code: str) -> str:
    """How somebody came in."""
    return text.way(code)


@register.filter
def outside(kind: str) -> str:
    """Where somebody's account elsewhere is."""
    return text.OUTSIDE.get(kind, kind)
