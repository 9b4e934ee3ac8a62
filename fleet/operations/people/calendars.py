"""Calendars of people: made, ended, and who is asked for one by its address."""

from datetime import datetime, timedelta

from django.db import transaction
from django.utils.crypto import constant_time_compare

from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused, or_refuse
from fleet.domain.secrets import hash_of, new_secret, prefix_of
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind
from fleet.models import CalendarFeed
from fleet.operations.people import revocation
from fleet.operations.rights import require, require_person
from fleet.operations.timeline.entries import tell

LONGEST = 200
# Of one person, those that have not ended.
MOST = 20


@transaction.atomic
def make(
    *, actor: Actor, name: str, set_pattern: str = "", service: str = "", now: datetime
) -> tuple[CalendarFeed, str]:
    """A calendar for oneself. What stands in its address is returned this once; a hash is kept.

    Raises Refused `not-permitted` or `validation`.
    """
    require(actor, Right.READ)
    require_person(actor)
    name, set_pattern, service = tidy(name), tidy(set_pattern), tidy(service)
    if not name or max(map(len, (name, set_pattern, service))) > LONGEST:
        raise Refused("validation", Reason("calendar-name-length", longest=LONGEST))
    if CalendarFeed.objects.filter(user=actor.person, ended_at=None).count() >= MOST:
        raise Refused("validation", Reason("calendar-too-many", most=MOST))
    plain = new_secret("cal")
    feed = CalendarFeed.objects.create(
        user=actor.person,
        prefix=prefix_of(plain),
        secret_hash=hash_of(plain),
        name=name,
        set_pattern=set_pattern,
        service=service,
        created_at=now,
    )
    tell(
        EntryKind.CALENDAR_MADE,
        actor,
        at=now,
        before={"calendar": None},
        after={"calendar": feed.prefix, "set_pattern": set_pattern, "service": service},
        name=name,
    )
    return feed, plain


@transaction.atomic
def end(*, actor: Actor, prefix: str, now: datetime) -> CalendarFeed:
    """End one at once: its owner may, and admins. Raises Refused `validation` for one that is not there or has ended,
    `not-permitted`.
    """
    found = CalendarFeed.objects.select_related("user").filter(prefix=prefix).first()
    if found is None or actor.person != found.user:
        require(actor, Right.ADMINISTER)
    feed = or_refuse(found, "validation", Reason("calendar-unknown"))
    if not revocation.end_calendar(feed, actor=actor, now=now):
        raise Refused("validation", Reason("calendar-unknown"))
    return feed


def asked_for(*, token: str, now: datetime) -> CalendarFeed | None:
    """Whose calendar has this in its address; None when unknown, ended, or of a person who may not log in."""
    feed = CalendarFeed.objects.select_related("user").filter(prefix=prefix_of(token), ended_at=None).first()
    if feed is None or not constant_time_compare(feed.secret_hash, hash_of(token)) or not feed.user.is_active:
        return None
    if feed.last_used_at is None or now - feed.last_used_at > timedelta(minutes=1):
        CalendarFeed.objects.filter(pk=feed.pk).update(last_used_at=now)
    return feed
