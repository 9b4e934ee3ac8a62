"""Import of an inventory: machines in the output of `az` become known, with a statement of their set."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated

from django.db.models import Q
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Lower

from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.machines.inventory import Inventory, InventoryItem
from fleet.domain.people import Right
from fleet.domain.sets import SetKey, agree
from fleet.domain.timeline import EntryKind
from fleet.models import InventoryMachine, Machine
from fleet.operations.locks import Lock, take
from fleet.operations.rights import require
from fleet.operations.sets import placement
from fleet.operations.timeline.entries import gathered, tell

COLUMNS = [
    "name", "subscription", "resource_group", "set_kind", "set_name", "set_subscription", "set_resource_group",
    "placement_group", "vm_id", "zone", "region", "size", "os_type", "machine", "availability_set", "imported_at",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RefusedStatement:
    """The inventory states that a machine is in the set `stated`, but it is confined to `confined_to` and remains
    there.

    Sets are `kind:name`.
    """

    machine: str
    stated: str
    confined_to: str


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import: numbers of machines in total, new, without an agent, and deleted; number of scale sets.

    `refused` are statements about machines that are confined to another set.
    """

    machines: Annotated[int, "How many machines the inventory lists."]
    new: Annotated[int, "Those among them that no inventory has listed before."]
    without_agent: Annotated[int, "Those among them that have no agent."]
    dropped: Annotated[int, "Machines that a complete inventory does not list any more."]
    scale_sets: Annotated[int, "Number of scale sets for which it reports whether they announce upgrades."]
    refused: Annotated[
        tuple[RefusedStatement, ...], "What it says in vain: the machine is confined to another set."
    ] = ()


@dataclass(frozen=True, slots=True)
class InventoryChange:
    """What an import changes for one machine. `change` is `new`, `changed`, `same` or `dropped`.

    `machine` is the row id of its agent, if any. Sets are `kind:name`, empty if not stated.
    """

    name: str
    resource_group: str
    change: str
    set_before: str
    set_after: str
    machine: int | None


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a trial import. `changes` lists actual changes first. Nothing was written."""

    found: Imported
    changes: tuple[InventoryChange, ...]


@dataclass(slots=True)
class _Compared:
    """An inventory compared with the stored machines: rows to write, values before, and rows to delete."""

    rows: list[InventoryMachine]
    new: int
    before: list[tuple[SetKey | None, int | None]]
    dropped: list[InventoryMachine]
    touched: set[int]

    def found(self, inventory: Inventory) -> Imported:
        return Imported(
            machines=len(self.rows),
            new=self.new,
            without_agent=sum(row.machine_id is None for row in self.rows),
            dropped=len(self.dropped),
            scale_sets=len(inventory.upgrade_notices),
            refused=_refused(self.rows),
        )


def _compare(inventory: Inventory, now: datetime, *, complete: bool) -> _Compared:
    """Compare an inventory with the stored machines, without writing."""
    items = sorted(inventory.machines, key=lambda item: item.resource_id)
    listed = [item.resource_id for item in items]
    known = {row.resource_id: row for row in InventoryMachine.objects.filter(resource_id__any=listed)}
    dropped = InventoryMachine.objects.exclude(resource_id__any=listed) if complete else []
    dropped = [row for row in dropped if _covered_by(row) in inventory.covered]
    rows = [known.get(item.resource_id) or InventoryMachine(resource_id=item.resource_id) for item in items]
    before = [(placement.listed_key(row), row.machine_id) for row in rows]
    touched = {row.machine_id for row in dropped if row.machine_id is not None} | _take(rows, items, now)
    return _Compared(rows, len(rows) - len(known), before, dropped, touched)


@gathered()
def import_inventory(
    *, inventory: Inventory, now: datetime, actor: Actor = COMMAND_LINE, complete: bool = False
) -> Imported:
    """Import an inventory. With `complete`, machines that it does not list are deleted from the stored inventory.

    `complete` states that it lists every machine of its subscriptions and scale sets. Raises Refused `not-permitted`.
    """
    require(actor, Right.ADMINISTER)
    take(Lock.INVENTORY)
    compared = _compare(inventory, now, complete=complete)
    InventoryMachine.objects.filter(pk__in=[row.pk for row in compared.dropped]).delete()
    Machine.objects.filter(pk__in=[row.machine_id for row in compared.dropped]).update(unlisted_at=now)
    _store(compared.rows, now)
    for key, enabled in inventory.upgrade_notices:
        placement.groups_of(key).update(upgrade_notices=enabled)
    for key, seconds in inventory.terminate_notices:
        placement.groups_of(key).update(terminate_notice_seconds=seconds)
    for machine_id in sorted(compared.touched):
        placement.place_again(machine_id, now=now)
    found = compared.found(inventory)
    tell(EntryKind.INVENTORY_IMPORTED, actor, at=now, after=asdict(found), complete=complete)
    return found


def try_inventory(*, inventory: Inventory, now: datetime, actor: Actor, complete: bool) -> Trial:
    """Return what `import_inventory` would do, without writing. Raises Refused `not-permitted`."""
    require(actor, Right.ADMINISTER)
    compared = _compare(inventory, now, complete=complete)
    changes = [
        InventoryChange(row.name, row.resource_group, "dropped", _shown(placement.listed_key(row)), "", row.machine_id)
        for row in compared.dropped
    ]
    for row, before in zip(compared.rows, compared.before, strict=True):
        after = placement.listed_key(row)
        change = "new" if row._state.adding else "same" if before == (after, row.machine_id) else "changed"
        sets = _shown(before[0]), _shown(after)
        changes.append(InventoryChange(row.name, row.resource_group, change, *sets, row.machine_id))
    changes.sort(key=lambda one: (("dropped", "changed", "new", "same").index(one.change), one.name.lower()))
    return Trial(compared.found(inventory), tuple(changes))


def _shown(key: SetKey | None) -> str:
    return key.shown if key else ""


def _take(rows: list[InventoryMachine], items: list[InventoryItem], now: datetime) -> set[int]:
    """Copy each item into its row. Return the machines (row ids) whose stated set changed."""
    agents = _Agents(items)
    touched: set[int | None] = set()
    for row, item in zip(rows, items, strict=True):
        before = (placement.listed_key(row), row.machine_id)
        _take_item(row, item, now)
        row.machine_id = agents.of(row)
        if before != (placement.listed_key(row), row.machine_id):
            touched |= {before[1], row.machine_id}
    return {machine_id for machine_id in touched if machine_id is not None}


def _take_item(row: InventoryMachine, item: InventoryItem, now: datetime) -> None:
    # A list of sets knows less about a machine than a list of machines: it takes nothing away.
    if item.vm_id or not row.name:
        row.name = item.name
    row.subscription, row.resource_group = item.subscription, item.resource_group
    for column in ("vm_id", "zone", "region", "size", "os_type"):
        setattr(row, column, getattr(item, column) or getattr(row, column))
    if item.in_set is not None:
        key = item.in_set
        same = placement.listed_key(row)
        group = same.placement_group if same is not None and same.name.lower() == key.name.lower() else ""
        row.set_kind, row.set_name = key.kind, key.name
        row.set_subscription, row.set_resource_group = key.subscription, key.resource_group
        row.placement_group = key.placement_group or group
    row.imported_at = now


def _refused(rows: Iterable[InventoryMachine]) -> tuple[RefusedStatement, ...]:
    """Return the statements that confinement overrules. Runs two queries, and one for each such machine."""
    listed = {row.machine_id: placement.listed_key(row) for row in rows if row.machine_id is not None}
    confined = Machine.objects.filter(pk__any=listed, confined_to__isnull=False).order_by("resource_name", "pk")
    found = []
    for machine in confined:
        said, home = listed[machine.pk], placement.confinement_of(machine)
        if said is None or home is None or agree(home, said):
            continue
        known = placement.known_set(said)
        if known is None or known.pk != machine.availability_set_id:
            found.append(RefusedStatement(machine.resource_name, stated=said.shown, confined_to=home.shown))
    return tuple(found)


class _Agents:
    """Finds the enrolled machine of an inventory item: by vmId, else by name, resource group and subscription."""

    def __init__(self, items: Collection[InventoryItem]) -> None:
        names = {item.name.lower() for item in items}
        # Rows of a list of sets may be known by their vmId since an import before.
        known = InventoryMachine.objects.filter(resource_id__any=[item.resource_id for item in items])
        ids = {item.vm_id for item in items} | set(known.values_list("vm_id", flat=True)) - {""}
        self.by_vm_id: dict[str, int] = {}
        self.by_name: dict[tuple[str, str, str], tuple[int, bool]] = {}
        self.taken: set[int] = set()
        found = Machine.objects.annotate(
            lower_name=Lower("resource_name"),
            group=KeyTextTransform("resourceGroupName", "compute"),
            subscription=KeyTextTransform("subscriptionId", "compute"),
            own_id=KeyTextTransform("vmId", "compute"),
        ).filter(Q(lower_name__in=names) | Q(vm_id__in=ids))
        for pk, vm_id, name, group, subscription, own_id in found.order_by("-pk").values_list(
            "pk", "vm_id", "lower_name", "group", "subscription", "own_id"
        ):
            self.by_vm_id[vm_id] = pk
            sure = (own_id or "").lower() == vm_id
            self.by_name[name, (group or "").lower(), (subscription or "").lower()] = (pk, sure)

    def of(self, row: InventoryMachine) -> int | None:
        """Return the row id of the item's machine; None if there is none. Each machine is returned only once."""
        pk = self.by_vm_id.get(row.vm_id) if row.vm_id else None
        if pk is None:
            place = (row.name.lower(), row.resource_group.lower(), row.subscription.lower())
            named, sure = self.by_name.get(place, (None, False))
            # Two vmIds that differ are two machines, whatever their names.
            pk = None if row.vm_id and sure else named
        if pk is None or pk in self.taken:
            return None
        self.taken.add(pk)
        return pk


def _store(rows: Collection[InventoryMachine], now: datetime) -> None:
    agents = Machine.objects.filter(pk__in=[row.machine_id for row in rows if row.machine_id])
    homes = dict(agents.values_list("pk", "availability_set_id"))
    shown: dict[str, int] = {}
    for row in rows:
        key = placement.listed_key(row)
        row.availability_set_id = homes.get(row.machine_id or 0)
        if row.machine_id is None and key is not None and key.kind != "standalone":
            if key.key not in shown:
                shown[key.key] = placement.ensure_set(key, now=now).pk
            row.availability_set_id = shown[key.key]
    # A machine that was recreated under its old name releases its old row, before a new one takes it.
    InventoryMachine.objects.filter(machine__in=homes).update(machine=None)
    Machine.objects.filter(pk__in=homes, unlisted_at__isnull=False).update(unlisted_at=None)
    for row in rows:
        # The id of Azure decides which row it is; one statement for new and known ones is the quickest.
        row.pk = None
    InventoryMachine.objects.bulk_create(
        rows, batch_size=500, update_conflicts=True, unique_fields=["resource_id"], update_fields=COLUMNS
    )


def _covered_by(row: InventoryMachine) -> str:
    _, _, instance = row.resource_id.partition("/virtualmachinescalesets/")
    if not instance:
        return f"vm:{row.subscription}".lower()
    return f"scale_set:{row.subscription}/{row.resource_group}/{instance.partition('/')[0]}".lower()
