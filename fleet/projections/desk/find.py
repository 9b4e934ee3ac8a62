"""Search by name over all kinds of objects, and saved views."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import BooleanField, Count, ExpressionWrapper, Q, QuerySet, TextField
from django.db.models.functions import Cast

from fleet.domain.people import Right, Rights
from fleet.domain.states import EventStatus
from fleet.models import AvailabilitySet, Cache, Machine, SavedView, ScheduledEvent
from fleet.models.facts.events import place_of
from fleet.models.index_scan import words_begin, words_of
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.visibility import listed_sets, visible

# At most `MOST` results of each kind are shown, out of `READ` that are read. Those in the reader's own scopes come
# first.
MOST = 8
READ = 40
# The newest events are searched first: this many.
LAST = 500
# At most this many rows are sorted at once.
FEW = 1000
# Shorter texts match too many names.
LEAST = 2


@dataclass(frozen=True, slots=True)
class Match:
    """One machine, set or event that was found, with its set. `where` distinguishes sets of the same name; `mine`: it
    is in the reader's own scopes.
    """

    row: Any
    set: SetRef
    where: str
    mine: bool

    @property
    def status(self) -> EventStatus:
        """Return the status of an event."""
        return EventStatus(self.row.status)


@dataclass(frozen=True, slots=True)
class Found:
    """Search results: a few of each kind. `asked` is False if the search text was too short. `services` are pairs of a
    name and the number of its sets.
    """

    asked: bool = False
    machines: Sequence[Match] = ()
    sets: Sequence[Match] = ()
    services: Sequence[tuple[str, int]] = ()
    events: Sequence[Match] = ()
    caches: Sequence[Cache] = ()
    people: Sequence[str] = ()

    @property
    def count(self) -> int:
        return sum(map(len, (self.machines, self.sets, self.services, self.events, self.caches, self.people)))


def find(text: str, *, rights: Rights) -> Found:
    """Search all kinds of objects by name. Each word of the text must begin a word of the name; a vmId, node name or
    EventId matches by its beginning. Every search uses an index and a limit. Seven to nine queries.
    """
    text = text.strip()
    query = words_begin(text)
    if len(text) < LEAST or query is None:
        return Found()
    sets = listed_sets()

    def named(rows: QuerySet[Any], *columns: Any, or_else: Q | None = None) -> QuerySet[Any]:
        found: QuerySet[Any] = rows.alias(words=words_of(*columns))
        return found.filter(Q(words=query) | or_else if or_else else Q(words=query))

    # Uses the index of sets: a service's name is among their words.
    services = named(sets, "name", "service", "resource_group").filter(service__icontains=text)
    machines = visible(Machine).select_related("availability_set").defer("compute")
    event_id = Q(event_id__startswith=text.upper())
    people = visible(User).filter(is_active=True, username__istartswith=text)
    return Found(
        asked=True,
        machines=_first(named(machines, "resource_name", or_else=_begins(text)), rights, text),
        sets=_first(named(sets, "name", "service", "resource_group"), rights, text),
        services=list(services.values_list("service").annotate(Count("pk")).order_by("service")[:MOST]),
        events=_first(_newest(named, event_id), rights, ""),
        caches=list(named(visible(Cache), "host", "service").order_by("host")[:MOST]),
        people=list(people.order_by("username").values_list("username", flat=True)[:MOST]),
    )


def machines_called(rows: QuerySet[Machine], text: str) -> QuerySet[Machine]:
    """Return the machines where each word of the text begins a word of the name, or where the text begins the vmId or
    the node name. If none match, or too many to sort, return those whose name contains each word. One or two queries.
    """
    query, begins = words_begin(text), _begins(text)
    called = Q(words=query) | begins if query else begins
    # No index supports this: names are scanned in order, which ends early where many match.
    anywhere = Q(*(Q(resource_name__icontains=word) for word in text.split()))
    machines = visible(Machine)
    found = _ids(machines.alias(words=words_of("resource_name")).filter(called)) or _ids(machines.filter(anywhere))
    return rows.filter(pk__any=found) if len(found) <= FEW else rows.filter(anywhere)


def _begins(text: str) -> Q:
    """Return the filter of machines whose vmId or node name begins with the text."""
    start = text.strip().lower()
    return Q(vm_id__startswith=start) | Q(node_name__startswith=start)


def _ids(rows: QuerySet[Any]) -> list[int]:
    return list(rows.order_by().values_list("pk", flat=True)[: FEW + 1])


def _newest(named: Callable[..., QuerySet[Any]], event_id: Q) -> Sequence[ScheduledEvent]:
    """Return the newest matching events, using indexes. If too many match to sort them, search only the newest events.
    Two or three queries.
    """
    events = visible(ScheduledEvent).select_related("availability_set").order_by("-first_seen_at", "-pk")
    words = ("event_type", Cast("resources", TextField()))
    called = _ids(named(visible(ScheduledEvent), *words, or_else=event_id))
    if len(called) <= FEW:
        return list(events.filter(pk__any=called)[:READ])
    last = list(events.values_list("pk", flat=True)[:LAST])
    among = list(named(events.filter(pk__any=last), *words, or_else=event_id)[:READ])
    return among if len(among) >= MOST else list(named(events, *words, or_else=event_id)[:READ])


def _first(rows: QuerySet[Any] | Sequence[Any], rights: Rights, text: str) -> list[Match]:
    """Return the first results: those in the reader's own scopes, then exact matches, then names that begin with the
    text.
    """

    def order(row: Any) -> tuple[Any, ...]:
        name, wanted = str(row).casefold(), text.casefold()
        by_name = (name != wanted, not name.startswith(wanted), name, row.pk)
        return (not mine[row.pk], *(by_name if text else ()))

    read = list(rows[:READ])
    homes = {row.pk: row if isinstance(row, AvailabilitySet) else row.availability_set for row in read}
    mine = {pk: rights.may(Right.APPROVE, place_of(home)) for pk, home in homes.items()}
    names = Counter(str(row).casefold() for row in read)
    matches = []
    for row in sorted(read, key=order)[:MOST]:
        home, twice = homes[row.pk], names[str(row).casefold()] > 1
        # The subscription is named only if needed.
        where = " · ".join(filter(None, (home.resource_group, home.subscription if twice else "")))
        matches.append(Match(row, set_ref(home), where, bool(rights.scopes) and mine[row.pk]))
    return matches


# Saved views of lists: the user's own first, then shared ones.

MAX_SAVED_VIEWS = 200


def saved_views(*, user_id: int, page: str = "", named: str = "") -> list[SavedView]:
    """Return the user's own (`mine`) and the shared views whose name contains `named`; with `page`, only those of this
    list. One query.
    """
    rows = visible(SavedView).filter(Q(owner=user_id) | Q(shared=True), name__icontains=named).select_related("owner")
    rows = rows.filter(page=page) if page else rows
    mine = ExpressionWrapper(Q(owner=user_id), output_field=BooleanField())
    return list(rows.annotate(mine=mine).order_by("-mine", "name", "pk")[:MAX_SAVED_VIEWS])
