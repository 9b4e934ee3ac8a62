"""Filters that word what templates show of people."""

from fleet.dashboard.tags.library import register
from fleet.projections.people.sessions import SessionRow
from fleet.wording import sessions


@register.filter
def browser(session: SessionRow) -> str:
    """In which browser a session is."""
    return sessions.browser(session.browser, session.system)


@register.filter
def way_in(code: str) -> str:
    """How somebody came in."""
    return sessions.way(code)
