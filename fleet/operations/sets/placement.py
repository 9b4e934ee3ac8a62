"""The set of each machine: the decision, its consequences, and the creation of sets.

Only `decide` compares the sources of a machine's set. `place` finds or creates the set, and `settle` writes the result.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from fleet.domain import sets as domain
from fleet.domain.actor import DRYDOCK, Actor
from fleet.domain.reasons import Reason, Refused, as_json
from fleet.domain.sets import PROVISIONAL, SetKey, Statements
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind
from fleet.models import AvailabilitySet, InventoryMachine, JoinToken, Machine, Sighting
from fleet.operations.sets import requirements
from fleet.operations.sets.join import bring_events, join, tell_apart
from fleet.operations.timeline.entries import tell, tell_machine

SERVICE_TAG = "drydock:service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """All facts that decide a machine's set.

    `machine` is the row (None for a new machine). `stated` and `compute` are the machine's own statements. `token` is
    the join token with which it enrols, locked. `admitted_to` is the set for which it was admitted.
    """

    machine: Machine | None
    vm_id: str
    name: str
    stated: str
    compute: dict[str, Any]
    token: JoinToken | None = None
    admitted_to: SetKey | None = None

    @property
    def token_set(self) -> str:
        """The set of the join token, as `[kind:]name`."""
        if self.token is not None:
            return self.token.set_name
        return self.machine.token_set if self.machine is not None else ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a machine's set, which is `statements.key`.

    If there is no key, the machine remains in its set, or gets a provisional one. `token` is the join token that
    confines it, `listed` the machine's row in the inventory.
    """

    statements: Statements
    confined: SetKey | None
    token: JoinToken | None
    listed: InventoryMachine | None


@dataclass(frozen=True, slots=True)
class Placed:
    """The set of a machine (`home`) and the columns to write.

    `source` is the statement that decided (empty: none). `warnings` are faults of the statements. `joined`: the former
    set was merged into this one.
    """

    home: AvailabilitySet
    where: dict[str, Any]
    confined: SetKey | None
    source: str
    warnings: list[dict[str, Any]]
    listed: InventoryMachine | None
    joined: bool


def claim_of(machine: Machine) -> Claim:
    """Return the facts that decide a machine's set, only from its row."""
    return Claim(
        machine=machine,
        vm_id=machine.vm_id,
        name=machine.resource_name,
        stated=machine.stated_set,
        compute=machine.compute,
    )


def decide(claim: Claim) -> Decision:
    """Decide to which set a machine belongs, without writing. Enrolment, admission, reports, imports, moves and merges
    all call it.

    A confined machine belongs to its set, independent of other sources. The join token's set counts if the machine
    states none.
    """
    confined, token = _confinement(claim)
    listed = listed_row(claim.vm_id, claim.name, claim.compute)
    statements = domain.read_statements(
        configured=claim.stated or ("" if confined is not None else claim.token_set),
        compute=claim.compute,
        inventory=listed_key(listed),
        set_tag=settings.AVAILABILITY_SET_TAG,
        confined=confined,
    )
    return Decision(statements, confined, token, listed)


def _confinement(claim: Claim) -> tuple[SetKey | None, JoinToken | None]:
    """Return the set to which a machine is confined (None: none), with the join token if that confines it.

    Confinement comes from the machine's row, its join token or its admission. If the token does not state the place of
    the set, the machine's place counts.
    """
    own = confinement_of(claim.machine) if claim.machine is not None else None
    token = claim.token
    if own is not None:
        if own.placed or claim.machine is None or claim.machine.join_token_id is None:
            return own, None
        # It could not state its place when it enrolled, and its token's other machines may have.
        token = JoinToken.objects.select_for_update().get(pk=claim.machine.join_token_id)
    key = confinement_of(token) if token is not None else None
    if key is None or (own is not None and not domain.agree(own, key)):
        return own or claim.admitted_to, None
    return key if key.placed else key.within(claim.compute), token


def expected_set(claim: Claim) -> SetKey:
    """Return the set in which a machine would be placed now."""
    key = decide(claim).statements.key
    if key is not None:
        return whole(key)
    if claim.machine is not None:
        return whole(final(claim.machine.availability_set))
    return domain.provisional_set_name(claim.compute, claim.vm_id)


def place(claim: Claim, *, now: datetime, actor: Actor = DRYDOCK) -> Placed:
    """Return the set of a machine, created if it is new. Call `settle` to write the result.

    Without a statement the machine remains in its set, where shared events or users may have placed it. A provisional
    set with only this machine is merged into the stated set. Raises Refused `join-token-refused` if an enrolling
    machine states another set than its join token.
    """
    decision = decide(claim)
    confined, token = decision.confined, decision.token
    if token is not None and confined is not None and confined.placed and confined != confinement_of(token):
        # The first machine that states its place decides for all machines of the token.
        JoinToken.objects.filter(pk=token.pk).update(confined_to=asdict(confined))
    here = final(claim.machine.availability_set) if claim.machine is not None else None
    key, home = decision.statements.key, here
    if key is not None or home is None:
        service = tidy(domain.read_tags(claim.compute).get(SERVICE_TAG, ""))[: domain.MAX_NAME]
        home = ensure_set(key or domain.provisional_set_name(claim.compute, claim.vm_id), now=now, service=service)
    others = Machine.objects.filter(availability_set=here, revoked_at=None).exclude(vm_id=claim.vm_id)
    # With no other machine in it, the set may be merged or named because of this machine.
    joined = here is not None and here.pk != home.pk and here.kind == PROVISIONAL and not others.exists()
    if here is not None and joined:
        join(here, home, now=now, actor=actor, stated_by=claim.name if actor is DRYDOCK else "")
    warnings = warnings_of(decision.statements, home)
    if token is not None and token is claim.token:
        for warning in warnings:
            if warning["code"] == domain.OUTSIDE:
                raise Refused("join-token-refused", Reason("enrols-elsewhere", **warning["values"]))
    # Release 0.1.0 cannot show the word confinement; readers that show a machine use `confined_to`.
    source = domain.SetSource.CONFIGURATION if confined is not None else decision.statements.source
    return Placed(
        home=home,
        where=domain.location_of(claim.compute) | {"availability_set_id": home.pk},
        confined=confined,
        source=source.value if source else "",
        warnings=warnings,
        listed=decision.listed,
        joined=joined,
    )


def settle(claim: Claim, placed: Placed, *, now: datetime, **columns: Any) -> Machine:
    """Write the set of a machine, with further `columns` of its row, and update events, sightings, requirements and
    inventory.

    Raises IntegrityError if a new machine got a row in the meantime.
    """
    before, home = claim.machine, placed.home
    columns |= {**placed.where, "set_source": placed.source, "set_warnings": placed.warnings}
    moves = before is not None and before.availability_set_id != home.pk
    if before is not None and moves:
        requirements.keep_before_move(before, home, now=now)
    if before is None:
        machine = Machine.objects.create(vm_id=claim.vm_id, **columns)
    else:
        machine = before
        Machine.every.filter(pk=before.pk).update(**columns)
    if not columns.get("called", machine.called):
        _link(placed.listed, machine.pk, home)
    if before is not None and moves:
        bring_events(before, home, now=now)
        # Its sightings of events that remain in the former set have no vote any more.
        left = Sighting.objects.filter(machine=before, foreign=False, gone_at__isnull=True)
        left.filter(event__availability_set=before.availability_set_id).update(foreign=True)
        if not placed.joined:
            requirements.record_leaving(before, home, now=now)
    disputed = before.set_warnings if before is not None else []
    name = columns.get("resource_name", machine.resource_name)
    _record_warnings(machine.pk, name, home.pk, disputed, placed.warnings, now=now)
    return machine


def _link(row: InventoryMachine | None, machine_id: int, home: AvailabilitySet) -> None:
    """Record in the inventory that this machine has an agent, and which set it is in."""
    if row is not None and (row.machine_id, row.availability_set_id) != (machine_id, home.pk):
        # A machine that was recreated under its old name releases the old row.
        InventoryMachine.objects.filter(machine_id=machine_id).exclude(pk=row.pk).update(machine=None)
        InventoryMachine.objects.filter(pk=row.pk).update(machine_id=machine_id, availability_set_id=home.pk)
        Machine.objects.filter(pk=machine_id, unlisted_at__isnull=False).update(unlisted_at=None)


def place_again(machine_id: int, *, now: datetime) -> None:
    """Decide the set of a machine (row id) again, after an inventory has stated another set for it."""
    machine = Machine.objects.select_related("availability_set__merged_into").get(pk=machine_id)
    claim = claim_of(machine)
    placed = place(claim, now=now)
    settle(claim, placed, now=now)
    # A provisional set that was named has moved as a whole, with its own entry.
    if placed.home.pk != machine.availability_set_id and not placed.joined:
        to = {"set_id": placed.home.pk, "set": placed.home.name}
        tell_machine(EntryKind.MACHINE_MOVED, DRYDOCK, machine, now=now, **to, because="inventory")


def final(found: AvailabilitySet) -> AvailabilitySet:
    """Return the set, or the set into which it was merged."""
    while found.merged_into is not None:
        found = found.merged_into
    return found


def known_set(key: SetKey) -> AvailabilitySet | None:
    """Return the existing set with this key. A key without placement group also finds the only group of a scale set."""
    found = AvailabilitySet.objects.select_related("merged_into").filter(key=key.key).first()
    if found is not None:
        return final(found)
    if key.kind == "scale_set" and not key.placement_group:
        rows = AvailabilitySet.objects.select_related("merged_into").filter(key__startswith=f"{key.key}/")
        sets = {row.pk: row for row in map(final, rows)}
        if len(sets) == 1:
            return next(iter(sets.values()))
    return None


def ensure_set(key: SetKey, *, now: datetime, service: str = "") -> AvailabilitySet:
    """Return the set with this key, created if it is new. For a merged set, return the one into which it was merged."""
    found = known_set(key)
    if found is None and key.placement_group:
        found = _adopt(key)
    if found is None:
        made, new = AvailabilitySet.objects.get_or_create(
            key=key.key,
            defaults={
                "kind": key.kind,
                "name": key.name,
                "subscription": key.subscription,
                "resource_group": key.resource_group,
                "service": service,
                **(_sibling_notices(key) if key.placement_group else {}),
                "created_at": now,
            },
        )
        if new and key.kind != PROVISIONAL:
            tell_apart(key.name)
            made.refresh_from_db(fields=["name_suffix"])
        found = final(made)
    if found.key == key.key and found.name.isupper() and not key.name.isupper():
        # Azure writes names in capitals here and there; who spells it otherwise knows better.
        AvailabilitySet.objects.filter(pk=found.pk).update(name=key.name)
        found.name = key.name
    if service and not found.service:
        AvailabilitySet.objects.filter(pk=found.pk, service="").update(service=service)
        found.refresh_from_db(fields=["service"])
    return found


def groups_of(key: SetKey) -> QuerySet[AvailabilitySet]:
    """Return the sets of one scale set: one for each placement group, and one for machines that do not state it."""
    without_group = whole(key).key
    return AvailabilitySet.objects.filter(Q(key=without_group) | Q(key__startswith=f"{without_group}/"))


def _adopt(key: SetKey) -> AvailabilitySet | None:
    # An inventory names a scale set without its placement group; the first agent states it.
    rows = AvailabilitySet.objects.filter(key=whole(key).key, merged_into=None, machines=None)
    pk = rows.values_list("pk", flat=True).first()
    # Of agents of two groups that are first at the same moment one has it.
    if pk is None or not rows.filter(pk=pk).update(key=key.key):
        return None
    return AvailabilitySet.objects.get(pk=pk)


def _sibling_notices(key: SetKey) -> dict[str, Any]:
    rows = groups_of(key).filter(upgrade_notices__isnull=False).order_by("pk")
    return dict(rows.values("upgrade_notices", "terminate_notice_seconds").first() or {})


def listed_key(row: InventoryMachine | None) -> SetKey | None:
    """Return the set that the inventory states for a machine; None if it states none."""
    if row is None or not row.set_kind:
        return None
    return SetKey(row.set_kind, row.set_name, row.set_subscription, row.set_resource_group, row.placement_group)


def listed_row(vm_id: str, name: str, compute: dict[str, Any]) -> InventoryMachine | None:
    """Return the inventory row with this vmId, or else with this name, resource group and subscription."""
    found = InventoryMachine.objects.filter(vm_id=vm_id.lower()).order_by("pk").first()
    group, subscription = compute.get("resourceGroupName"), compute.get("subscriptionId")
    if found is not None or not (isinstance(group, str) and isinstance(subscription, str)):
        return found
    place = {"resource_group__iexact": group, "subscription__iexact": subscription}
    rows = InventoryMachine.objects.filter(name__iexact=name, **place)
    if str(compute.get("vmId") or "").lower() == vm_id.lower():
        rows = rows.filter(vm_id="")
    return rows.order_by("pk").first()


def whole(stated: SetKey | AvailabilitySet) -> SetKey:
    """Return the key without placement group, which only Azure determines."""
    return SetKey(stated.kind, stated.name, stated.subscription, stated.resource_group)


def key_of(row: AvailabilitySet) -> SetKey:
    """Return the key of this set."""
    key = whole(row)
    return replace(key, placement_group=row.key[len(key.key) + 1 :])


def confinement_of(row: Machine | JoinToken) -> SetKey | None:
    """Return the set to which a join token confines machines, or to which a machine is confined; None if none."""
    return SetKey(**row.confined_to) if row.confined_to is not None else None


def warnings_of(stated: Statements, home: AvailabilitySet) -> list[dict[str, Any]]:
    """Return the faults of a machine's statements, in the form of the column. Two names of one merged set do not
    contradict.
    """
    found = list(stated.problems)
    warning = domain.disagreement(stated.stated, set_tag=settings.AVAILABILITY_SET_TAG)
    if warning is not None:
        first = stated.stated[0].key
        others = [each.key for each in stated.stated[1:] if not domain.agree(first, each.key)]
        if not all(known is not None and known.pk == home.pk for known in map(known_set, others)):
            found.append(warning)
    return [as_json(reason) for reason in found]


def _record_warnings(
    machine_id: int, name: str, set_id: int, before: list[Any], after: list[dict[str, Any]], *, now: datetime
) -> None:
    """Write timeline entries for warnings that are new, or no longer apply."""
    if before != after:
        kind = EntryKind.SET_DISPUTED if after else EntryKind.SET_AGREED
        tell(kind, DRYDOCK, at=now, machine_id=machine_id, set_id=set_id, name=name, warnings=after)


def judge_again(machines: Iterable[Machine], *, now: datetime) -> None:
    """Compare the statements of these machines again, after sets were merged."""
    for machine in machines:
        warnings = warnings_of(decide(claim_of(machine)).statements, machine.availability_set)
        if warnings != machine.set_warnings:
            Machine.objects.filter(pk=machine.pk).update(set_warnings=warnings)
            _record_warnings(
                machine.pk, machine.resource_name, machine.availability_set_id, machine.set_warnings, warnings, now=now
            )
