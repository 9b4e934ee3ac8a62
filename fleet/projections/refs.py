"""Short references to other objects, as rows contain them."""

from dataclasses import dataclass
from datetime import datetime

from fleet.domain.approvals.guards import MachineFacts
from fleet.domain.reasons import Reason
from fleet.domain.states import Presence
from fleet.models import AvailabilitySet, Machine, Service
from fleet.projections.visibility import HIDDEN, sees_set, visible, visible_name


@dataclass(frozen=True, slots=True)
class SetRef:
    id: int
    kind: str
    name: str
    # Distinguishes it from another set of the same name; empty while there is none.
    name_suffix: str = ""
    # Two sets may have one name.
    subscription: str = ""
    resource_group: str = ""

    @property
    def provisional(self) -> bool:
        return self.kind == "provisional"

    @property
    def label(self) -> Reason | str:
        """Return the set's name, with a suffix if another set has the same name. A provisional set gets a fixed label,
        because its name is only a vmId.
        """
        return Reason("unnamed-set-label") if self.provisional else label_of(self.name, self.name_suffix)


@dataclass(frozen=True, slots=True)
class MachineRef:
    id: int
    resource_name: str


@dataclass(frozen=True, slots=True)
class RuleRef:
    id: int
    name: str


@dataclass(frozen=True, slots=True)
class PresenceCounts:
    """Number of machines by presence. `total` counts the machines that are not gone."""

    live: int = 0
    late: int = 0
    silent: int = 0
    gone: int = 0
    expected: int = 0

    @property
    def total(self) -> int:
        return self.live + self.late + self.silent + self.expected

    @property
    def all(self) -> int:
        return self.total + self.gone

    def parts(self) -> tuple[tuple[Presence, int], ...]:
        """Return the counts that are not 0, each with its presence, in the order of the enum."""
        counted = tuple((presence, getattr(self, presence.value)) for presence in Presence)
        return tuple((presence, count) for presence, count in counted if count)


def label_of(name: str, suffix: str) -> Reason | str:
    """Return a set's name, with the suffix that distinguishes it from another set of that name."""
    return Reason("set-apart", name=name, apart=suffix) if suffix else name


def count_presence(presences: list[Presence]) -> PresenceCounts:
    return PresenceCounts(**{presence.value: presences.count(presence) for presence in Presence})


def set_ref(row: AvailabilitySet) -> SetRef:
    if not sees_set(row.pk):
        return SetRef(id=row.pk, kind=row.kind, name=HIDDEN)
    return SetRef(row.pk, row.kind, row.name, row.name_suffix, row.subscription, row.resource_group)


def machine_ref(row: Machine) -> MachineRef:
    return MachineRef(id=row.pk, resource_name=visible_name(row.resource_name, of=row.availability_set_id))


def facts_ref(machine: MachineFacts) -> MachineRef:
    return MachineRef(id=machine.machine_id, resource_name=machine.name)


def plain_name(name: str) -> str:
    """Return a resource name in the form in which names are compared, so that case does not matter."""
    return name.casefold()


def runbook_of(service: str, home: AvailabilitySet | None = None) -> str:
    """Return the link to the runbook of a set, or else of a service; empty if neither has one. At most one query."""
    if home is not None and home.runbook:
        return home.runbook
    row = visible(Service).filter(name=service.lower()).first() if service else None
    return row.runbook if row else ""


def future(at: datetime | None, *, now: datetime) -> datetime | None:
    """Return a time that is still to come; None if it has passed."""
    return at if at is not None and at > now else None
