"""What is due by the clock about people's doors: tokens that expire soon are told, what ended tokens made ends, and
sessions that are over go.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from fleet.domain.actor import DRYDOCK
from fleet.domain.timeline import EntryKind
from fleet.models import ApiToken
from fleet.operations.people import logins, revocation
from fleet.operations.timeline.entries import tell

# That a token expires is told so many days ahead, of one that lives at least twice as long.
WEEK, DAY = 7, 1
# Of one run.
MOST = 500


def tidy_up(*, now: datetime) -> None:
    """All of it, once."""
    tell_expiring(now=now)
    end_what_ended_tokens_made(now=now)
    logins.forget_sessions(now=now)


@transaction.atomic
def tell_expiring(*, now: datetime) -> int:
    """Tell of tokens that expire within a week, and again of those that do within a day; how many. Each is told once,
    however many look at once: whoever holds its row tells it.
    """
    day, week = now + timedelta(days=DAY), now + timedelta(days=WEEK)
    in_a_week = Q(told_days=None, expires_at__gt=day, expires_at__lte=week) & _lives(2 * WEEK)
    in_a_day = (Q(told_days=None) | Q(told_days__gt=DAY)) & Q(expires_at__gt=now, expires_at__lte=day) & _lives(2 * DAY)
    rows = ApiToken.objects.select_for_update(of=("self",), skip_locked=True).select_related("user")
    found = list(
        rows.filter(in_a_week | in_a_day, revoked_at=None, user__is_active=True).order_by("expires_at", "pk")[:MOST]
    )
    for row in found:
        row.told_days = DAY if row.expires_at is not None and row.expires_at <= day else WEEK
        row.save(update_fields=["told_days"])
        told = {"person": row.user.get_username(), "name": row.name, "token": row.prefix}
        tell(EntryKind.TOKEN_EXPIRES, DRYDOCK, at=now, expires_at=row.expires_at, **told)
    return len(found)


@transaction.atomic
def end_what_ended_tokens_made(*, now: datetime) -> int:
    """What was made by a token ends when that expires, or was revoked in another way; of how many tokens.

    Tokens and join tokens stop counting at once, because each use asks for the token that made them.
    """
    over = Q(revoked_at__isnull=False) | Q(expires_at__lte=now)
    left = (
        Q(made__revoked_at=None, made__isnull=False)
        | Q(join_tokens__revoked_at=None, join_tokens__isnull=False)
        | Q(channels__enabled=True, channels__deleted_at=None, channels__isnull=False)
    )
    found = list(ApiToken.objects.filter(over).filter(left).distinct().order_by("pk")[:MOST])
    for row in found:
        revocation.end_made_with(row, actor=DRYDOCK, now=now)
    return len(found)


def _lives(days: int) -> Q:
    return Q(expires_at__gte=F("created_at") + timedelta(days=days))
