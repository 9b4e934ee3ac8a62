"""Read models of machines, enrolment and inventory."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Unpack

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from fleet.domain.blind_spots import NO_PROBLEM, SIGNATURES, BlindSpot, Confidence, code_of
from fleet.domain.intake import Prepared, prepared_of
from fleet.domain.machines.enrolment import Claimed, claim_contradictions, claimed_of, remedy_of
from fleet.domain.reasons import Reason, from_json
from fleet.domain.sets import PROVISIONAL, SetSource
from fleet.domain.shapes import InApi, from_row, grouped, names_of
from fleet.domain.states import EventStatus, Presence
from fleet.models import Admission, InventoryMachine, JoinToken, Machine, Preparation, RefusedEnrolment, ScheduledEvent
from fleet.models.events import named_in_resources, with_names
from fleet.models.facts.events import contact_times, machine_presence
from fleet.models.facts.machines import entrance_facts
from fleet.projections.changes import changed_at
from fleet.projections.pages import At, OrderedAt, Page, Segment, read_list
from fleet.projections.refs import SetRef, set_ref
from fleet.projections.visibility import visible

# Texts of a machine's row that its presence row has.
FROM_PRESENCE = ("poll_problem", "events_version", "instance_version", "signatures")
# At most this many refused enrolments are shown on a page.
MOST_REFUSED = 20
# At most this many open events are shown with a machine, of those that name it and of the others each.
MOST_EVENTS = 100


@dataclass(frozen=True, slots=True)
class MachineRow:
    """One machine. Times are aware UTC datetimes. `clock_offset_seconds` is positive if the machine's clock is
    ahead.
    """

    id: int
    vm_id: str
    resource_name: Annotated[str, "What Azure puts into `Resources`."]
    node_name: Annotated[str, "The Kubernetes node that it is; empty if its agent names none."]
    set: SetRef
    fault_domain: int | None
    update_domain: int | None
    zone: str
    region: str
    size: str
    os_type: str
    presence: Annotated[Presence, "How present its agent is."]
    last_heard_at: Annotated[datetime | None, "When its agent was last heard."]
    last_poll_at: Annotated[datetime | None, "When that agent last had a good answer from the metadata service."]
    agent_version: str
    clock_offset_seconds: Annotated[float | None, "How far its clock is ahead."]
    poll_problem: Annotated[
        str,
        "Why its agent's last poll does not count, such as `status-403` or `spool-unwritable`; `ok` if it does, empty"
        " if not stated.",
    ]
    events_version: Annotated[str, "The api-version that its agent uses for scheduled events; empty if not stated."]
    instance_version: Annotated[str, "The api-version that it uses for instance metadata; empty if not stated."]
    # How its agent treats signatures of orders; empty until reported.
    signatures: str
    enrolled_at: datetime
    attested_at: Annotated[
        datetime | None, "When Azure signed its attested document; null if it enrolled in another way."
    ]
    revoked_at: datetime | None
    decommissioned_at: Annotated[datetime | None, "Since when it is not in lists and counts any more."]
    # The source whose statement about the set applies: a value of `SetSource`, empty if no source states a set.
    set_source: str
    warnings: Annotated[
        tuple[Reason | str, ...],
        "What is wrong with the machine, in sentences; also when sources disagree about its set.",
    ]
    # Last change by the database's clock, including changes of presence that reconciling has recorded.
    changed_at: datetime

    @property
    def unsigned(self) -> BlindSpot | None:
        """Return the blind spot that the agent does not check the signatures of orders correctly; None if it does."""
        code = SIGNATURES.get(self.signatures) if self.revoked_at is None else None
        return self._spot(code) if code else None

    @property
    def without_document(self) -> BlindSpot | None:
        """Return the blind spot that the agent gets no document from Azure or cannot store it, with the reason; else
        None.
        """
        polled, heard, problem = self.last_poll_at, self.last_heard_at, self.poll_problem
        if self.presence is Presence.LIVE or self.revoked_at is not None or problem in NO_PROBLEM:
            return None
        is_heard = heard is not None and (polled is None or polled < heard)
        return self._spot(code_of(problem), problem=problem) if is_heard else None

    def _spot(self, code: str, **values: Any) -> BlindSpot:
        return BlindSpot(code, Confidence.CERTAIN, self.set.id, (self.id,), (self.resource_name,), values, count=1)


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """The machine that a credential belongs to; `set_id` is the row id of the machine's set."""

    machine_id: int
    vm_id: str
    set_id: int


@dataclass(frozen=True, slots=True)
class AdmissionRow:
    """A machine that waits for admission. After it is admitted, its next request returns a key or a credential.

    `machine` is the known machine that it claims to be, if any. `attested` is the subscription from an attested
    document; empty without one. `stated_*` are values that the machine states about itself, `contradictions` facts that
    contradict them.
    """

    id: int
    machine: Annotated[int | None, "The row id of the machine that it claims to be; null if unknown."]
    name: str
    vm_id: str
    resource_name: str
    address: str
    agent_version: str
    join_token: Annotated[str, "The beginning of the join token that it showed."]
    bound: Annotated[
        bool, "False for an agent of 0.1.0: any caller from its address with the same join token is taken for it."
    ]
    revoked: Annotated[bool, "The machine is revoked; admitting it restores its access."]
    first_requested_at: datetime
    last_requested_at: datetime
    admitted_at: datetime | None
    admitted_by: str
    attested: Annotated[str, "The subscription that Azure has signed; empty where it brought no attested document."]
    stated_set: Annotated[str, "What it says of itself, as the other fields that begin so."]
    placed_set: Annotated[
        str, "The set that it will be in and confined to, as `kind:name`; empty for a set of its own."
    ]
    stated_subscription: str
    stated_resource_group: str
    stated_region: str
    stated_addresses: tuple[str, ...]
    contradictions: Annotated[tuple[Reason, ...], "Why it may be another machine, in sentences."]
    # The set of the machine.
    set: SetRef | None


@dataclass(frozen=True, slots=True)
class JoinTokenRow:
    """A join token without its secret. `valid`: machines can enrol with it now. `enrolled`: the machines whose latest
    enrolment used it, at most 100, by name.
    """

    prefix: Annotated[str, "The public beginning of the token."]
    comment: str
    set_name: Annotated[str, "As `kind:name`; empty if it names none."]
    confines: Annotated[
        bool, "Machines that enrol by it are in its set and in no other; else it counts while they name none."
    ]
    created_by: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    uses: int
    max_uses: Annotated[int | None, "How many machines it admits; null without a limit."]
    valid: Annotated[bool, "It admits machines now."]
    enrolled: Annotated[tuple[str, ...], "Names of the machines that enrolled by it last, at most 100."]


@dataclass(frozen=True, slots=True)
class OpenEventBrief:
    """Summary of an open event, as shown at sets and machines."""

    event_id: str
    event_type: str
    status: EventStatus
    not_before: datetime | None
    resources: Annotated[tuple[str, ...], "Names, as Azure states them."]
    drill: Annotated[bool, "A rehearsal."]

    @property
    def open(self) -> bool:
        return self.status is not EventStatus.ENDED


@dataclass(frozen=True, slots=True)
class EventOfMachine(OpenEventBrief):
    """An open event that names a machine, and how far the machine is prepared for it."""

    prepared: Prepared
    prepare_planned_at: Annotated[datetime | None, "When its hooks will begin; null unless `prepared` is `planned`."]


@dataclass(frozen=True, slots=True)
class MachineDetail:
    machine: Annotated[MachineRow, InApi.FLATTENED]
    # Open events of the set that name this machine in Resources, and those that do not.
    hit_by: Annotated[tuple[EventOfMachine, ...], "Open events that name this machine in `Resources`, at most 100."]
    hit_by_count: Annotated[int, "How many there are; `GET events/?machine=` has all of them."]
    other_events: Annotated[tuple[OpenEventBrief, ...], "Open events of its set that do not, at most 100."]
    other_event_count: Annotated[int, "How many there are; `GET events/?set=` has all of them."]
    server_time: datetime

    @property
    def omitted(self) -> int:
        """Return how many open events of the set are not listed."""
        return self.hit_by_count - len(self.hit_by) + self.other_event_count - len(self.other_events)


def machine_rows(machines: Iterable[Machine], *, now: datetime) -> tuple[MachineRow, ...]:
    """Build the rows of machines that were loaded by `with_presence`. No query."""
    return tuple(_machine_row(machine, now=now) for machine in machines)


def _machine_row(machine: Machine, *, now: datetime) -> MachineRow:
    heard_at, polled_at = contact_times(machine)
    row = getattr(machine, "presence", None)
    called = [Reason("name-held", called=machine.called)] if machine.called else []
    return from_row(
        MachineRow,
        machine,
        set=set_ref(machine.availability_set),
        set_source=machine.set_source if machine.confined_to is None else SetSource.CONFINEMENT.value,
        presence=machine_presence(machine, now=now),
        last_heard_at=heard_at,
        last_poll_at=polled_at,
        clock_offset_seconds=row.clock_offset if row else None,
        **{name: getattr(row, name) if row else "" for name in FROM_PRESENCE},
        changed_at=changed_at(machine, row),
        warnings=(*called, *from_json([*machine.set_warnings, *machine.warnings])),
    )


def identities_of(*, hashes: Collection[str]) -> dict[str, MachineIdentity]:
    """Return the machines with these credential hashes, by hash. Unknown and revoked ones are missing. One query that
    uses the index.
    """
    rows = visible(Machine).filter(credential_hash__any=list(hashes), revoked_at__isnull=True)
    known: Any = rows.values_list("credential_hash", "pk", "vm_id", "availability_set_id")
    return {key: MachineIdentity(*row) for key, *row in known}


def row_id(*, vm_id: str) -> int:
    """Return the row id of a machine; 0 for an unknown vmId."""
    return visible(Machine).filter(vm_id=vm_id.strip().lower()).values_list("pk", flat=True).first() or 0


def credentials_since(at: datetime) -> dict[int, str]:
    """Return the machines (row ids) that were revoked or enrolled after `at`, each with its current credential hash
    (empty if revoked). One query that uses two indexes.
    """
    rows = visible(Machine, every=True).filter(Q(revoked_at__gt=at) | Q(enrolled_at__gt=at))
    return dict(rows.values_list("pk", "credential_hash"))


def with_presence(*, every: bool = False) -> QuerySet[Machine]:
    """Return machines with all columns that `machine_rows` needs. The large column `compute` is not loaded.

    With `every`, decommissioned machines are among them.
    """
    rows = visible(Machine, every=every)
    return rows.select_related("availability_set", "presence", "latest_document").defer("compute")


def agentless() -> QuerySet[InventoryMachine]:
    """Return inventory machines that have no agent, or whose agent's credential was revoked."""
    return visible(InventoryMachine).filter(Q(machine=None) | Q(machine__revoked_at__isnull=False))


# A refused enrolment with its reason and the remedy.
Refusal = tuple[RefusedEnrolment, Reason, Reason]


def refused_enrolments(*, most: int = MOST_REFUSED) -> list[Refusal]:
    """Return the refused enrolments, newest first, at most `most`, each with its reason and the remedy. One query."""
    rows = visible(RefusedEnrolment).order_by("-last_at", "-pk")[:most]
    return [(row, from_json(row.reason), remedy_of(row.code)) for row in rows]


# Instance metadata of the machine that an admission claims to be, by the column of `waiting_rows`.
KNOWN = {
    "known_subscription": "subscriptionId",
    "known_group": "resourceGroupName",
    "known_addresses": "privateIpAddresses",
}


def waiting_rows() -> QuerySet[Admission]:
    """Return admissions with all columns that `AdmissionRow` needs."""
    duplicates = visible(Admission).filter(vm_id=OuterRef("vm_id")).exclude(pk=OuterRef("pk")).order_by()
    namesakes = visible(Machine).filter(resource_name__iexact=OuterRef("resource_name")).exclude(resource_name="")
    rows = visible(Admission).select_related("machine__availability_set", "join_token").defer("machine__compute")
    return rows.annotate(
        duplicates=Coalesce(Subquery(duplicates.values("vm_id").annotate(many=Count("pk")).values("many")), 0),
        namesake=Exists(namesakes),
        **{column: F(f"machine__compute__{name}") for column, name in KNOWN.items()},
    )


def _admissions(rows: Iterable[Any]) -> list[AdmissionRow]:
    subscriptions = entrance_facts().subscriptions
    return [_admission(row, subscriptions) for row in rows]


def _admission(row: Any, subscriptions: Collection[str]) -> AdmissionRow:
    """Build the row of an admission from `waiting_rows`; `subscriptions` are those that may enrol."""
    machine: Machine | None = row.machine
    stated = {name: row.said[name] for name in names_of(Claimed) if name in row.said}
    claimed = Claimed(**stated | {"name": row.resource_name})
    known = None
    if machine is not None:
        known_as = {name: getattr(row, column) for column, name in KNOWN.items()} | {"location": machine.region}
        home = machine.availability_set
        # A provisional set has no name to compare.
        known_home = f"{home.kind}:{home.name}" if home.kind != PROVISIONAL else ""
        known = claimed_of(machine.resource_name, known_as, known_home)
    return from_row(
        AdmissionRow,
        row,
        machine=row.machine_id,
        name=machine.resource_name if machine is not None else row.resource_name or row.vm_id,
        join_token=row.join_token.prefix if row.join_token is not None else "",
        stated_set=row.said.get("set", ""),
        placed_set=claimed.home,
        stated_subscription=claimed.subscription,
        stated_resource_group=claimed.resource_group,
        stated_region=claimed.region,
        stated_addresses=tuple(claimed.addresses),
        contradictions=claim_contradictions(row, claimed, known, allowed=row.attested in subscriptions),
        set=set_ref(machine.availability_set) if machine is not None else None,
    )


def waiting(*, machine_id: int | None = None) -> tuple[AdmissionRow, ...]:
    """Return the machines that wait for admission, newest first; with `machine_id`, only those that claim to be this
    machine. One query.
    """
    rows = waiting_rows().order_by("-pk")
    return tuple(_admissions(rows if machine_id is None else rows.filter(machine=machine_id)))


# Groups of waiting machines: attested by Azure, claiming to be a known machine, a revoked one, or an unknown one.
WAITING_AS = {
    "attested": ~Q(attested=""),
    "known": Q(machine__isnull=False, revoked=False),
    "revoked": Q(revoked=True),
    "unknown": Q(machine=None),
}


def page_of_waiting(
    *, rows: QuerySet[Admission] | None = None, q: str = "", who: str = "", **at: Unpack[At]
) -> Page[AdmissionRow]:
    """Return a page of machines that wait for admission, newest first. `q` is a part of a name, vmId or address; `who`
    is a key of `WAITING_AS`. One query.
    """
    rows = (waiting_rows() if rows is None else rows).filter(WAITING_AS.get(who, Q()))
    if q:
        rows = rows.filter(Q(resource_name__icontains=q) | Q(vm_id__icontains=q) | Q(address__icontains=q))
    return read_list(Segment(rows, "id", descending=True), **at).map(_admissions)


def join_token(*, prefix: str, now: datetime) -> JoinTokenRow | None:
    """Return one join token by its public prefix; None if it does not exist. Two queries."""
    rows = visible(JoinToken).select_related("created_by").filter(prefix=prefix.strip())
    return next(iter(_join_tokens(list(rows), now=now)), None)


def _join_tokens(rows: Sequence[JoinToken], *, now: datetime) -> tuple[JoinTokenRow, ...]:
    named = visible(Machine).filter(join_token__in=[row.pk for row in rows]).order_by("resource_name", "pk")
    enrolled = grouped(named.values_list("join_token", "resource_name"))
    return tuple(
        from_row(
            JoinTokenRow,
            row,
            confines=row.confined_to is not None,
            created_by=row.created_by.get_username() if row.created_by else "",
            valid=row.revoked_at is None and row.expires_at > now and (row.max_uses is None or row.uses < row.max_uses),
            enrolled=tuple(enrolled[row.pk][:100]),
        )
        for row in rows
    )


def page_of_join_tokens(*, now: datetime, **at: Unpack[At]) -> Page[JoinTokenRow]:
    """Return a page of join tokens, newest first. Two queries."""
    rows = visible(JoinToken).select_related("created_by")
    found = read_list(Segment(rows, "id", descending=True), **at)
    return found.map(lambda shown: _join_tokens(shown, now=now))


def inventory(*, q: str = "", without_agent: bool = False, **at: Unpack[At]) -> Page[InventoryMachine]:
    """Return a page of the imported inventory by name. `q` searches in names; `without_agent` selects machines without
    an agent. One query.
    """
    rows = (agentless() if without_agent else visible(InventoryMachine)).select_related("machine")
    rows = rows.defer("machine__compute").filter(*[Q(name__icontains=q)] if q else [])
    return read_list(Segment(rows, "name"), **at)


def preparation(event: ScheduledEvent, row: Preparation | None) -> tuple[Prepared, datetime | None]:
    """Return how far a machine is prepared for an event, and when it plans to prepare if it is PLANNED.

    `row` is what it reported about its hooks, if anything. A plan does not outlast the start or the end of the event.
    """
    prepared = prepared_of(row, plans=event.status == EventStatus.SCHEDULED.value)
    return prepared, row.prepare_planned_at if row is not None and prepared is Prepared.PLANNED else None


def listing(*, now: datetime, machines: QuerySet[Machine] | None = None, **at: Unpack[OrderedAt]) -> Page[MachineRow]:
    """Return a page of machines by name or another column. `machines` is a filtered queryset (see
    `filters.MachineFilter`). One query.
    """
    rows = with_presence() if machines is None else machines
    page = read_list(Segment(rows, "resource_name"), **at)
    return page.map(lambda found: machine_rows(found, now=now))


def chosen(*, machine_ids: Collection[int], now: datetime) -> tuple[MachineRow, ...]:
    """Return the rows of these machines (row ids) by name. One query."""
    rows = with_presence().filter(pk__in=machine_ids).order_by("resource_name", "pk")
    return machine_rows(rows, now=now)


def _open_events(machine: Machine) -> tuple[tuple[list[Any], int], ...]:
    """Return the open events of a machine's set that name the machine, and those that do not: the first of them by time
    left, and the number of all. One query, and one more for each part that has more.
    """
    events = with_names(visible(ScheduledEvent)).filter(availability_set_id=machine.availability_set_id)
    events = events.filter(status__in=("SCHEDULED", "STARTED"))
    own = named_in_resources([machine.resource_name])
    parts = events.filter(own), events.exclude(own)
    first, rest = (
        part.annotate(part=Value(number)).order_by("not_before", "pk")[: MOST_EVENTS + 1]
        for number, part in enumerate(parts)
    )
    # A union does not preserve the order of its parts.
    rows: Any = sorted(first.union(rest, all=True), key=lambda row: (row.not_before is None, row.not_before, row.pk))
    found = grouped((row.part, row) for row in rows)
    return tuple(
        (found[number][:MOST_EVENTS], part.count() if len(found[number]) > MOST_EVENTS else len(found[number]))
        for number, part in enumerate(parts)
    )


def detail(*, machine_id: int, now: datetime) -> MachineDetail | None:
    """Return one machine by row id, also a decommissioned one, with the first open events of its set; None if it does
    not exist. Three queries, and up to two more if there are more events.
    """
    machine = with_presence(every=True).filter(pk=machine_id).first()
    if machine is None:
        return None
    row = _machine_row(machine, now=now)
    (hit_by, hit_by_count), (others, other_count) = _open_events(machine)
    hooks = {row.event_id: row for row in visible(Preparation).filter(machine=machine, event__in=hit_by)}
    ways = ((event, *preparation(event, hooks.get(event.pk))) for event in hit_by)
    return MachineDetail(
        machine=row,
        hit_by=tuple(from_row(EventOfMachine, event, prepared=how, prepare_planned_at=at) for event, how, at in ways),
        hit_by_count=hit_by_count,
        other_events=tuple(from_row(OpenEventBrief, event) for event in others),
        other_event_count=other_count,
        server_time=now,
    )
