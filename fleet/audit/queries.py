"""Queries of the audit (filters, pages, exports) and of storage."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from math import ceil
from typing import Annotated, Any, Unpack

import django_filters
from django.conf import settings
from django.db.models import Count, F, Func, Max, Q, QuerySet, Sum, TextField
from django.db.models.functions import Coalesce

from fleet.accounts.queries import PersonRow
from fleet.audit.archive_format import ArchiveKind
from fleet.audit.models import ArchiveFile, ArchiveState, expiring, keep_days
from fleet.audit.reports import every_page
from fleet.audit.retention import GIGABYTE, Growth, days_until, next_step
from fleet.audit.stores import store
from fleet.dashboard.export import csv_line
from fleet.domain.actor import ACTOR_KIND, COMMAND_LINE, ActorKind
from fleet.domain.gauges import ARCHIVE_FAILS, Sample
from fleet.domain.shapes import InApi
from fleet.domain.timeline import EntryKind
from fleet.domain.times import iso
from fleet.models import Entry
from fleet.models.driver import query
from fleet.models.index_scan import IndexRange, IndexScanRows, IndexWalk
from fleet.models.partitions import ARCHIVED, BODIES, Partition, partitions
from fleet.models.timeline import ACTING
from fleet.projections.pages import OrderedAt, Page
from fleet.projections.places import PORTION, EntryPlaceFilter, TimeFilter
from fleet.projections.timeline.entries import TimelineRow, fleet, keys_of, pseudonyms_named
from fleet.projections.visibility import visible
from fleet.wording.say import recorded
from fleet.wording.timeline import kinds_named

# Columns of exported entries, in their order.
COLUMNS = (
    "id", "at", "recorded_at", "kind", "actor", "via", "token_name", "text", "why", "before", "after", "event_id",
    "event_type", "set_id", "set", "machine_id", "machine", "approval_id", "request_id", "address",
    "actor_kind", "subscription", "resource_group", "cache_id", "cache",
)  # fmt: skip
ACTING_KINDS = (ActorKind.PERSON, ActorKind.SERVICE, ActorKind.RULE, ActorKind.COMMAND)
# Kinds of actors that one index key finds.
BY_ONE_KEY = (ActorKind.RULE.value, ActorKind.COMMAND.value)


# The condition of the partial indexes of acts.
IS_ACT = Q(via__in=ACTING)
# Longer text was probably pasted by mistake.
MAX_SEARCH = 200


def acts() -> QuerySet[Entry]:
    """Return the timeline entries about actions of users and rules. A partial index serves this query."""
    return visible(Entry).filter(IS_ACT)


class JsonTexts(Func):
    """SQL function that returns all texts in these JSON columns, without the field names, for the text search."""

    template = (
        "(SELECT string_agg(leaf #>> '{}', E'\\n') FROM jsonb_path_query(jsonb_build_array(%(expressions)s),"
        " 'strict $.**') AS leaf WHERE jsonb_typeof(leaf) = 'string')"
    )
    output_field = TextField()


class AuditFilter(EntryPlaceFilter):
    """Filter of the audit. `person` is the exact name of the actor (for a rule, `rule: …`), `actor_kind` the kind of
    actor. `set` includes sets that were merged into it; `event` is an EventId in any case. `q` searches names, kinds
    and their labels, reasons, and texts in entries.
    """

    among = IS_ACT

    person = django_filters.CharFilter(
        method="filter_person", label="Who acted: a person's name, or `rule: ` and a rule's."
    )
    actor_kind = django_filters.ChoiceFilter(
        choices=[(kind.value, kind.value) for kind in ACTING_KINDS],
        method="filter_actor_kind",
        label="`person`, `rule` or `command`.",
    )
    via = django_filters.MultipleChoiceFilter(
        choices=[(via, via) for via in ACTING],
        method="filter_via",
        label="`page`, `api`, `slack`, `pagerduty`, `rule` or `command`; may be repeated.",
    )
    kind = django_filters.MultipleChoiceFilter(
        choices=[(kind.value, kind.value) for kind in EntryKind], label="A kind of entry; may be repeated."
    )
    event = django_filters.CharFilter(method="filter_event", label="An EventId, in any case.")
    since = TimeFilter(field_name="at", lookup_expr="gte", label="At or after this time.")
    until = TimeFilter(field_name="at", lookup_expr="lt", label="Before this time.")
    q = django_filters.CharFilter(
        method="filter_q",
        max_length=MAX_SEARCH,
        label="Part of a name, of a kind as people call it, of the reason, or of the text.",
    )

    model = Entry

    def __init__(self, data: Any = None, queryset: Any = None, **kwargs: Any) -> None:
        super().__init__(data, acts() if queryset is None else queryset, **kwargs)

    def leads_to_its_own(self, name: str) -> bool:
        """Return whether an index that contains only actions serves this filter. Indexes on other columns also contain
        reports of machines, so a page may have to skip many rows.
        """
        return name in ("person", "via", "event") or self.form.cleaned_data.get("actor_kind") in BY_ONE_KEY

    def filter_person(self, queryset: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        keys = keys_of(value)
        found = queryset.filter(actor__in=keys)
        return found.near(IndexRange("actor", keys, IS_ACT)) if isinstance(found, IndexScanRows) else found

    def filter_actor_kind(self, queryset: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        by_service = Q(data__contains={ACTOR_KIND: ActorKind.SERVICE.value})
        by_command = Q(via="command", actor=COMMAND_LINE.name)
        match ActorKind(value):
            case ActorKind.RULE:
                return _near(queryset.filter(via="rule"), "via", ["rule"])
            case ActorKind.COMMAND:
                return _near(queryset.filter(by_command), "actor", [COMMAND_LINE.name])
            case ActorKind.SERVICE:
                return _near(queryset.filter(by_service, via="api"), "via", ["api"])
        people = [via for via in ACTING if via != "rule"]
        return _near(queryset.filter(via__in=people).exclude(by_command).exclude(by_service), "via", people)

    def filter_via(self, queryset: QuerySet[Entry], name: str, value: list[str]) -> QuerySet[Entry]:
        return _near(queryset.filter(via__in=value), "via", value) if value else queryset

    def filter_q(self, queryset: QuerySet[Entry], name: str, value: str) -> QuerySet[Entry]:
        found = Q(kind__in=[kind.value for kind in kinds_named(value)])
        for name in ("kind", "actor", "text", "why", "token_name", "values"):
            found |= Q(**{f"{name}__icontains": value})
        if people := pseudonyms_named(value):
            found |= Q(actor__in=people) | Q(values__regex=rf"(^|\n)({'|'.join(people)})(\n|$)")
        return queryset.alias(values=JsonTexts(F("data"), F("before"), F("after"))).filter(found)


def _near(rows: QuerySet[Entry], column: str, keys: list[str]) -> QuerySet[Entry]:
    """Use the index of actions that begins with this column, unless another filter has already chosen an index."""
    return rows.near(IndexRange(column, keys, IS_ACT)) if isinstance(rows, IndexScanRows) and not rows.nearest else rows


def listing(*, entries: QuerySet[Entry] | None = None, **at: Unpack[OrderedAt]) -> Page[TimelineRow]:
    """Return a page of actions, newest first. `entries` is a queryset filtered by `AuditFilter`, or None for all
    actions. One query.
    """
    return fleet(entries=acts() if entries is None else entries, **at)


def about_and_by(person: PersonRow) -> dict[str, tuple[TimelineRow, ...]]:
    """Return the newest actions for the page of a user, newest first: changes of the user (role, scopes, tokens,
    password), and actions by the user.
    """
    about = acts().filter(data__person__in=[person.pseudonym, person.username])
    about = about.looked_through(IndexWalk(PORTION, among=IS_ACT)) if isinstance(about, IndexScanRows) else about
    by = AuditFilter({"person": person.username}).qs
    return {"about": listing(entries=about, size=25).results, "acts": listing(entries=by, size=10).results}


def csv_lines(entries: QuerySet[Entry]) -> Iterator[str]:
    """Yield a CSV file of these entries in pieces, with a header line."""
    yield csv_line(COLUMNS)
    yield from _pieces(entries, lambda row: csv_line(_values(row).values()))


def json_lines(entries: QuerySet[Entry]) -> Iterator[str]:
    """Yield these entries as JSON lines, in pieces."""
    return _pieces(entries, json_line)


def json_line(row: TimelineRow) -> str:
    """Return one row as JSON with a newline."""
    return json.dumps(_values(row), ensure_ascii=False) + "\n"


def _pieces(entries: QuerySet[Entry], line: Callable[[TimelineRow], str]) -> Iterator[str]:
    """Yield the lines of a hundred rows at a time. An empty page yields an empty piece, so that the server can handle
    other requests meanwhile.
    """
    for rows in every_page(partial(listing, entries=entries)):
        for first in range(0, max(1, len(rows)), 100):
            yield "".join(map(line, rows[first : first + 100]))


def _values(row: TimelineRow) -> dict[str, Any]:
    about, machine, cache = row.set, row.machine, row.cache
    stated = {
        "at": iso(row.at),
        "recorded_at": iso(row.recorded_at),
        "kind": row.kind.value,
        "text": recorded(row),
        "set_id": about.id if about else None,
        "set": about.name if about else None,
        "subscription": about.subscription if about else None,
        "resource_group": about.resource_group if about else None,
        "machine_id": machine.id if machine else None,
        "machine": machine.resource_name if machine else None,
        "cache_id": cache.id if cache else None,
        "cache": cache.host if cache else None,
    }
    return {name: stated[name] if name in stated else getattr(row, name) for name in COLUMNS}


# Storage: database size and growth, the next partitions to be archived, and the state of the archive.

# Minimum time between rows from which growth is computed.
MIN_SPAN = timedelta(hours=1)
NEXT = 5
DAY = timedelta(days=1)
# Points of the course of the size before and after now, and days of a forecast without a known end.
STEPS = 12
YEAR = 365


@dataclass(frozen=True, slots=True)
class StorageKind:
    """Size and growth of one kind of rows. `rows` is an estimate by Postgres. `daily_rows` and `daily_bytes` are the
    current growth, None if there are too few rows. `days` is the retention, None if unlimited. `retain_reason` is the
    code of the reason why expired rows are not archived yet, or empty.
    """

    kind: str
    rows: Annotated[int, "Postgres' estimate."]
    size: Annotated[int, "Bytes, with indexes."]
    parts: Annotated[int, "Parts of the table; each leaves as a whole."]
    oldest: datetime | None
    daily_rows: Annotated[int | None, "Rows a day, as its newest came; null where that cannot be said yet."]
    daily_bytes: Annotated[int | None, "Bytes a day, as its newest rows came."]
    days: Annotated[int | None, "How many days rows stay; null for ever."]
    retain_reason: Annotated[str, "Why rows that are old enough are not archived yet; else empty."]


@dataclass(frozen=True, slots=True)
class LeavingRow:
    """A partition that is archived and dropped at the time `at` or soon after."""

    kind: str
    rows: int
    size: int
    at: Annotated[datetime, "From then on."]


@dataclass(frozen=True, slots=True)
class ArchiveRow:
    """State of the archive: destination (empty if none is configured), amount of content, and result of the last
    attempt. `fault` is a code, or empty.
    """

    destination: Annotated[str, "Its address without its key; empty where there is no archive."]
    files: int
    rows: int
    size: int
    last_at: Annotated[datetime | None, "When its last file was written."]
    last_attempt_at: datetime | None
    last_success_at: Annotated[datetime | None, "When all was well for the last time."]
    fault: Annotated[str, "What is wrong with it; else empty."]
    fault_since: datetime | None


@dataclass(frozen=True, slots=True)
class SizeAt:
    """Size of the database at a time, in bytes: what is stored now and was written until then, or the expected size."""

    at: datetime
    stored: int | None
    expected: int | None


@dataclass(frozen=True, slots=True)
class Storage:
    """Database size, forecast and archive. Sizes are bytes. `max_size` is the configured maximum
    (`max_size_is_configured`) or else the next round size. `full_at` is when it will be reached, or None if that is
    unknown or more than ten years away.
    """

    size: Annotated[int, "Bytes of the whole database."]
    max_size: Annotated[int, "Maximum size in bytes; the next round size if none is configured."]
    max_size_is_configured: Annotated[bool, "Whether `DATABASE_MAX_GIGABYTES` sets it."]
    daily_bytes: Annotated[int, "Bytes a day, as the newest rows came."]
    full_at: Annotated[
        datetime | None, "When it comes to `max_size`; null for not within ten years, or where that cannot be said."
    ]
    kinds: tuple[StorageKind, ...]
    documents: Annotated[int, "Bytes of the bodies of documents."]
    other_bytes: Annotated[int, "Bytes of everything else."]
    next_archived: Annotated[tuple[LeavingRow, ...], "What is archived next."]
    archive: ArchiveRow
    server_time: datetime
    course: Annotated[tuple[SizeAt, ...], InApi.OMITTED] = ()

    @property
    def full_percent(self) -> int:
        return min(100, round(100 * self.size / self.max_size)) if self.max_size else 0


def storage(*, now: datetime) -> Storage:
    """Return sizes, growth and forecast of the database, and the state of the archive. One statement for each
    partition, and about ten more.
    """
    state = visible(ArchiveState).first()
    parts = {kind: partitions(ARCHIVED[kind]) for kind in ArchiveKind}
    bodies = partitions(BODIES)
    kinds = tuple(_kind(kind, parts[kind], state) for kind in ArchiveKind)
    documents = sum(one.size for one in bodies)
    size = int(query("SELECT pg_database_size(current_database())")[0][0])
    other_bytes = max(0, size - documents - sum(kind.size for kind in kinds))
    stated = settings.DATABASE_MAX_GIGABYTES * GIGABYTE
    max_size = stated or next_step(size)
    where = store()
    growths = [Growth(kind.size, kind.daily_bytes or 0, kind.days if where else None) for kind in kinds]
    grows = any(one.daily for one in growths)
    days = days_until(max_size, growths, other_bytes + documents) if grows else None
    coming = sorted(expiring(), key=lambda one: one.at)[:NEXT] if where else []
    return Storage(
        size=size,
        max_size=max_size,
        max_size_is_configured=bool(stated),
        daily_bytes=round(sum(one.daily for one in growths)),
        full_at=now + days * DAY if days is not None else None,
        kinds=kinds,
        documents=documents,
        other_bytes=other_bytes,
        next_archived=tuple(
            LeavingRow(one.kind.value, one.partition.rows, one.partition.size, max(one.at, now)) for one in coming
        ),
        archive=_archive(where.shown() if where else "", state),
        server_time=now,
        course=_course([*chain(*parts.values()), *bodies], growths, size, days, now=now) if grows else (),
    )


def _course(
    parts: Sequence[Partition], growths: Sequence[Growth], size: int, days: int | None, *, now: datetime
) -> tuple[SizeAt, ...]:
    """Return the size of the database at regular times: until now by when the stored rows were written, and from now on
    as expected, until a little after the maximum (in `days`), or for a year if that is not known.
    """
    step = max(1, ceil((YEAR if days is None else 1.1 * days) / STEPS)) * DAY
    rest = size - sum(growth.size for growth in growths)
    oldest = min((one.oldest for one in parts if one.oldest is not None), default=now)
    past = min(STEPS, ceil((now - oldest) / step))
    before = [
        SizeAt(at, size - round(sum(_newer(one, at) for one in parts)), None)
        for at in (now - number * step for number in range(past, 0, -1))
    ]
    ahead = [
        SizeAt(now + number * step, None, rest + round(sum(one.after(number * step.days) for one in growths)))
        for number in range(1, STEPS + 1)
    ]
    return (*before, SizeAt(now, size, size), *ahead)


def _newer(part: Partition, at: datetime) -> float:
    """Return how many bytes of a partition were written after this time, if its rows came evenly."""
    if part.oldest is None or part.newest is None or at >= part.newest:
        return 0
    return part.size * min(1, (part.newest - at) / max(part.newest - part.oldest, timedelta.resolution))


def archive_fault() -> str:
    """Return the code of the archive's fault, or an empty string if it works or none is configured. One query."""
    state = visible(ArchiveState).first() if settings.ARCHIVE_URL else None
    return state.fault if state else ""


def measure(*, now: datetime) -> tuple[Sample, ...]:
    """Return the metric of how long archiving has been failing, in seconds; 0 if it works. One query."""
    since = visible(ArchiveState).exclude(fault="").values_list("fault_since", flat=True).first()
    return (Sample(ARCHIVE_FAILS, {(): max(0.0, (now - since).total_seconds()) if since else 0.0}),)


def _kind(kind: ArchiveKind, parts: Sequence[Partition], state: ArchiveState | None) -> StorageKind:
    rows, size = sum(one.rows for one in parts), sum(one.size for one in parts)
    daily = _daily(parts)
    return StorageKind(
        kind=kind.value,
        rows=rows,
        size=size,
        parts=len(parts),
        oldest=min((one.oldest for one in parts if one.oldest is not None), default=None),
        daily_rows=daily,
        daily_bytes=round(daily * size / rows) if daily is not None and rows else None,
        days=keep_days(kind),
        retain_reason=(state.held if state else {}).get(kind.value, ""),
    )


def _daily(parts: Sequence[Partition]) -> int | None:
    """Return the number of new rows a day, computed from the newest partition whose rows cover enough time, or None."""
    for one in reversed(parts):
        if one.oldest is not None and one.newest is not None and one.newest - one.oldest >= MIN_SPAN:
            return round(one.rows / ((one.newest - one.oldest) / DAY))
    return None


def _archive(where: str, state: ArchiveState | None) -> ArchiveRow:
    sums = visible(ArchiveFile).aggregate(
        files=Count("pk"), rows=Coalesce(Sum("rows"), 0), size=Coalesce(Sum("bytes"), 0), last_at=Max("archived_at")
    )
    return ArchiveRow(
        destination=where,
        **sums,
        last_attempt_at=state.tried_at if state else None,
        last_success_at=state.worked_at if state else None,
        fault=state.fault if state and where else "",
        fault_since=state.fault_since if state and where else None,
    )
