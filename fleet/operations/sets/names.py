"""People's decisions about sets: the name of a provisional one, its service, and joining two sets."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from fleet.domain.actor import Actor
from fleet.domain.people import Right
from fleet.domain.reasons import Reason, Refused
from fleet.domain.requirements import FormerSet, Requirements
from fleet.domain.sets import MAX_NAME, MAX_NEEDS, NAMED_KINDS, PROVISIONAL, SetKey
from fleet.domain.texts import tidy
from fleet.domain.timeline import EntryKind, differing
from fleet.models import AvailabilitySet, Machine
from fleet.operations.orders import advance
from fleet.operations.rights import require
from fleet.operations.sets import placement, requirements
from fleet.operations.sets.join import join, tell_apart
from fleet.operations.timeline.entries import tell


def _locked(*set_ids: int) -> dict[int, AvailabilitySet]:
    rows = AvailabilitySet.objects.select_for_update(of=("self",)).filter(pk__in=set_ids).order_by("pk")
    return {row.pk: row for row in rows}


# Fields of a set that people can change.
SHOWN = ("name", "kind", "service", "second_person", "min_live", "step_up", "exempt_service_accounts")
# Requested changes that wait for another administrator, with requester and time.
WAITING = ("lowering", "lowering_by", "lowering_at")


@transaction.atomic
def name_set(
    *,
    set_id: int,
    actor: Actor,
    now: datetime,
    name: str | None = None,
    kind: str | None = None,
    service: str | None = None,
    second_person: bool | None = None,
    min_live: int | None = None,
    step_up: bool | None = None,
    exempt_service_accounts: bool | None = None,
) -> AvailabilitySet:
    """Set a provisional set's name (without a kind: an availability set), or the service, the approval requirements or
    the minimum of live machines.

    Requirements are a second person, or verification (service accounts may be exempt). A minimum of 0 means not stated.
    Lowering a requirement takes a person who has just verified. Where the set requires two persons, it waits until
    another administrator requests the same. Raises Refused: `not-permitted`, `not-found`, `validation`, `guarded`,
    `set-exists` (details `set`).
    """
    require(actor, Right.ADMINISTER)
    row = _locked(set_id).get(set_id)
    if row is None or row.merged_into_id is not None:
        raise Refused("not-found", Reason("set-unknown"))
    before, home = _shown(row), requirements.home_of(row)
    waited = row.lowering
    if name is not None:
        _rename(row, tidy(name), kind or "availability_set")
    elif kind is not None:
        raise Refused("validation", Reason("set-kind-alone"))
    stated: dict[str, Any] = {
        "service": None if service is None else tidy(service)[:MAX_NAME],
        "second_person": second_person,
        "step_up": step_up,
        "exempt_service_accounts": exempt_service_accounts,
    }
    stated = {column: value for column, value in stated.items() if value is not None}
    if min_live is not None:
        stated["min_live"] = _needed(min_live)
    _state(row, stated, home, actor, now)
    try:
        with transaction.atomic():
            row.save(update_fields=["key", *SHOWN, *WAITING])
    except IntegrityError as error:
        # A machine or a person made a set of this name at the same moment.
        raise Refused("set-exists", Reason("set-exists", name=row.name)) from error
    if name is not None:
        tell_apart(row.name)
    was = before["name"]
    before, after = differing(before | {"lowering": waited}, _shown(row) | {"lowering": row.lowering})
    if name is not None or after:
        kind = EntryKind.SET_CHANGED if name is None else EntryKind.SET_NAMED
        tell(kind, actor, at=now, set_id=row.pk, before=before, after=after, was=was, name=row.name)
    return row


def _state(row: AvailabilitySet, stated: dict[str, Any], home: FormerSet, actor: Actor, now: datetime) -> None:
    """Set these columns of a locked set; what would lower a requirement only where that is agreed. `home` is where it
    was before. Raises Refused as `name_set` does.
    """
    lower, waited, was = requirements.lowered(row, stated), row.lowering, Requirements.of(row)
    if lower and not requirements.agreed(row, {column: stated[column] for column in lower}, actor=actor, now=now):
        stated = {column: value for column, value in stated.items() if column not in lower}
        if row.lowering != waited:
            requirements.record_lowering(row, "proposed", lower, now=now)
    elif lower:
        requirements.keep(row.pk, requirements.kept_of(was, lower), home)
        requirements.record_lowering(row, "lowered", lower, now=now)
    for column, value in stated.items():
        setattr(row, column, value)


def _shown(row: AvailabilitySet) -> dict[str, Any]:
    return {name: getattr(row, name) for name in SHOWN}


def _needed(min_live: int) -> int | None:
    if not 0 <= min_live <= MAX_NEEDS:
        raise Refused("validation", Reason("set-needs-unusable"))
    return min_live or None


def _rename(row: AvailabilitySet, name: str, kind: str) -> None:
    if row.kind != PROVISIONAL:
        raise Refused("validation", Reason("set-named-already", name=row.name))
    if not name or len(name) > MAX_NAME or "|" in name:
        raise Refused("validation", Reason("set-name-unusable"))
    if kind not in NAMED_KINDS:
        raise Refused("validation", Reason("set-kind-unknown"))
    key = SetKey(kind, name, row.subscription, row.resource_group)
    known = placement.known_set(key)
    if known is not None:
        raise Refused("set-exists", Reason("set-exists", name=known.name), set=known.pk)
    # A machine that was admitted without a set is confined to this one, under whatever name.
    admitted = Machine.objects.filter(availability_set=row, confined_to__kind=PROVISIONAL)
    admitted.update(confined_to=asdict(key))
    row.key, row.kind, row.name = key.key, key.kind, key.name


@transaction.atomic
def merge_sets(*, set_id: int, into: int, actor: Actor, now: datetime) -> AvailabilitySet:
    """Join two sets that are one: machines, events and inventory move, entries stay and are shown at both.

    Returns the set that remains. Raises Refused: `not-permitted`, `not-found`, `validation`.
    """
    require(actor, Right.ADMINISTER)
    rows = _locked(set_id, into)
    if set_id == into:
        raise Refused("validation", Reason("merge-into-itself"))
    source, target = rows.get(set_id), rows.get(into)
    if source is None or target is None:
        raise Refused("not-found", Reason("set-unknown"))
    for row in (source, target):
        if row.merged_into_id is not None:
            raise Refused("validation", Reason("merged-already", name=row.name))
    if target.kind == PROVISIONAL and source.kind != PROVISIONAL:
        raise Refused("validation", Reason("merge-into-provisional"))
    if source.subscription.lower() != target.subscription.lower() and source.subscription and target.subscription:
        raise Refused("validation", Reason("merge-across-subscriptions"))
    disputed = Machine.objects.filter(availability_set=target).exclude(set_warnings=[]).order_by("pk")
    join(source, target, actor=actor, now=now)
    placement.judge_again(disputed.select_related("availability_set"), now=now)
    # More machines are witnesses now, and more of them may be asked.
    advance.recompute_open(target.pk, now=now, via=actor.via)
    return AvailabilitySet.objects.get(pk=target.pk)
