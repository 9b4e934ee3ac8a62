"""What ends for good when an account may no longer sign in: its sessions, tokens and calendars. Enabling the account
again revives none of them.
"""

from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q

from fleet.domain.actor import Actor
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken, CalendarFeed
from fleet.operations.people import sessions
from fleet.operations.timeline.entries import tell


def end_access(person: User, *, now: datetime, actor: Actor) -> None:
    """End every session, token and calendar of this account, inside the transaction that disables it."""
    sessions.end_for_good(people=[person])
    lasts = Q(expires_at=None) | Q(expires_at__gt=now)
    for token in ApiToken.objects.select_for_update(of=("self",)).filter(lasts, user=person, revoked_at=None):
        ApiToken.objects.filter(pk=token.pk).update(revoked_at=now)
        note_token_ended(token, person, now=now, actor=actor)
    for feed in CalendarFeed.objects.select_for_update(of=("self",)).filter(user=person, ended_at=None):
        CalendarFeed.objects.filter(pk=feed.pk).update(ended_at=now)
        note_calendar_ended(feed, person, now=now, actor=actor)


def note_token_ended(token: ApiToken, person: User, *, now: datetime, actor: Actor) -> None:
    """Record that a token was revoked, inside the transaction that revoked it."""
    tell(
        EntryKind.TOKEN_ENDED,
        actor,
        at=now,
        before={"token": token.prefix},
        after={"token": None},
        person=person.get_username(),
        name=token.name,
    )


def note_calendar_ended(feed: CalendarFeed, person: User, *, now: datetime, actor: Actor) -> None:
    """Record that a calendar was ended, inside the transaction that ended it."""
    tell(
        EntryKind.CALENDAR_ENDED,
        actor,
        at=now,
        before={"calendar": feed.prefix},
        after={"calendar": None},
        person=person.get_username(),
        name=feed.name,
    )
