"""Filters that word what templates show of people."""

from fleet.accounts import text as account_text
from fleet.accounts.queries import SessionRow
from fleet.dashboard.tags.library import register


@register.filter
def browser(session: SessionRow) -> str:
    """In which browser a session is."""
    return account_text.browser(session.browser, session.system)


@register.filter
def way_in(code: str) -> str:
    """How somebody came in."""
    return account_text.way(code)
