"""Handing over: what was decided, what started, ended and failed between two times, and what is open now."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from fleet.domain import history
from fleet.domain.history import DECISIONS, LONGEST_LOOK, SHIFT
from fleet.domain.timeline import EntryKind
from fleet.models import Entry, ScheduledEvent
from fleet.models.timeline import ACTING
from fleet.projections.events.rows import OPEN, EventRow, event_rows
from fleet.projections.sight import seen
from fleet.projections.timeline.entries import TimelineRow, fleet

# Of each part so many are shown.
MOST = 100


@dataclass(frozen=True, slots=True)
class Part:
    """Entries of a kind, newest first; `more` where there are others. `kinds` filter the timeline for all of them."""

    name: str
    rows: tuple[TimelineRow, ...]
    more: bool
    kinds: tuple[EntryKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Handover:
    """`still_open` is what is open now, whatever the two times are, by time left."""

    since: datetime
    until: datetime
    decided: Part
    failed: Part
    started: Part
    ended: Part
    announced: Part
    desk: Part
    still_open: tuple[EventRow, ...]
    more_open: bool
    server_time: datetime

    @property
    def parts(self) -> tuple[Part, ...]:
        """In the order in which whoever takes over reads them."""
        return (self.decided, self.failed, self.started, self.ended, self.announced, self.desk)

    @property
    def nothing(self) -> bool:
        return not any(part.rows for part in self.parts)


def span(
    *, since: datetime | None, until: datetime | None, looked_until: datetime | None, now: datetime
) -> tuple[datetime, datetime]:
    """Both ends of a look: what is not said begins where one has read last and reaches until now."""
    until = min(until or now, now)
    since = since or looked_until or until - SHIFT
    return max(min(since, until), until - LONGEST_LOOK), until


def handover(*, since: datetime, until: datetime, now: datetime) -> Handover:
    """Entries from `since` on and before `until`. Ten queries, by the indexes of acts and of milestones, and one for
    the names in each part.
    """
    within = seen(Entry).filter(at__gte=since, at__lt=until)
    acts = within.filter(via__in=ACTING)
    decisions = [kind.value for kind in DECISIONS]
    waiting = seen(ScheduledEvent).filter(status__in=OPEN).select_related("availability_set")
    events = list(waiting.order_by("not_before", "pk")[: MOST + 1])
    return Handover(
        since=since,
        until=until,
        decided=_part("decided", acts.filter(kind__in=decisions), DECISIONS),
        failed=_milestones("failed", within, history.FAILED),
        started=_milestones("started", within, history.STARTED),
        ended=_milestones("ended", within, history.ENDED),
        announced=_milestones("announced", within, history.ANNOUNCED),
        desk=_part("desk", acts.exclude(kind__in=[*decisions, *(kind.value for kind in history.STARTED)])),
        still_open=event_rows(events[:MOST], now=now),
        more_open=len(events) > MOST,
        server_time=now,
    )


def _milestones(name: str, within: QuerySet[Entry], kinds: Iterable[EntryKind]) -> Part:
    kinds = tuple(kinds)
    return _part(name, within.filter(kind__in=[kind.value for kind in kinds]), kinds)


def _part(name: str, rows: QuerySet[Entry], kinds: tuple[EntryKind, ...] = ()) -> Part:
    found = fleet(entries=rows, size=MOST)
    return Part(name, found.results, more=found.next is not None, kinds=kinds)
