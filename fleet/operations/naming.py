"""What people decide about sets: naming a provisional one, its service, and joining two that are one."""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleet.domain.entries import EntryKind
from fleet.domain.sets import MAX_NAME, NAMED_KINDS, PROVISIONAL, SetKey
from fleet.domain.states import EventStatus
from fleet.models import AvailabilitySet, Machine, ScheduledEvent
from fleet.operations import folding, relaying, sets
from fleet.operations.entries import entry, write
from fleet.operations.errors import Refused
from fleet.operations.rights import require_administer

SECOND_PERSON = {
    True: "said that approving here always takes a second person",
    False: "said that approving here takes a second person only where a guard asks for one",
}


def _locked(*set_ids: int) -> dict[int, AvailabilitySet]:
    rows = AvailabilitySet.objects.select_for_update(of=("self",)).filter(pk__in=set_ids).order_by("pk")
    return {row.pk: row for row in rows}


def _clean(text: str) -> str:
    return text.replace("\x00", "").strip()


@transaction.atomic
def name_set(
    *,
    set_id: int,
    by: User,
    via: str,
    now: datetime,
    name: str | None = None,
    kind: str | None = None,
    service: str | None = None,
    second_person: bool | None = None,
    token_name: str = "",
) -> AvailabilitySet:
    """Name a provisional set (without a kind: an availability set), say which service a set belongs to, or whether
    approving in it always takes a second person.

    Raises Refused: `not-permitted`, `not-found`, `validation`, `set-exists` (details `set`).
    """
    require_administer(by)
    row = _locked(set_id).get(set_id)
    if row is None or row.merged_into_id is not None:
        raise Refused("not-found", "There is no set of this id.")
    before = _shown(row)
    person, said = by.get_username(), []
    if name is not None:
        old, name = row.name, _clean(name)
        _rename(row, name, kind or "availability_set")
        said.append(f"named the provisional set {old}: it is “{row.name}”")
    elif kind is not None:
        raise Refused("validation", "A kind comes together with a name.")
    if service is not None and _clean(service)[:MAX_NAME] != row.service:
        row.service = _clean(service)[:MAX_NAME]
        said.append("said that it belongs to " + (f"the service “{row.service}”" if row.service else "no service"))
    if second_person is not None and second_person != row.second_person:
        row.second_person = second_person
        said.append(
            "said that approving here "
            + (
                "always takes a second person"
                if second_person
                else "takes a second person only where a guard asks for one"
            )
        )
    row.save(update_fields=["key", "kind", "name", "service", "second_person"])
    if said:
        after = _shown(row)
        write(
            [
                entry(
                    EntryKind.SET_CHANGED if name is None else EntryKind.SET_NAMED,
                    f"{person} {' and '.join(said)}.",
                    at=now,
                    set_id=row.pk,
                    actor=person,
                    via=via,
                    token_name=token_name,
                    before={field: value for field, value in before.items() if after[field] != value},
                    after={field: value for field, value in after.items() if before[field] != value},
                )
            ]
        )
    return row


def _shown(row: AvailabilitySet) -> dict[str, Any]:
    return {"name": row.name, "kind": row.kind, "service": row.service, "second_person": row.second_person}


def _rename(row: AvailabilitySet, name: str, kind: str) -> None:
    if row.kind != PROVISIONAL:
        raise Refused("validation", f"This set has a name: “{row.name}”. Only a provisional set can be named.")
    if not name or len(name) > MAX_NAME or "|" in name:
        raise Refused("validation", f"A name has 1 to {MAX_NAME} characters, and no “|” among them.")
    if kind not in NAMED_KINDS:
        raise Refused("validation", f"A kind is one of {', '.join(NAMED_KINDS)}.")
    key = SetKey(kind, name, row.subscription, row.resource_group)
    known = sets.known_set(key)
    if known is not None:
        raise Refused("set-exists", f"There is a set of this kind and name: “{known.name}”.", set=known.pk)
    row.key, row.kind, row.name = key.key, key.kind, key.name


@transaction.atomic
def merge_sets(*, set_id: int, into: int, by: User, via: str, now: datetime, token_name: str = "") -> AvailabilitySet:
    """Join two sets that are one: machines, events and inventory move, entries stay and are shown at both.

    Returns the set that remains. Raises Refused: `not-permitted`, `not-found`, `validation`.
    """
    require_administer(by)
    rows = _locked(set_id, into)
    if set_id == into:
        raise Refused("validation", "A set cannot be merged into itself.")
    source, target = rows.get(set_id), rows.get(into)
    if source is None or target is None:
        raise Refused("not-found", "There is no set of this id.")
    for row in (source, target):
        if row.merged_into_id is not None:
            raise Refused("validation", f"“{row.name}” was merged into another set already.")
    if target.kind == PROVISIONAL and source.kind != PROVISIONAL:
        raise Refused(
            "validation", "A set with a name is not merged into a provisional one: do it the other way round."
        )
    if source.subscription.lower() != target.subscription.lower() and source.subscription and target.subscription:
        raise Refused("validation", "Sets of two subscriptions cannot be one: Azure knows no such set.")
    person = by.get_username()
    joined = sets.join(
        source,
        target,
        text=f"{person} merged “{source.name}” into “{target.name}”.",
        now=now,
        actor=person,
        via=via,
        token_name=token_name,
    )
    disputed = Machine.objects.filter(availability_set=target).exclude(set_warnings=[]).order_by("pk")
    write([joined, *sets.judge_again(disputed.select_related("availability_set"), now=now)])
    # More machines have a word now, and more of them may be asked.
    still_open = ScheduledEvent.objects.filter(availability_set=target).exclude(status=EventStatus.ENDED.value)
    events = folding.lock(still_open.values_list("pk", flat=True))
    folding.refold(events, now=now)
    relaying.advance_events(events, now=now, via=via)
    return AvailabilitySet.objects.get(pk=target.pk)
