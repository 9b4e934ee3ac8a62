"""Template filters for accounts, loaded with `{% load accounts %}`."""

from django.template import Library

from fleet.accounts import text
from fleet.accounts.queries import SessionRow

register = Library()


@register.filter
def browser(session: SessionRow) -> str:
    """Return the browser and operating system of a session as text."""
    return text.browser(session.browser, session.system)


@register.filter
def way_in(code: str) -> str:
    """Return the label of a sign-in method code."""
    return text.way(code)


@register.filter
def outside(kind: str) -> str:
    """Return the name of the service (Slack, PagerDuty) of an external account."""
    return text.OUTSIDE.get(kind, kind)
