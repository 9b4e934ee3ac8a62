"""Visibility: which rows of each table the reader may see. Every read model queries rows through `visible`.

With SCOPED_READ_ACCESS, users with scopes see only what is in their scopes, in lists, in counts and by URL.
Administrators see everything. So does code that runs without a user: the relay, the gateway, commands.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, ParamSpec, TypeVar

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Exists, Model, OuterRef, Q, QuerySet, Subquery

from fleet import models
from fleet.domain.approvals.guards import EventFacts
from fleet.domain.people import ADMIN, Place, Rights, lies_in
from fleet.domain.pseudonyms import pseudonym
from fleet.domain.scheduling import QuarantineKind
from fleet.domain.sets import KINDS, PROVISIONAL
from fleet.domain.states import OPEN_EVENTS
from fleet.domain.timeline import Trait, kinds_with
from fleet.models import AvailabilitySet, Cache, ScheduledEvent
from fleet.models.facts import events
from fleet.models.index_scan import FEW, IndexRange, IndexScanRows
from fleet.models.machines import UNSET
from fleet.models.people import located_in
from fleet.models.timeline import ACTING

M = TypeVar("M", bound=Model)
T = TypeVar("T")
# Placeholder for a hidden name that has to be mentioned, such as one listener of a cache.
HIDDEN = "…"
NAMED = [kind for kind in KINDS if kind != PROVISIONAL]
# Kinds of entries without set, machine or cache that all readers may see; those of other kinds are visible to their
# actor.
FOR_ALL = kinds_with(Trait.FOR_ALL)
# Kinds of entries that name another set in addition to their own.
OF_TWO = kinds_with(Trait.NAMES_TWO_SETS)


@dataclass
class LimitedReader:
    """A user with limited visibility: name and scopes. Frequent lookups are cached for one request."""

    name: str
    scopes: tuple[tuple[str, str], ...]
    # The row id of the account.
    number: int = 0
    _rules: dict[type[Model], list[int]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Return the names of this user in entries: the pseudonym, and the user name for entries from before 0.2.0."""
        return [pseudonym(self.number), self.name]

    @property
    def sets(self) -> QuerySet[Any]:
        """Return the row ids of the visible sets, including sets merged into them."""
        own = Q(merged_into=None, kind__in=NAMED) & located_in(self.scopes)
        merged = Q(merged_into__kind__in=NAMED) & located_in(self.scopes, of="merged_into__")
        return AvailabilitySet.objects.filter(own | merged).order_by().values("pk")

    @property
    def caches(self) -> QuerySet[Any]:
        """Return the row ids of the caches that belong to a visible service, or to which a visible machine listens."""
        listens = models.Coverage.objects.filter(cache=OuterRef("pk"), until=None)
        heard = listens.filter(machine__availability_set__in=self.sets)
        of_service = located_in(scope for scope in self.scopes if scope[0] == "service")
        return Cache.objects.filter(Exists(heard) | of_service).order_by().values("pk")

    @cached_property
    def places(self) -> dict[int, Place]:
        """Return the places of the visible sets by row id. One query, cached for the request."""
        rows = AvailabilitySet.objects.filter(pk__in=self.sets)
        return {row.pk: Place(row.kind, row.name, row.service, row.resource_group) for row in rows}

    @cached_property
    def ways_to_entries(self) -> tuple[IndexRange, ...]:
        """Return index ranges that contain all visible entries, so that a user with three of five thousand sets does
        not scan the entries of all sets.

        Three queries, cached for the request.
        """
        sets = list(self.places)
        machines = models.Machine.every.filter(availability_set__in=sets).values_list("pk", flat=True)
        return (
            IndexRange("availability_set", sets),
            # For entries that name no set.
            IndexRange("machine", list(machines[: FEW + 1]), Q(availability_set=None)),
            IndexRange("cache", list(self.caches.values_list("pk", flat=True)[: FEW + 1])),
            IndexRange("actor", self.names, Q(via__in=ACTING)),
            IndexRange("kind", [kind.value for kind in FOR_ALL]),
        )

    def concerning(self, model: type[Any]) -> list[int]:
        """Return the row ids of the rules or no-approval windows (`model`) that apply to a visible set. Two queries,
        cached for the request.
        """
        if model not in self._rules:
            self._rules[model] = [
                row.pk for row in model.objects.all() if any(lies_in(place, row) for place in self.places.values())
            ]
        return self._rules[model]


def rows_of(*paths: str) -> Callable[[LimitedReader], Q]:
    """Return a visibility rule: a row is visible if all sets at these lookup paths are."""
    return lambda reader: Q(**{f"{path}__in": reader.sets for path in paths})


def _waves(reader: LimitedReader) -> Q:
    """Return the query condition for waves whose events are all visible. A wave without its hidden events would show a
    wrong order.
    """
    members = models.Approval.objects.filter(wave=OuterRef("pk"))
    inside = members.filter(event__availability_set__in=reader.sets)
    outside = members.exclude(event__availability_set__in=reader.sets)
    return Q(Exists(inside)) & ~Q(Exists(outside))


def _entries(reader: LimitedReader) -> Q:
    nothing = Q(event=None, availability_set=None, machine=None, cache=None)
    inside = (
        (Q(event=None) | Q(event__availability_set__in=reader.sets))
        & (Q(availability_set=None) | Q(availability_set__in=reader.sets))
        & (Q(machine=None) | Q(machine__availability_set__in=reader.sets))
        & (Q(cache=None) | Q(cache__in=reader.caches))
        & ~Q(kind__in=[kind.value for kind in OF_TWO])
    )
    own = Q(actor__in=reader.names, via__in=ACTING) | Q(kind__in=[kind.value for kind in FOR_ALL])
    return (~nothing & inside) | (nothing & own)


def _quarantined(reader: LimitedReader) -> Q:
    events = ScheduledEvent.objects.filter(availability_set__in=reader.sets).values("pk")
    of_events = Q(what__in=[QuarantineKind.EVENT.value, QuarantineKind.RULES.value], row_id__in=events)
    return of_events | Q(what=QuarantineKind.CACHE.value, row_id__in=reader.caches)


def everything(reader: LimitedReader) -> Q:
    return Q()


def nothing(reader: LimitedReader) -> Q:
    return Q(pk__in=[])


# Visibility rule of each table. A projection cannot read a table without a rule.
VISIBLE_ROWS: dict[type[Model], Callable[[LimitedReader], Q]] = {
    AvailabilitySet: rows_of("pk"),
    **dict.fromkeys((models.Machine, models.InventoryMachine, ScheduledEvent), rows_of("availability_set")),
    **dict.fromkeys((models.StaleSet, models.SetCount), rows_of("availability_set")),
    **dict.fromkeys((models.Admission, models.Spool, models.Observation), rows_of("machine__availability_set")),
    **dict.fromkeys((models.PollGap, models.PresenceRow), rows_of("machine__availability_set")),
    **dict.fromkeys((models.Approval, models.Claim, models.Hold, models.Drill), rows_of("event__availability_set")),
    **dict.fromkeys(
        (models.Preparation, models.Sighting), rows_of("event__availability_set", "machine__availability_set")
    ),
    models.Order: rows_of("approval__event__availability_set"),
    models.Rehearsal: rows_of("drill__event__availability_set"),
    models.Instruction: rows_of("rehearsal__drill__event__availability_set"),
    models.Service: lambda reader: Q(name__in={place.service.lower() for place in reader.places.values()}),
    **dict.fromkeys((models.JoinToken, models.RefusedEnrolment), nothing),
    models.Wave: _waves,
    Cache: lambda reader: Q(pk__in=reader.caches),
    # All listeners of a visible cache count, or the page would report none; hidden ones are not named.
    **dict.fromkeys(
        (models.Maintenance, models.Notification, models.Coverage), lambda reader: Q(cache__in=reader.caches)
    ),
    models.Reporter: lambda reader: Q(notification__cache__in=reader.caches),
    models.OpenTrouble: lambda reader: Q(availability_set__in=reader.sets) | Q(cache__in=reader.caches),
    # A blind spot that names another set needs that set to be visible, too.
    models.SetBlindSpot: lambda reader: (
        Q(availability_set__in=reader.sets) & (Q(other_set=None) | Q(other_set__in=reader.sets))
    ),
    models.Rule: lambda reader: Q(pk__in=reader.concerning(models.Rule)),
    models.NoApprovalWindow: lambda reader: Q(pk__in=reader.concerning(models.NoApprovalWindow)),
    models.Entry: _entries,
    models.QuarantinedRow: _quarantined,
    # The name of another user's shared view may contain names that are hidden here.
    models.SavedView: lambda reader: Q(owner__username=reader.name),
    # Found by the hash that a visible observation names.
    models.DocumentBody: everything,
    # These tables contain no names of the fleet.
    **dict.fromkeys((models.Stop, models.LastRun, models.WrongClock, models.Seal), everything),
    # Pages show other users only to administrators; all users see their own account.
    **dict.fromkeys((User, models.Profile, models.Scope, models.ApiToken, models.ServiceAccount), everything),
    **dict.fromkeys((Authenticator, models.CalendarFeed, models.OutsideAccount, models.FormerName), everything),
}


def register(rules: Mapping[type[Model], Callable[[LimitedReader], Q]]) -> None:
    """Add visibility rules for models outside of this package."""
    VISIBLE_ROWS.update(rules)


_reader: ContextVar[LimitedReader | None] = ContextVar("reader", default=None)


def limited_reader(rights: Rights, *, name: str, number: int = 0) -> LimitedReader | None:
    """Return the limited visibility of a user; None if the user sees everything. `name` and `number` are the account's
    name and row id.
    """
    is_scoped = settings.SCOPED_READ_ACCESS and rights.scopes and ADMIN not in rights.groups
    return LimitedReader(name, rights.scopes, number) if is_scoped else None


@contextmanager
def reading_as(reader: LimitedReader | None) -> Iterator[None]:
    """Read with this visibility inside the block, unless `set_reader` replaces it."""
    token = _reader.set(reader)
    try:
        yield
    finally:
        _reader.reset(token)


def set_reader(rights: Rights, *, name: str, number: int = 0) -> None:
    """Set the visibility until the end of the `reading_as` block. Pages and API call it after authentication; `name`
    and `number` are the account's name and row id.
    """
    _reader.set(limited_reader(rights, name=name, number=number))


def as_current_reader(parts: Iterable[T]) -> Iterator[T]:
    """Yield the parts of a streamed response. Each is computed with the visibility that applies when this is called."""
    reader, walk = _reader.get(), iter(parts)
    return walk if reader is None else _sent(reader, walk)


def _sent(reader: LimitedReader, walk: Iterator[T]) -> Iterator[T]:
    while True:
        with reading_as(reader):
            try:
                part = next(walk)
            except StopIteration:
                return
        yield part


def visible(model: type[M], *, every: bool = False) -> QuerySet[M]:
    """Return the rows of a model that the current reader may see. All read models use this query.

    With `every`, decommissioned machines are among them.
    """
    rule, reader = VISIBLE_ROWS[model], _reader.get()
    rows = model._base_manager.all() if every else model._default_manager.all()
    if reader is None:
        return rows
    found = rows.filter(rule(reader))
    return found.near(*reader.ways_to_entries) if isinstance(found, IndexScanRows) else found


def listed_sets(rows: QuerySet[AvailabilitySet] | None = None) -> QuerySet[AvailabilitySet]:
    """Return the sets that lists show, among `rows` or all visible ones: without sets that were merged into another,
    and without those that all machines have left by being decommissioned, unless an open event or a requirement of an
    administrator is left.
    """
    of_set = {"availability_set": OuterRef("pk")}
    parts: dict[str, QuerySet[Any]] = {
        "in_fleet": models.Machine.objects.filter(**of_set),
        "ever": models.Machine.every.filter(**of_set),
        "without_agent": models.InventoryMachine.objects.filter(**of_set),
        "open_event": ScheduledEvent.objects.filter(status__in=OPEN_EVENTS, **of_set),
    }
    # Of EXISTS, Postgres may read the whole table; of the first row by an index, it cannot.
    first = {name: Subquery(part.order_by().values("pk")[:1]) for name, part in parts.items()}
    kept = Q(ever=None) | ~Q(in_fleet=None) | ~Q(without_agent=None) | ~Q(open_event=None) | ~Q(**UNSET)
    return (visible(AvailabilitySet) if rows is None else rows).alias(**first).filter(kept, merged_into=None)


def used_caches() -> QuerySet[Cache]:
    """Return the visible caches, without those to which only decommissioned machines have listened."""
    listened = models.Coverage.objects.filter(cache=OuterRef("pk"))
    return visible(Cache).filter(Exists(listened.filter(machine__decommissioned_at=None)) | ~Exists(listened))


def listening() -> QuerySet[models.Coverage]:
    """Return the coverage of caches by visible machines, to derive the sets and services of a cache."""
    reader, rows = _reader.get(), visible(models.Coverage)
    return rows if reader is None else rows.filter(machine__availability_set__in=reader.sets)


def reader_key() -> tuple[Any, ...]:
    """Return a value that identifies the current visibility, for use in cache keys."""
    reader = _reader.get()
    return () if reader is None else (reader.name, reader.scopes)


def is_limited() -> bool:
    """Return whether the current visibility is limited. If so, results that were read for other users must not be
    reused.
    """
    return _reader.get() is not None


def sees_set(set_id: int | None) -> bool:
    """Return whether a set (row id) is visible. At most one query for each request, and none with full visibility."""
    reader = _reader.get()
    return reader is None or set_id in reader.places


def visible_name(name: str, *, of: int | None) -> str:
    """Return the name of an object, or a placeholder if the set `of` (row id) to which it belongs is hidden."""
    return name if sees_set(of) else HIDDEN


def sets_named(names: Collection[str]) -> list[str]:
    """Return these set names, with all names of hidden sets replaced by one placeholder."""
    reader = _reader.get()
    if reader is None:
        return list(names)
    known = {place.name for place in reader.places.values()}
    found = [name for name in names if name in known]
    return found if len(found) == len(names) else [*found, HIDDEN]


def without_names(stored: Any) -> Any:
    """Return a stored JSON value without the names of hidden sets and events. One query for each list of events
    in it.
    """
    match stored:
        case dict() if is_limited():
            return {name: _visible_value(name, value) for name, value in stored.items()}
        case list() if is_limited():
            return [without_names(one) for one in stored]
    return stored


def _visible_value(name: str, value: Any) -> Any:
    match name, value:
        case "sets", list():
            return sets_named(value)
        case "events", list():
            known = set(visible(ScheduledEvent).filter(event_id__in=value).values_list("event_id", flat=True))
            return [event_id for event_id in value if event_id in known]
    return without_names(value)


# The names under which URLs carry ids.
ADDRESSED: Mapping[str, tuple[type[Model], str]] = {
    "set_id": (AvailabilitySet, "pk"),
    "machine_id": (models.Machine, "pk"),
    "event_id": (ScheduledEvent, "event_id"),
    "approval_id": (models.Approval, "pk"),
    "wave_id": (models.Wave, "pk"),
    "drill_id": (models.Drill, "pk"),
    "cache_id": (Cache, "pk"),
    "maintenance_id": (models.Maintenance, "pk"),
    "rule_id": (models.Rule, "pk"),
    "window_id": (models.NoApprovalWindow, "pk"),
}


def hidden_id(ids: Mapping[str, Any]) -> str:
    """Return the name of the first of these URL parameters whose object is not visible; empty if all are."""
    if _reader.get() is None:
        return ""
    for name, value in ids.items():
        if name in ADDRESSED:
            model, column = ADDRESSED[name]
            wanted = value.upper() if isinstance(value, str) else value
            if not visible(model, every=True).filter(**{column: wanted}).exists():
                return name
    return ""


# Facts for guards, without the names of hidden sets: that something is in progress there counts for all readers.


P = ParamSpec("P")


def _unnamed(facts: EventFacts) -> EventFacts:
    unnamed = [replace(other, set_name=visible_name(other.set_name, of=other.set_id)) for other in facts.others]
    return replace(facts, others=tuple(unnamed))


def _visible_facts(load: Callable[P, dict[int, EventFacts]]) -> Callable[P, Mapping[int, EventFacts]]:
    @wraps(load)
    def loaded(*args: P.args, **kwargs: P.kwargs) -> Mapping[int, EventFacts]:
        found = load(*args, **kwargs)
        return {pk: _unnamed(facts) for pk, facts in found.items()} if is_limited() else found

    return loaded


load_facts = _visible_facts(events.load_facts)
facts_of = _visible_facts(events.facts_of)
