"""Dry run of a route: counts the messages that it would have sent in the last 30 days.

It uses the newest events and cache maintenances of that time, up to a limit, and reads their timeline entries by index.
The cost does not depend on the size of the timeline. The result states whether there were more.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from typing import Annotated, Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet

from fleet.domain.history import MILESTONES
from fleet.domain.policy.hours import in_hours, zone_of
from fleet.domain.reasons import Reason
from fleet.domain.recommendation import decide_by
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, ScheduledEvent
from fleet.models.facts.events import order_timeouts, place_of
from fleet.notifications.models import Channel, Route, may_hear
from fleet.notifications.notification_types import ROUTED_ENTRIES, NotificationType, type_of_entry, type_severity
from fleet.notifications.router import facts_of_no_event
from fleet.notifications.routing import MessageFacts
from fleet.projections.caches.maintenances import CacheRef, cache_ref
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.visibility import visible

LOOKS_BACK = timedelta(days=30)
MOST = 2000
NEWEST = 10
# Reasons that state what the result cannot know of the past.
UNKNOWABLE = ("past-severity", "past-told-as-now", "past-of-no-event")

OF_EVENTS = {kind.value for kind in ROUTED_ENTRIES if kind.value.startswith(("event_", "approval_", "hooks_"))}
OF_CACHES = {
    kind: notification_type
    for notification_type in NotificationType
    for kind in notification_type.declared.entries
    if kind.value in MILESTONES and kind.value not in OF_EVENTS
}
# Notification types after which a step of escalation is not sent, and further ones for events without a claim.
DECIDED = frozenset({NotificationType.DECIDED, NotificationType.STARTED, NotificationType.ENDED})
CLAIMED = frozenset({NotificationType.CLAIMED, NotificationType.PROPOSED})


@dataclass(frozen=True, slots=True)
class MomentCount:
    moment: str
    messages: int


@dataclass(frozen=True, slots=True)
class WeekCount:
    begins: Annotated[str, "The Monday, in the route's time zone."]
    messages: int


@dataclass(frozen=True, slots=True)
class PastMessage:
    """A message that the route would have sent."""

    moment: str
    at: Annotated[datetime, "When the notification would have been sent."]
    event: str | None
    event_type: str
    set: SetRef | None
    cache: CacheRef | None
    severity: str
    drill: bool


@dataclass(frozen=True, slots=True)
class RouteDryRun:
    wording: Annotated[Reason, "The route in one sentence."]
    sentence: Annotated[Reason, "The result: `In the last 30 days: 31 messages, 4 at night.`"]
    since: datetime
    until: datetime
    considered: Annotated[int, "How many moments were looked at."]
    messages: Annotated[int, "How many of them the route would have told."]
    deliveries: Annotated[int, "In how many minutes: what falls into one goes out together where it is much."]
    outside_working_hours: Annotated[int, "Between 22:00 and 07:00 of the route's time zone."]
    by_notification_type: tuple[MomentCount, ...]
    by_week: tuple[WeekCount, ...]
    newest: Annotated[tuple[PastMessage, ...], "The ten newest."]
    more: Annotated[bool, "There were more than 2,000 events or maintenances: the older ones were not looked at."]
    unknown: Annotated[tuple[Reason, ...], "What cannot be known of the past."]
    server_time: datetime


def dry_run(*, route: Route, now: datetime, person: User | None = None) -> RouteDryRun:
    """Return the messages that this route would have sent in the last 30 days. It is enabled in memory and need not be
    saved. `person` is the owner of a personal route: notifications that they may not receive are omitted. At most six
    queries.
    """
    route.enabled, since = True, now - LOOKS_BACK
    events, upkeep = list(events_since(since)), list(upkeep_since(since))
    past = [*_stories(events[:MOST]), *map(_of_cache, reversed(upkeep[:MOST]))]
    messages = sorted(_messages(route, past, person), key=lambda message: message.at)
    days = [message.at.astimezone(zone_of(route.time_zone)).date() for message in messages]
    night = Route(from_time=time(22), until_time=time(7), time_zone=route.time_zone)
    weeks = Counter(day - timedelta(days=day.weekday()) for day in days)
    moments = Counter(message.moment for message in messages)
    counts = {
        "messages": len(messages),
        "outside_working_hours": sum(in_hours(night, message.at) for message in messages),
        "considered": sum(len(story) for story in past),
    }
    channel = visible(Channel).filter(pk=route.channel_id, owner=route.owner_id).first() if route.channel_id else None
    return RouteDryRun(
        wording=route.wording(channel),
        sentence=Reason("route-dry-run", days=LOOKS_BACK.days, **counts),
        since=since,
        until=now,
        **counts,
        deliveries=len({message.at.replace(second=0, microsecond=0) for message in messages}),
        by_notification_type=tuple(MomentCount(*each) for each in moments.most_common()),
        by_week=tuple(WeekCount(week.isoformat(), count) for week, count in sorted(weeks.items())),
        newest=tuple(messages[: -NEWEST - 1 : -1]),
        more=len(events) > MOST or len(upkeep) > MOST,
        unknown=tuple(map(Reason, UNKNOWABLE)),
        server_time=now,
    )


# The notifications of one event or cache, oldest first, each with what a message states of its subject.
_Story = Sequence[tuple[MessageFacts, Mapping[str, Any]]]


def events_since(since: datetime) -> QuerySet[ScheduledEvent]:
    """Return the newest events since this time, up to the limit plus one, which shows that there are more."""
    rows = visible(ScheduledEvent).filter(first_seen_at__gte=since).select_related("availability_set")
    return rows.order_by("-first_seen_at", "-pk")[: MOST + 1]


def upkeep_since(since: datetime) -> QuerySet[Entry]:
    """Return the timeline entries about cache maintenances since this time, newest first, up to the limit plus one."""
    kinds = [kind.value for kind in OF_CACHES]
    rows = visible(Entry).filter(kind__in=kinds, at__gte=since, cache__isnull=False).select_related("cache")
    return rows.order_by("-at", "-pk")[: MOST + 1]


def entries_of(event_ids: Sequence[int]) -> QuerySet[Entry]:
    """Return the timeline entries of these events (row ids), oldest first within each event."""
    return visible(Entry).filter(event__in=event_ids, kind__in=OF_EVENTS).order_by("event", "at", "pk")


def _stories(events: Sequence[ScheduledEvent]) -> Iterator[_Story]:
    entries: dict[int, list[dict[str, Any]]] = defaultdict(list)
    undo = timedelta(seconds=settings.APPROVAL_UNDO_SECONDS)
    columns = ("event_id", "kind", "at", "actor", "data__phase", "data__outcome")
    rows = entries_of([event.pk for event in events]).values_list(*columns)
    for event_id, kind, at, actor, phase, outcome in rows:
        notification_type = type_of_entry(EntryKind(kind), {"phase": phase, "outcome": outcome})
        if notification_type is not None:
            entries[event_id].append({"moment": notification_type, "at": at, "by": actor})
    for event in events:
        facts = MessageFacts(
            moment=NotificationType.FIRST_SEEN,
            at=event.first_seen_at,
            severity=type_severity(event.event_type, event.source).value,
            event_type=event.event_type,
            source=event.source,
            place=place_of(event.availability_set),
            drill=event.drill,
            decide_by=decide_by(event.not_before, relay=order_timeouts().answer, undo=undo),
        )
        about = {"event": event.event_id, "set": set_ref(event.availability_set), "cache": None}
        yield [(replace(facts, **entry), about) for entry in entries[event.pk]]


def _of_cache(entry: Entry) -> _Story:
    about = {"event": None, "set": None, "cache": cache_ref(entry.cache) if entry.cache else None}
    return [(facts_of_no_event(entry, OF_CACHES[EntryKind(entry.kind)]), about)]


def _messages(route: Route, past: Iterable[_Story], person: User | None) -> Iterator[PastMessage]:
    step = route.step
    for story in past:
        for facts, about in story:
            if not route.matches(facts, now=facts.at) or not may_hear(person, facts):
                continue
            at = route.due_at(facts, now=facts.at) or facts.at
            # Only the final NotBefore is known, so a step counts once.
            if step and (facts.moment is not NotificationType.FIRST_SEEN or _settled(story, step, at)):
                continue
            yield PastMessage(
                moment=facts.moment.value,
                at=at,
                event_type=facts.event_type,
                severity=facts.severity,
                drill=facts.drill,
                **about,
            )


def _settled(story: _Story, step: NotificationType, at: datetime) -> bool:
    ends = DECIDED | CLAIMED if step is NotificationType.UNCLAIMED else DECIDED
    return any(facts.moment in ends and facts.at <= at for facts, _ in story)
