"""Calendars of users: creation, revocation, content and the iCalendar feed."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import conditional_page
from icalendar import Calendar, Event

from fleet.accounts.sessions import CALENDARS, locked
from fleet.api.problems import bare
from fleet.api.repeats import read_only
from fleet.domain.actor import Actor
from fleet.domain.caches.maintenances import ACTIVE
from fleet.domain.event_types import event_type_of
from fleet.domain.people import Right, pattern_of
from fleet.domain.policy.hours import in_hours, next_edge
from fleet.domain.reasons import Reason, Refused, require_found
from fleet.domain.secrets import hash_of, new_secret, prefix_of
from fleet.domain.states import EventStatus
from fleet.models import CalendarFeed, Maintenance, NoApprovalWindow, ScheduledEvent
from fleet.operations import clock
from fleet.operations.audited import AuditedForm, delete_audited, save_audited
from fleet.operations.rights import require, require_person
from fleet.projections import visibility
from fleet.projections.events.rows import OPEN
from fleet.projections.people import rights
from fleet.projections.visibility import visible
from fleet.wording.events import named
from fleet.wording.sentences import some
from fleet.wording.times import one_line

# Maximum number of calendar feeds per user.
MOST = 20


class CalendarForm(AuditedForm):
    class Meta(AuditedForm.Meta):
        model, fields = CalendarFeed, ("name", "service", "set_pattern")


@transaction.atomic
def make(sent: CalendarForm, *, actor: Actor, now: datetime) -> tuple[CalendarFeed, str]:
    """Create a calendar feed for the actor. Return the feed and the secret part of its address. The secret is shown
    once; the database stores only a hash of it.

    Raises Refused as `save_audited` does.
    """
    require(actor, Right.READ)
    require_person(actor)
    if CalendarFeed.objects.filter(user=actor.person, ended_at=None).count() >= MOST:
        raise Refused("validation", Reason("calendar-too-many", most=MOST))
    plain = new_secret("cal")
    row = CalendarFeed(user=actor.person, prefix=prefix_of(plain), secret_hash=hash_of(plain), created_at=now)
    return save_audited(sent, actor, CALENDARS, row=row, now=now), plain


@transaction.atomic
def end(*, actor: Actor, prefix: str, now: datetime) -> CalendarFeed:
    """Revoke the calendar feed with this address prefix. The owner and administrators may do this. Raises Refused:
    `not-permitted`; `validation` if the feed is unknown or already revoked.
    """
    row = locked(CalendarFeed.objects.filter(prefix=prefix)).first()
    if row is None or actor.person != row.user:
        require(actor, Right.ADMINISTER)
    feed = require_found(row if row and row.ended_at is None else None, "validation", Reason("calendar-unknown"))
    delete_audited(feed, actor, CALENDARS, now=now, ended_at=now)
    return feed


def asked_for(*, token: str, now: datetime) -> CalendarFeed | None:
    """Return the calendar feed whose address contains this secret. Return None if the feed is unknown or revoked, or if
    the account of its user is disabled.
    """
    feed = CalendarFeed.objects.select_related("user").filter(prefix=prefix_of(token), ended_at=None).first()
    if feed is None or not constant_time_compare(feed.secret_hash, hash_of(token)) or not feed.user.is_active:
        return None
    if feed.last_used_at is None or now - feed.last_used_at > timedelta(minutes=1):
        CalendarFeed.objects.filter(pk=feed.pk).update(last_used_at=now)
    return feed


# Entries of a calendar: announced events, recent events, no-approval windows, and cache maintenance.

# Ended entries remain for this time, as cancelled: some calendar programs never remove an entry that is missing.
KEPT = timedelta(days=2)
# Maximum age of the first sighting of an event that ended recently.
SEEN_WITHIN = timedelta(days=30)
# Weekly windows are listed one by one for this long: their hours follow a local time zone, and the feed is in UTC.
AHEAD = timedelta(days=14)
# Limit for each kind.
MAX_DATES = 200
# Duration of entries that state none.
SHORTEST = timedelta(minutes=5)
EDGES = 400


def feeds(*, user_id: int) -> list[CalendarFeed]:
    """Return the calendar feeds of a user that are not revoked, newest first. One query."""
    return list(visible(CalendarFeed).filter(user=user_id, ended_at=None).order_by("-id"))


def dates(*, set_pattern: str = "", service: str = "", now: datetime) -> tuple[Event, ...]:
    """Return the calendar entries (events, no-approval windows, cache maintenance) of the matching sets and services.
    An empty filter matches all. Five queries; at most 200 entries of each kind.
    """
    return (
        *_events(set_pattern, service, now),
        *_windows(set_pattern, service, now),
        *([] if set_pattern else _maintenances(service, now)),
    )


def _narrowed(column: str, pattern: str) -> Q:
    return Q(**{f"{column}__iregex": f"^({pattern_of(pattern)})$"}) if pattern else Q()


def _events(set_pattern: str, service: str, now: datetime) -> Iterator[Event]:
    where = _narrowed("availability_set__name", set_pattern) & _narrowed("availability_set__service", service)
    rows = visible(ScheduledEvent).filter(where, drill=False).select_related("availability_set")
    timed = rows.filter(Q(not_before__isnull=False) | Q(started_at__isnull=False))
    ended = timed.filter(status=EventStatus.ENDED.value, first_seen_at__gte=now - SEEN_WITHIN, ended_at__gte=now - KEPT)
    still_open = timed.filter(status__in=OPEN).order_by("not_before", "id")
    return map(_event, chain(still_open[:MAX_DATES], ended.order_by("-first_seen_at", "-id")[:MAX_DATES]))


def _event(row: ScheduledEvent) -> Event:
    begin = row.started_at or row.not_before or row.first_seen_at
    length = max(timedelta(seconds=max(row.duration_seconds or 0, 0)), SHORTEST)
    home, is_over = row.availability_set, row.status == EventStatus.ENDED.value
    state = _state(is_over, has_started=row.status == EventStatus.STARTED.value)
    suffix = f" ({home.name_suffix})" if home.name_suffix else ""
    lines = (
        state or "Azure starts it any time after this begins; the end is a guess.",
        "" if is_over else event_type_of(row.event_type).effect,
        f"Machines: {some(row.resources, 50)}" if row.resources else "",
        f"Service: {home.service}" if home.service else "",
    )
    return _date(
        uid=f"event-{row.event_id.lower()}",
        sequence=row.version,
        dtstart=begin,
        dtend=begin + length,
        dtstamp=row.ended_at or row.started_at or row.first_seen_at,
        is_over=is_over,
        summary=f"{named(row.event_type, row.resources)} in {home.name}{suffix}",
        lines=filter(None, lines),
        path=f"/events/{row.event_id}/",
    )


def _windows(set_pattern: str, service: str, now: datetime) -> Iterator[Event]:
    """Return the no-approval windows of the matching sets or of this service. A deleted window appears as cancelled for
    two days.
    """
    still = Q(deleted_at=None) | Q(deleted_at__gte=now - KEPT)
    lasting = Q(ends_at=None) | Q(ends_at__gte=now - KEPT)
    rows = visible(NoApprovalWindow).filter(still & lasting).order_by("id")
    if service:
        rows = rows.filter(Q(service="") | _narrowed("service", service))
    if set_pattern:
        rows = rows.filter(Q(set_pattern="") | Q(set_pattern__iexact=set_pattern))
    return islice((_window(row, *span) for row in rows[:MAX_DATES] for span in _spans(row, now)), MAX_DATES)


def _spans(row: NoApprovalWindow, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    if row.starts_at is not None or row.ends_at is not None:
        begin, end = row.starts_at or row.created_at, row.ends_at or now + AHEAD
        if begin < end:
            yield begin, end
        return
    # From the start of the day two days ago, so that a current window has its beginning.
    at = (now - timedelta(days=2)).replace(hour=0, minute=0, second=0, microsecond=0)
    begun: datetime | None = None
    for _ in range(EDGES):
        edge = next_edge(at, row)
        if edge is None or edge > now + AHEAD:
            return
        inside = in_hours(row, edge)
        if inside and begun is None and not in_hours(row, edge - timedelta(seconds=1)):
            begun = edge
        elif not inside and begun is not None:
            yield begun, edge
            begun = None
        at = edge


def _window(row: NoApprovalWindow, begin: datetime, end: datetime) -> Event:
    once = row.starts_at is not None or row.ends_at is not None
    return _date(
        uid=f"window-{row.pk}" if once else f"window-{row.pk}-{begin:%Y%m%dT%H%M}",
        sequence=0 if row.deleted_at is None else 1,
        dtstart=begin,
        dtend=end,
        dtstamp=row.deleted_at or row.created_at,
        is_over=row.deleted_at is not None,
        summary=f"No approvals: {row.name}",
        lines=row.reason[:MAX_LINE_BYTES].splitlines(),
        path="/policy/",
    )


def _maintenances(service: str, now: datetime) -> Iterator[Event]:
    rows = visible(Maintenance).filter(_narrowed("cache__service", service)).select_related("cache")
    active = [status.value for status in ACTIVE]
    over = rows.exclude(status__in=active).filter(first_at__gte=now - KEPT)
    now_active = rows.filter(status__in=active).order_by("-first_at")
    for row in chain(now_active[:MAX_DATES], over.order_by("-first_at")[:MAX_DATES]):
        begin = row.began_at or row.expected_at or row.first_at
        is_over, service = row.status not in active, row.cache.service
        shard = "" if row.shard is None else f", shard {row.shard}"
        lines = (_state(is_over, has_started=row.began_at is not None), f"Service: {service}" if service else "")
        yield _date(
            uid=f"maintenance-{row.pk}",
            # Each notification adds at least 2, each status change by time adds 1.
            sequence=2 * int((row.last_at - row.first_at).total_seconds()) + is_over,
            dtstart=begin,
            dtend=max(row.ended_at or begin, begin + SHORTEST),
            dtstamp=row.ended_at or row.last_at,
            is_over=is_over,
            summary=f"Maintenance of the cache {row.cache.host}{shard}",
            lines=filter(None, lines),
            path=f"/maintenances/{row.pk}/",
        )


# The iCalendar format (RFC 5545), with times in UTC.

NO_ALERT = "A calendar is refreshed after minutes to a day: it is no alert."
MAX_LINE_BYTES = 500
LONGEST_LINE = 12_000


def ics(name: str, dates: Iterable[Event]) -> bytes:
    """Return the calendar as an iCalendar file. The same entries always give the same bytes."""
    calendar = Calendar()
    calendar.add("prodid", "-//Drydock//Drydock//EN")
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", one_line(f"Drydock: {name}", MAX_LINE_BYTES))
    # Shortest refresh interval for programs; many refresh once a day regardless. Once as plain text: the library has no
    # type for this property, and writes durations in another form.
    calendar.add("x-published-ttl", "PT5M")
    calendar.add("refresh-interval", timedelta(minutes=5), parameters={"VALUE": "DURATION"})
    for date in dates:
        calendar.add_component(date)
    return bytes(calendar.to_ical())


def _date(*, uid: str, is_over: bool, lines: Iterable[str], path: str, summary: str, **properties: Any) -> Event:
    """Return one calendar entry. `properties` are further iCalendar properties. `uid` identifies the entry permanently;
    the property `sequence` increases with each change.
    """
    date = Event()
    date.add("uid", f"{uid}@{urlsplit(settings.BASE_URL).hostname or 'drydock'}")
    for name, value in properties.items():
        date.add(name, value.astimezone(UTC).replace(microsecond=0) if isinstance(value, datetime) else value)
    date.add("summary", one_line(summary, MAX_LINE_BYTES))
    date.add("description", "\n".join(one_line(line, LONGEST_LINE) for line in (*lines, NO_ALERT)))
    date.add("status", "CANCELLED" if is_over else "CONFIRMED")
    # The entry does not mark the user as busy.
    date.add("transp", "TRANSPARENT")
    date.add("url", f"{settings.BASE_URL}{path}")
    return date


def _state(is_over: bool, *, has_started: bool) -> str:
    return "It is over." if is_over else "It is under way." if has_started else ""


# The feed, fetched by programs: the address gives read access with the rights of its user.


@read_only
@conditional_page
def feed(request: HttpRequest, token: str) -> HttpResponse:
    """Return the current iCalendar file for the secret in the address. The answer is 304 if the file is unchanged, and
    404 if the address is unknown or revoked.
    """
    now = clock.now()
    calendar = asked_for(token=token, now=now)
    if calendar is None or not rights(calendar.user).may(Right.READ):
        return bare("not-found")
    visibility.set_reader(rights(calendar.user), name=calendar.user.get_username(), number=calendar.user.pk)
    events = dates(set_pattern=calendar.set_pattern, service=calendar.service, now=now)
    response = HttpResponse(ics(calendar.name, events), content_type="text/calendar; charset=utf-8")
    response["Cache-Control"] = "private, no-cache"
    return response
