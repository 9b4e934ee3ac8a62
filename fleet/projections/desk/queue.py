"""The decision queue: events that need a decision by a user, by time left."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, Exists, F, IntegerField, Max, Min, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from fleet.domain.event_types import EVENT_TYPES, Severity
from fleet.domain.events import FAR_AHEAD
from fleet.domain.people import Place, Rights
from fleet.models import Claim, ScheduledEvent
from fleet.models.facts.events import place_of
from fleet.models.people import decision_filter
from fleet.projections.cards import DecisionCard, decision_cards
from fleet.projections.events.rows import OPEN, BlastRadius, EventRow, blast_radii, event_rows, needs_decision, proposed
from fleet.projections.visibility import load_facts, visible

# At most `SHOWN` events that need a decision are shown one by one, the first `CARDS` with their recommendation. Every
# other part has a smaller bound. The rest is shown in groups.
SHOWN = 100
CARDS = 14
# Of more than `CARDS` rows, only the first are single; the others fold by service and set.
FIRST = 6
MAX_NEAR = 25
# The smaller bound when not all waiting events can be shown: the page is for those.
MAX_NEAR_MANY = 3
# Groups end at these times left. Azure has few event types, but agents may report any number of types.
BANDS = (*(timedelta(minutes=minutes) for minutes in (2, 5, 10, 15, 30, 60, 240)), FAR_AHEAD + timedelta(seconds=1))
GROUPS = 50
CRITICAL_TYPES = [known.name for known in EVENT_TYPES if known.severity is Severity.CRITICAL]
# Rights of a reader who decides nothing and sees everything.
NO_RIGHTS = Rights()
PARTS = ("waiting", "of_others", "under_way", "far_ahead", "drills")


@dataclass(frozen=True, slots=True)
class QueueItem:
    """One event of the queue. `card` is None if the event is shown without its decision card."""

    event: EventRow
    blast: BlastRadius
    place: Place
    card: DecisionCard | None


@dataclass(frozen=True, slots=True)
class Pulse:
    """Summary of the queue: the number of events that need a decision within 24 hours, and the first time at which one
    is due.

    `newest` is the row id of the newest of these events, and `critical` that of the newest whose type is critical; 0 if
    there are none.
    """

    waiting: int
    next_at: datetime | None
    newest: int = 0
    critical: int = 0


@dataclass(frozen=True, slots=True)
class QueueGroup:
    """Events of one type that need a decision and are summarised in one line.

    Their NotBefore lies between `since` (included) and `until` (excluded), within the duration `within` from now. These
    three are None for events without a NotBefore. `first_at` is the earliest NotBefore.
    """

    event_type: str
    within: timedelta | None
    since: datetime | None
    until: datetime | None
    count: int
    first_at: datetime | None


@dataclass(frozen=True, slots=True)
class Fold:
    """Waiting events of one `service`, or of one set (empty `service`), by time left."""

    service: str
    items: tuple[QueueItem, ...]

    @property
    def key(self) -> str:
        return f"service-{self.service}" if self.service else f"set-{self.items[0].event.set.id}"

    @property
    def sets(self) -> tuple["Fold", ...]:
        """Return one fold for each set of a service with many events; empty if the events are shown as they are."""
        found = fold(self.items, by_set=True) if self.service and len(self.items) > CARDS else ()
        return found if len(found) > 1 else ()


def fold(items: Sequence[QueueItem], *, by_set: bool = False) -> tuple[Fold, ...]:
    """Return events by service, those without a service (with `by_set` all) by set; the most urgent first."""
    found: dict[tuple[str, int], list[QueueItem]] = {}
    for item in items:
        service = "" if by_set else item.place.service
        found.setdefault((service, 0 if service else item.event.set.id), []).append(item)
    return tuple(Fold(service, tuple(rows)) for (service, _), rows in found.items())


@dataclass(frozen=True, slots=True)
class DecisionQueue:
    """Decision queue in five parts.

    `waiting` needs a decision or a second approval by the reader, `of_others` by other users. `under_way` is decided,
    held, started or past NotBefore; `far_ahead` is due in more than 24 hours. `drills` are rehearsals, and no other
    part counts them.

    Each part is sorted by time left and contains only the first rows. `counts` has the total of each part, for drills
    the number shown. `groups` summarise the waiting events that are not shown, the most urgent first.
    """

    waiting: tuple[QueueItem, ...]
    of_others: tuple[QueueItem, ...]
    under_way: tuple[QueueItem, ...]
    far_ahead: tuple[QueueItem, ...]
    drills: tuple[QueueItem, ...]
    counts: Mapping[str, int]
    groups: tuple[QueueGroup, ...]
    # The value that `pulse` would return.
    pulse: Pulse
    server_time: datetime

    @property
    def items(self) -> tuple[QueueItem, ...]:
        return self.waiting + self.of_others + self.under_way + self.far_ahead + self.drills

    @property
    def set_ids(self) -> tuple[int, ...]:
        """Return the row ids of the affected sets, the most urgent first."""
        return tuple(dict.fromkeys(item.event.set.id for item in self.items))

    @property
    def first(self) -> tuple[QueueItem, ...]:
        """Return the waiting events that are shown as single rows."""
        return self.waiting[: FIRST if len(self.waiting) > CARDS else CARDS]

    @property
    def folds(self) -> tuple[Fold, ...]:
        """Return the other waiting events by service and set; if all are of one service, by set."""
        rest = self.waiting[len(self.first) :]
        found = fold(rest)
        return found if len(found) > 1 else fold(rest, by_set=True)

    @property
    def repeated_titles(self) -> frozenset[str]:
        """Return the EventIds of waiting events that have the type and the machines of another one."""
        named = {item.event.event_id: (item.event.event_type, *item.event.resources) for item in self.waiting}
        counts = Counter(named.values())
        return frozenset(event_id for event_id, name in named.items() if counts[name] > 1)

    @property
    def in_groups(self) -> int:
        """Return the number of events that the groups summarise."""
        return sum(group.count for group in self.groups)

    @property
    def unnamed(self) -> int:
        """Return how many events need a decision, but are neither shown nor part of a group."""
        # The queries run one after the other while events change.
        return max(0, self.counts["waiting"] - len(self.waiting) - self.in_groups)


FILTERS = ("claim", "severity", "type", "service")


def filter_of(asked: Mapping[str, str]) -> Q:
    """Return the query condition of these filters of the queue; empty without a filter.

    `claim` is the name of the user who claimed the event, or `none`; `severity` is that of the event type, such as
    `critical`; `type` and `service` are names. Unknown filters are ignored.
    """
    found = Q()
    if claim := asked.get("claim"):
        claims = visible(Claim).filter(event=OuterRef("pk"), ended_at=None)
        found &= ~Q(Exists(claims)) if claim == "none" else Q(Exists(claims.filter(by__username=claim)))
    if severity := asked.get("severity"):
        found &= Q(event_type__in=[known.name for known in EVENT_TYPES if known.severity.value == severity])
    if event_type := asked.get("type"):
        found &= Q(event_type=event_type)
    if service := asked.get("service"):
        found &= Q(availability_set__service=service)
    return found


def decision_queue(*, now: datetime, rights: Rights = NO_RIGHTS, only: Q | None = None) -> DecisionQueue:
    """Return the open events in five parts for a user with these rights. `only` limits the waiting events. Sixteen
    queries, and a few more if not all events are shown or `only` is given.
    """
    parts = _parts(now, rights)
    if only:
        parts["waiting"] &= only
    found = _chosen(parts)
    counts = {name: len(rows) for name, rows in found.items()}
    many = counts["waiting"] > SHOWN
    bounds = {name: MAX_NEAR_MANY if many and name != "waiting" else _most(name) for name in found}
    shown = {name: rows[: bounds[name]] for name, rows in found.items()}
    real = visible(ScheduledEvent).filter(status__in=OPEN, drill=False).filter
    counts |= {name: real(parts[name]).count() for name in PARTS[:-1] if counts[name] > _most(name)}
    order = {pk: number for number, pk in enumerate(pk for name in PARTS for pk in shown[name])}
    events = visible(ScheduledEvent).filter(pk__in=order).select_related("availability_set")
    items = _items(sorted(events, key=lambda event: order[event.pk]), whole=shown["waiting"][:CARDS], now=now)
    known = {item.event.id: item for item in items}
    of_all = pulse(now=now, rights=rights) if many or only else _pulse(shown["waiting"], known)
    if many and not only:
        # The queries run one after the other while events change.
        of_all = replace(of_all, waiting=counts["waiting"])
    listed = {name: tuple(known[pk] for pk in shown[name] if pk in known) for name in PARTS}
    return DecisionQueue(
        **listed,
        counts=counts,
        groups=_groups(parts["waiting"], listed["waiting"], now=now) if many else (),
        pulse=of_all,
        server_time=now,
    )


def _pulse(waiting: Sequence[int], known: Mapping[int, QueueItem]) -> Pulse:
    times = [at for pk in waiting if pk in known and (at := known[pk].event.not_before) is not None]
    critical = [pk for pk in waiting if pk in known and known[pk].event.event_type in CRITICAL_TYPES]
    return Pulse(len(waiting), min(times, default=None), max(waiting, default=0), max(critical, default=0))


def _most(part: str) -> int:
    return SHOWN if part == "waiting" else MAX_NEAR


def _parts(now: datetime, rights: Rights) -> dict[str, Q]:
    """Return the query condition of each part of the queue, for open events. Drills are a part of their own."""
    needed, mine = needs_decision(now=now), decision_filter(rights, proposed=proposed())
    # Without a stated time it may start at any moment.
    soon = Q(not_before=None) | Q(not_before__lte=now + FAR_AHEAD)
    return {
        "waiting": needed & soon & mine,
        "of_others": needed & soon & ~mine if mine else Q(pk__in=[]),
        "under_way": ~needed,
        "far_ahead": needed & Q(not_before__gt=now + FAR_AHEAD),
        "drills": Q(),
    }


def _chosen(parts: Mapping[str, Q]) -> dict[str, list[int]]:
    """Return the row ids of each part by time left, one more than the page shows. One query."""
    rows = visible(ScheduledEvent).filter(status__in=OPEN).order_by("not_before", "pk")
    asked = [
        rows.filter(part, drill=name == "drills").values_list(Value(number, IntegerField()), "not_before", "pk")[
            : _most(name) + 1
        ]
        for number, (name, part) in enumerate(parts.items())
    ]
    found: dict[str, list[int]] = {name: [] for name in parts}
    # A union does not preserve the order of its parts.
    for number, _, pk in sorted(asked[0].union(*asked[1:], all=True), key=lambda row: (row[1] is None, *row[1:])):
        found[PARTS[number]].append(pk)
    return found


def _items(events: Sequence[ScheduledEvent], *, whole: Sequence[int], now: datetime) -> list[QueueItem]:
    blasts = blast_radii(events, now=now)
    rows = event_rows(events, now=now)
    facts = load_facts(whole, now=now) if whole else {}
    cards = decision_cards([row for row in rows if row.id in facts], blasts, facts, now=now)
    places = {event.pk: place_of(event.availability_set) for event in events}
    return [QueueItem(event=row, blast=blasts[row.id], place=places[row.id], card=cards.get(row.id)) for row in rows]


def _groups(waiting: Q, shown: Sequence[QueueItem], *, now: datetime) -> tuple[QueueGroup, ...]:
    """Return the remaining waiting events grouped by time left and type. This keeps the number of groups small for any
    number of sets. One query.
    """
    open_ones = visible(ScheduledEvent).filter(waiting, status__in=OPEN, drill=False)
    rows = open_ones.exclude(pk__in=[item.event.id for item in shown])
    bands = [When(not_before__lt=now + within, then=Value(number)) for number, within in enumerate(BANDS)]
    grouped = rows.annotate(band=Case(*bands, default=None, output_field=IntegerField()))
    counted = grouped.values("band", "event_type").annotate(count=Count("pk"), first_at=Min("not_before"))
    # Rows are sorted by time left, so none of the rest comes before the last one shown.
    first = max((item.event.not_before for item in shown if item.event.not_before), default=now)
    found: Any = counted.order_by(F("band").asc(nulls_last=True), "-count", "event_type")[:GROUPS]
    return tuple(QueueGroup(**_band(row.pop("band"), first, now), **row) for row in found)


def _band(number: int | None, first: datetime, now: datetime) -> dict[str, Any]:
    if number is None:
        return {"within": None, "since": None, "until": None}
    since = max(first, now + BANDS[number - 1]) if number else first
    return {"within": BANDS[number], "since": since, "until": now + BANDS[number]}


def _waiting(now: datetime, rights: Rights) -> QuerySet[ScheduledEvent]:
    return visible(ScheduledEvent).filter(_parts(now, rights)["waiting"], status__in=OPEN, drill=False)


def pulse(*, now: datetime, rights: Rights = NO_RIGHTS) -> Pulse:
    """Return the queue summary that the status bar of every page shows to a user with these rights. One query."""
    newest = Coalesce(Max("pk"), 0)
    critical = Coalesce(Max("pk", filter=Q(event_type__in=CRITICAL_TYPES)), 0)
    found = _waiting(now, rights).aggregate(waiting=Count("pk"), next_at=Min("not_before"), new=newest, bad=critical)
    return Pulse(found["waiting"], found["next_at"], found["new"], found["bad"])


def counts_of(filters: Sequence[Mapping[str, str]], *, now: datetime, rights: Rights) -> list[int]:
    """Return how many waiting events each of these filters (see `filter_of`) matches. One query."""
    asked = {f"count_{number}": Count("pk", filter=filter_of(each)) for number, each in enumerate(filters)}
    found = _waiting(now, rights).aggregate(**asked)
    return [found[name] for name in asked]


def oldest(*, now: datetime, rights: Rights = NO_RIGHTS) -> ScheduledEvent | None:
    """Return the event that has waited longest for a decision by a user with these rights. One query."""
    return _waiting(now, rights).order_by("first_seen_at", "pk").only("event_id", "first_seen_at").first()
