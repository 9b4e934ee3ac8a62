"""Template filters for accounts: `{% load accounts %}`."""

from django.template import Library

from fleet.accounts import text
from fleet.accounts.queries import SessionRow

register = Library()


@register.filter
def browser(session: SessionRow) -> str:
    """Return the browser and system of a session."""
    return text.browser(session.browser, session.system)


@register.filter
def way_in(code: str) -> str:
    """Return the name of a sign-in method."""
    return text.way(code)


@register.filter
def outside(kind: str) -> str:
    """Return the name of the service that holds an external account."""
    return text.OUTSIDE.get(kind, kind)
