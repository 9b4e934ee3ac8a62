"""Stored counts and blind spots of each set, so that no page needs to read the whole fleet.

Database triggers record which sets have changed (`StaleSet`). Pages compute those sets themselves while they are few,
so they never show older data. The worker computes and stores them here.
"""

from collections.abc import Collection
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction

from fleet.domain.blind_spots import RANKS, BlindSpot
from fleet.domain.reasons import as_json
from fleet.domain.states import Presence
from fleet.models import SetBlindSpot, SetCount, StaleSet
from fleet.models.driver import query
from fleet.models.facts.blind_spots import SetFindings, judged_by, load_findings, to_judge
from fleet.operations.locks import Lock, try_take

log = structlog.get_logger(__name__)

# How many sets one transaction, and one tick, judges; and how many unchanged sets are checked again.
PORTION = 100
LOOKED_AT_AGAIN = 50
# No trigger fires when a clock goes wrong, so this query searches for it; unchanged sets are not noted.
CLOCKS = """
    INSERT INTO fleet_staleset (availability_set_id)
    SELECT machine.availability_set_id FROM fleet_presencerow AS presence
    JOIN fleet_machine AS machine ON machine.id = presence.machine_id
    WHERE abs(presence.clock_offset) > %(tolerance)s AND machine.revoked_at IS NULL
          AND NOT EXISTS (SELECT FROM fleet_setblindspot AS spot
                          WHERE spot.availability_set_id = machine.availability_set_id AND spot.code = 'wrong-clock'
                                AND machine.id = ANY(spot.machine_ids))
    UNION
    SELECT spot.availability_set_id FROM fleet_setblindspot AS spot
    JOIN fleet_presencerow AS presence ON presence.machine_id = ANY(spot.machine_ids)
    WHERE spot.code = 'wrong-clock' AND NOT abs(presence.clock_offset) > %(tolerance)s
"""
SPOT = ("set_name", "rank", "certainty", "machine_ids", "names", "count", "values", "other_set_id")
COUNT = (*(presence.value for presence in Presence), "agents", "without_agent", "regions")
# These also depend on the time, and may differ before a trigger has noted it.
BY_TIME = frozenset(
    {"agent-silent", "agent-gone", "agent-late", "agent-never-heard", "near-switch-off", "switched-off", "wrong-clock"}
    | {"document-lacking", "many-spools", "admits-by-itself", "zone-without-poller", "name-held"}
)


def renew(*, now: datetime) -> int:
    """Compute and store a portion of the sets that changed, are due, or were computed by another version. Return how
    many.
    """
    with transaction.atomic():
        if not try_take(Lock.BLIND_SPOTS):
            return 0
        set_ids = _waiting(now)
        if set_ids:
            # A change committed from here on adds its own row.
            StaleSet.objects.filter(availability_set__any=set_ids).delete()
            _write(set_ids, load_findings(set_ids, now=now), now=now)
    return len(set_ids)


def renew_all(*, now: datetime) -> int:
    """Compute and store all sets that wait, and check some others. Differences in the latter are corrected and logged.

    Return how many were computed.
    """
    note_clocks()
    count = 0
    while found := renew(now=now):
        count += found
    look_again(now=now)
    return count


def note_clocks() -> None:
    """Mark sets as changed in which a machine's clock became wrong or right but the stored blind spots do not
    show it.
    """
    query(CLOCKS, tolerance=settings.CLOCK_TOLERANCE_SECONDS)


def look_again(*, now: datetime) -> list[int]:
    """Compute the sets that were computed longest ago. Return the row ids of those whose stored values were wrong."""
    with transaction.atomic():
        if not try_take(Lock.BLIND_SPOTS):
            return []
        set_ids = list(SetCount.objects.order_by("judged_at").values_list("pk", flat=True)[:LOOKED_AT_AGAIN])
        findings = load_findings(set_ids, now=now)
        # Read after them: whatever changed meanwhile, or before, stands here.
        changed = set(StaleSet.objects.filter(availability_set__any=set_ids).values_list("availability_set", flat=True))
        wrong = [pk for pk in _write(set_ids, findings, now=now) if pk not in changed]
    for pk in wrong:
        log.warning("blind_spots.repaired", set_id=pk)
    return wrong


def _waiting(now: datetime) -> list[int]:
    changed = StaleSet.objects.order_by().values_list("availability_set").distinct()[:PORTION]
    due = SetCount.objects.filter(to_judge(now=now)).order_by().values_list("pk")[:PORTION]
    return sorted({pk for (pk,) in [*changed, *due]})[:PORTION]


def _write(set_ids: Collection[int], findings: Collection[SetFindings], *, now: datetime) -> list[int]:
    """Store the results of these sets (row ids). Return those whose stored values differed for a reason other than
    time.
    """
    known: dict[int, dict[tuple[str, str], SetBlindSpot]] = {pk: {} for pk in set_ids}
    for row in SetBlindSpot.objects.filter(availability_set__any=set_ids):
        known[row.availability_set_id][row.code, row.part] = row
    counted = SetCount.objects.in_bulk(list(set_ids))
    # Those that were merged into another.
    left = set(set_ids) - {each.facts.set_id for each in findings}
    over, changed = [row.pk for pk in left for row in known[pk].values()], list[SetBlindSpot]()
    different = {pk for pk in left if pk in counted}
    for each in findings:
        pk = each.facts.set_id
        stored, current = known[pk], {(spot.code, spot.part): _spot_values(each, spot) for spot in each.spots}
        ended, begun = stored.keys() - current.keys(), current.keys() - stored.keys()
        over += [stored[key].pk for key in ended]
        changed += [
            SetBlindSpot(availability_set_id=pk, code=key[0], part=key[1], **values)
            for key, values in current.items()
            if key in begun or any(getattr(stored[key], name) != value for name, value in values.items())
        ]
        codes = {code for code, _ in ended | begun}
        if pk in counted:
            machines = sum(getattr(counted[pk], presence.value) for presence in Presence)
            if codes - BY_TIME or machines != sum(each.counts.values()):
                different.add(pk)
    SetBlindSpot.objects.filter(pk__any=over).delete()
    SetBlindSpot.objects.bulk_create(
        changed, update_conflicts=True, unique_fields=["availability_set", "code", "part"], update_fields=SPOT
    )
    SetCount.objects.filter(pk__any=left).delete()
    SetCount.objects.bulk_create(
        [_count(each, now=now) for each in findings],
        update_conflicts=True,
        unique_fields=["availability_set"],
        update_fields=[*COUNT, "judged_at", "judged_by", "due_at"],
    )
    return sorted(different)


def _spot_values(each: SetFindings, spot: BlindSpot) -> dict[str, Any]:
    return {
        "set_name": each.name,
        "rank": RANKS[spot.code],
        "certainty": spot.certainty.value,
        "machine_ids": list(spot.machine_ids),
        "names": list(spot.names),
        "count": spot.count,
        "values": as_json(dict(spot.values)),
        "other_set_id": spot.other_set,
    }


def _count(each: SetFindings, *, now: datetime) -> SetCount:
    return SetCount(
        availability_set_id=each.facts.set_id,
        **{presence.value: each.counts.get(presence, 0) for presence in Presence},
        agents=len(each.facts.agents),
        without_agent=len(each.facts.missing),
        regions=list(each.regions),
        judged_at=now,
        judged_by=judged_by(),
        due_at=each.due_at,
    )
