"""What ends for good: a token with all that it made, and everything by which an account that was disabled signed in.
Enabling the account again revives none of it.
"""

from collections.abc import Callable
from datetime import datetime

from django.contrib.auth.models import User
from django.db.models import Q

from fleet.domain.actor import Actor
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken, CalendarFeed, JoinToken
from fleet.operations.people import sessions
from fleet.operations.timeline.entries import tell

# Of annexes: each ends what was made by a token that has ended.
END_MADE_WITH: list[Callable[..., None]] = []


def end_access(person: User, *, now: datetime, actor: Actor) -> None:
    """End every session, token and calendar of this account, inside the transaction that disables it."""
    sessions.end_for_good(people=[person])
    lasts = Q(expires_at=None) | Q(expires_at__gt=now)
    for token in ApiToken.objects.filter(lasts, user=person, revoked_at=None).select_related("user").order_by("pk"):
        revoke_token(token, actor=actor, now=now)
    for feed in CalendarFeed.objects.filter(user=person, ended_at=None).select_related("user").order_by("pk"):
        end_calendar(feed, actor=actor, now=now)


def revoke_token(token: ApiToken, *, actor: Actor, now: datetime) -> bool:
    """Revoke a token, with what was made by it, inside the caller's transaction. False where it has ended already."""
    if not ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True).update(revoked_at=now):
        return False
    tell(
        EntryKind.TOKEN_ENDED,
        actor,
        at=now,
        before={"token": token.prefix},
        after={"token": None},
        person=token.user.get_username(),
        name=token.name,
    )
    end_made_with(token, actor=actor, now=now)
    return True


def end_made_with(token: ApiToken, *, actor: Actor, now: datetime) -> None:
    """End what was made by a token that has ended: tokens, join tokens, and what annexes keep of it. Inside the
    caller's transaction.
    """
    for made in ApiToken.objects.filter(made_with=token, revoked_at=None).select_related("user").order_by("pk"):
        revoke_token(made, actor=actor, now=now)
    for join in JoinToken.objects.select_for_update().filter(made_with=token, revoked_at=None).order_by("pk"):
        JoinToken.objects.filter(pk=join.pk).update(revoked_at=now)
        before, after = {"ended_at": None}, {"ended_at": now}
        tell(EntryKind.JOIN_TOKEN_ENDED, actor, at=now, before=before, after=after, prefix=join.prefix)
    for end in END_MADE_WITH:
        end(token, actor=actor, now=now)


def end_calendar(feed: CalendarFeed, *, actor: Actor, now: datetime) -> bool:
    """End a calendar, inside the caller's transaction. False where it has ended already."""
    if not CalendarFeed.objects.filter(pk=feed.pk, ended_at=None).update(ended_at=now):
        return False
    tell(
        EntryKind.CALENDAR_ENDED,
        actor,
        at=now,
        before={"calendar": feed.prefix},
        after={"calendar": None},
        person=feed.user.get_username(),
        name=feed.name,
    )
    return True
