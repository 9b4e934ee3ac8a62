"""Machines of sets: the first of each set by name, and summaries of sets with hundreds of machines."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Unpack

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Upper

from fleet.domain.shapes import grouped
from fleet.domain.states import Presence
from fleet.models import Machine
from fleet.models.index_scan import IndexRange, first_of_each
from fleet.projections.counts import counts_by, counts_of, last_poll, with_presences
from fleet.projections.machines import MachineRow, machine_rows, with_presence
from fleet.projections.pages import At, Page, Segment, read_page
from fleet.projections.refs import PresenceCounts
from fleet.projections.visibility import visible

# At most this many machines are listed with a set; the others are counted.
MOST = 500
# At most this many names of one kind.
NAMED = 10
# (fault domain, update domain)
Domains = tuple[int | None, int | None]
WARNED = ~Q(warnings=[]) | ~Q(set_warnings=[]) | ~Q(called="")


@dataclass(slots=True)
class SetSummary:
    """Summary of the machines of a large set.

    `domains` holds the presence counts by fault and update domain, `names` the first names of silent machines and of
    machines never heard. `warned` are the machines with warnings. `name_twice`: two machines have the same name.
    """

    domains: dict[Domains, PresenceCounts] = field(default_factory=dict)
    names: dict[Presence, list[str]] = field(default_factory=dict)
    warned: list[Machine] = field(default_factory=list)
    name_twice: bool = False

    @property
    def presence(self) -> PresenceCounts:
        found = {one.value: sum(getattr(each, one.value) for each in self.domains.values()) for one in Presence}
        return PresenceCounts(**found)

    def named(self, presence: Presence) -> list[str]:
        """Return a name for each machine with this presence. Names that are not loaded are empty texts."""
        known = self.names.get(presence, [])
        return [*known, *[""] * (getattr(self.presence, presence.value) - len(known))]


def first_machines(set_ids: Collection[int], *, most: int) -> dict[int, list[Machine]]:
    """Return the first `most` machines of each set (row id) by name, and one more if there are more. Their sets are not
    loaded. One query.
    """
    machines = with_presence().select_related(None).select_related("presence", "latest_document")
    rows = first_of_each(machines, IndexRange("availability_set", list(set_ids)), ("resource_name", "pk"), most + 1)
    return grouped((machine.availability_set_id, machine) for machine in rows)


def set_summaries(set_ids: Collection[int], *, now: datetime) -> Mapping[int, SetSummary]:
    """Return the summaries of these sets (row ids). Five queries, or none without a set."""
    found: dict[int, SetSummary] = defaultdict(SetSummary)
    if not set_ids:
        return found
    inside = visible(Machine).filter(availability_set__any=list(set_ids))
    counted = inside.alias(polled=last_poll()).values("availability_set", "fault_domain", "update_domain")
    rows: Any = counted.annotate(**counts_by(now=now)).order_by()
    for row in rows:
        found[row["availability_set"]].domains[row["fault_domain"], row["update_domain"]] = counts_of(row)
    where, order = IndexRange("availability_set", list(set_ids)), ("resource_name", "pk")
    for presence in (Presence.SILENT, Presence.EXPECTED):
        so = with_presences(visible(Machine), presence, now=now)
        for machine in first_of_each(so.only("availability_set", "resource_name"), where, order, NAMED):
            found[machine.availability_set_id].names.setdefault(presence, []).append(machine.resource_name)
    for machine in first_of_each(with_presence().filter(WARNED), where, order, NAMED):
        found[machine.availability_set_id].warned.append(machine)
    names = inside.filter(revoked_at=None).values("availability_set", plain=Upper("resource_name")).order_by()
    for twice in names.annotate(many=Count("pk")).filter(many__gt=1):
        found[twice["availability_set"]].name_twice = True
    return found


def page(*, set_id: int, hit: Iterable[str], now: datetime, **at: Unpack[At]) -> Page[MachineRow]:
    """Return a page of a set's machines: first those that need attention, then live ones, then gone ones, each by name.

    A machine needs attention if it is not live, has a warning, or is named in `hit`. One query for each of the three
    groups on the page.

    Raises `BadCursorError`.
    """
    inside = with_presence().filter(availability_set=set_id)
    named = Q(resource_name__named=list(hit))

    lacking = with_presences(inside, Presence.LATE, Presence.SILENT, Presence.EXPECTED, now=now)
    live = with_presences(inside, Presence.LIVE, now=now)
    segments: Sequence[Segment[Machine]] = [
        Segment(inside.filter(Q(pk__in=_ids(lacking)) | (Q(pk__in=_ids(live)) & (named | WARNED))), "resource_name"),
        Segment(live.exclude(named | WARNED), "resource_name"),
        Segment(with_presences(inside, Presence.GONE, now=now), "resource_name"),
    ]
    return read_page(segments, **at).map(lambda rows: machine_rows(rows, now=now))


def _ids(machines: QuerySet[Machine]) -> QuerySet[Any, Any]:
    return machines.order_by().values("pk")
