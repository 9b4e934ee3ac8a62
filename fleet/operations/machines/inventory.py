"""Taking an inventory: what `az` printed becomes known machines, and says which set each of them is in."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Lower

from fleet.domain.actor import COMMAND_LINE, Actor
from fleet.domain.machines.inventory import Inventory, InventoryItem
from fleet.domain.people import Right
from fleet.domain.sets import agree
from fleet.domain.timeline import EntryKind
from fleet.models import InventoryMachine, Machine
from fleet.operations.locks import Lock, take
from fleet.operations.machines import instance
from fleet.operations.people.rights import require
from fleet.operations.sets import placement
from fleet.operations.timeline.entries import tell, write

COLUMNS = [
    "name", "subscription", "resource_group", "set_kind", "set_name", "set_subscription", "set_resource_group",
    "placement_group", "vm_id", "zone", "region", "size", "os_type", "machine", "availability_set", "imported_at",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RefusedStatement:
    """The inventory says that a machine is in the set `stated`, but it is confined to `confined_to`, and stays there.
    Sets are `kind:name`.
    """

    machine: str
    stated: str
    confined_to: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import found: machines in it, those that were new, those without an agent, those it dropped, and what it
    says of confined machines in vain.
    """

    machines: int
    new: int
    without_agent: int
    dropped: int
    scale_sets: int
    refused: tuple[RefusedStatement, ...] = ()


@transaction.atomic
def import_inventory(
    *, inventory: Inventory, now: datetime, actor: Actor = COMMAND_LINE, complete: bool = False
) -> Imported:
    """Bring what is known of machines up to this inventory. Nothing is forgotten unless it is `complete`.

    `complete` says that it lists every machine of the subscriptions and scale sets that occur in it: what it does not
    list is dropped. Raises Refused `not-permitted`.
    """
    require(actor, Right.ADMINISTER)
    take(Lock.INVENTORY)
    items = sorted(inventory.machines, key=lambda item: item.resource_id)
    known = {
        row.resource_id: row
        for row in InventoryMachine.objects.filter(resource_id__any=[item.resource_id for item in items])
    }
    dropped = _not_listed(inventory, {item.resource_id for item in items}) if complete else []
    touched = {row.machine_id for row in dropped if row.machine_id is not None}
    InventoryMachine.objects.filter(pk__in=[row.pk for row in dropped]).delete()
    rows = [known.get(item.resource_id) or InventoryMachine(resource_id=item.resource_id) for item in items]
    touched |= _take(rows, items, now)
    _store(rows, now)
    for key, enabled in inventory.upgrade_notices:
        placement.groups_of(key).update(upgrade_notices=enabled)
    for machine_id in sorted(touched):
        write(instance.place_again(machine_id, now=now))
    found = Imported(
        machines=len(items),
        new=len(items) - len(known),
        without_agent=sum(row.machine_id is None for row in rows),
        dropped=len(dropped),
        scale_sets=len(inventory.upgrade_notices),
        refused=_refused(rows),
    )
    tell(EntryKind.INVENTORY_IMPORTED, actor, at=now, after=asdict(found), complete=complete)
    return found


def _take(rows: list[InventoryMachine], items: list[InventoryItem], now: datetime) -> set[int]:
    """Write each item into its row; the machines (row ids) of which something else is said now."""
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
    """Two queries, and one more for each machine of which another set is said than the one to which it is confined."""
    listed = {row.machine_id: placement.listed_key(row) for row in rows if row.machine_id is not None}
    confined = Machine.objects.filter(pk__any=listed, confined_to__isnull=False).order_by("resource_name", "pk")
    found = []
    for machine in confined:
        said, home = listed[machine.pk], placement.confinement_of(machine)
        if said is None or home is None or agree(home, said):
            continue
        known = placement.known_set(said)
        if known is None or known.pk != machine.availability_set_id:
            found.append(
                RefusedStatement(
                    machine=machine.resource_name,
                    stated=f"{said.kind}:{said.name}",
                    confined_to=f"{home.kind}:{home.name}",
                )
            )
    return tuple(found)


class _Agents:
    """Which enrolled machine an item is: by vmId, else by name, resource group and subscription."""

    def __init__(self, items: Iterable[InventoryItem]) -> None:
        listed = list(items)
        names = {item.name.lower() for item in listed}
        ids = {item.vm_id for item in listed if item.vm_id}
        # Rows of a list of sets may be known by their vmId since an import before.
        ids |= set(
            InventoryMachine.objects.filter(resource_id__any=[item.resource_id for item in listed])
            .exclude(vm_id="")
            .values_list("vm_id", flat=True)
        )
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
        """The row id of its machine, each of which is given away once."""
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
    homes = dict(
        Machine.objects.filter(pk__in=[row.machine_id for row in rows if row.machine_id]).values_list(
            "pk", "availability_set_id"
        )
    )
    shown: dict[str, int] = {}
    for row in rows:
        key = placement.listed_key(row)
        row.availability_set_id = homes.get(row.machine_id or 0)
        if row.machine_id is None and key is not None and key.kind != "standalone":
            if key.key not in shown:
                shown[key.key] = placement.ensure_set(key, now=now).pk
            row.availability_set_id = shown[key.key]
    # A machine that was made anew under its old name leaves its old row, before a new one takes it.
    InventoryMachine.objects.filter(machine__in=homes).update(machine=None)
    for row in rows:
        # The id of Azure decides which row it is; one statement for new and known ones is the quickest.
        row.pk = None
    InventoryMachine.objects.bulk_create(
        rows, batch_size=500, update_conflicts=True, unique_fields=["resource_id"], update_fields=COLUMNS
    )


def _not_listed(inventory: Inventory, listed: set[str]) -> list[InventoryMachine]:
    rows = InventoryMachine.objects.exclude(resource_id__any=listed)
    return [row for row in rows if _covered_by(row) in inventory.covered]


def _covered_by(row: InventoryMachine) -> str:
    _, _, instance = row.resource_id.partition("/virtualmachinescalesets/")
    if not instance:
        return f"vm:{row.subscription}".lower()
    return f"scale_set:{row.subscription}/{row.resource_group}/{instance.partition('/')[0]}".lower()
